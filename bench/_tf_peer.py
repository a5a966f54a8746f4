"""TensorFlow's pools with its gradient tape, as one graph per case, on the CPU."""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench._case import ARGMAX, AVERAGES, ELEMENTWISE, MAX, Case, numpy_dtype
from bench.run import Device, Prepared, Unsupported, Work
from bench.timing import timed_calls

_LAYOUTS = {False: {1: "NWC", 2: "NHWC", 3: "NDHWC"}, True: {1: "NCW", 2: "NCHW", 3: "NCDHW"}}


class TensorFlowPeer:
    name = "tensorflow"

    def __init__(self, device: Device, threads: int) -> None:
        self._device = device
        self._threads = threads

    def prepare(self, work: Work) -> Prepared:
        tf, case = self._tensorflow(), work.case
        op = _op(tf, case)
        if case.op == ARGMAX and work.dy is not None:
            raise Unsupported("TensorFlow has no gradient of max_pool_with_argmax on the CPU")
        xs = tuple(map(tf.constant, work.xs))
        dy = None if work.dy is None else tf.constant(work.dy)

        @tf.function(autograph=False)
        def step(*xs: Any) -> Any:
            if dy is None:
                return _outputs(op(*xs)), ()
            with tf.GradientTape() as tape:
                tape.watch(xs)
                outputs = _outputs(op(*xs))
            return outputs, tape.gradient(outputs[0], xs, output_gradients=dy)

        start = time.perf_counter()
        concrete = step.get_concrete_function(*xs)
        (y, *positions), dxs = concrete(*xs)
        compile_s = time.perf_counter() - start

        # The positions of TensorFlow include the channel.
        outputs = [y, *(indices // case.shape[-1] for indices in positions)]
        difference = work.reference.difference(
            [each.numpy()[case.sample] for each in outputs],
            [dx.numpy()[case.sample] for dx in dxs],
            # Its averages with "SAME" do not count the padding.
            count_include_pad=case.padding != "SAME" or _padded_first(case),
        )
        return Prepared(timed_calls(lambda: concrete(*xs)), compile_s, difference)

    def _tensorflow(self) -> Any:
        if self._device != "cpu":
            raise Unsupported("TensorFlow takes part on the CPU only")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        try:
            tf = importlib.import_module("tensorflow")
        except ImportError as error:
            raise Unsupported("tensorflow is not installed") from error
        tf.config.threading.set_intra_op_parallelism_threads(self._threads)
        tf.config.threading.set_inter_op_parallelism_threads(self._threads)
        return tf


def _outputs(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _op(tf: Any, case: Case) -> Callable[..., Any]:
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(tf, case.op), xs)
    if case.op == MAX:
        return lambda x: tf.reduce_max(x, case.axes, keepdims=True)
    if case.op == ARGMAX:
        return _with_argmax(tf, case)
    if case.op not in (*AVERAGES, "max_pool", "min_pool"):
        raise Unsupported(f"TensorFlow has no {case.op}")
    if any(d > 1 for d in case.dilation) and any(s > 1 for s in case.strides):
        raise Unsupported("TensorFlow has no dilation together with strides")
    averages, sums = case.op in AVERAGES, case.op == "sum_pool"
    padding = "VALID" if _padded_first(case) else case.padding

    def native(x: Any) -> Any:
        y = tf.nn.pool(
            x,
            case.window,
            "AVG" if averages else "MAX",
            strides=case.strides,
            padding=padding,
            data_format=_LAYOUTS[case.channels_first][len(case.window)],
            dilations=case.dilation,
        )
        return y * np.prod(case.window).astype(x.dtype.as_numpy_dtype) if sums else y

    largest = _explicitly_padded(tf, case, native) if _padded_first(case) else native
    return (lambda x: -largest(-x)) if case.op == "min_pool" else largest


def _with_argmax(tf: Any, case: Case) -> Callable[[Any], Any]:
    images = len(case.window) == 2 and not case.channels_first
    if not images or any(d > 1 for d in case.dilation) or not isinstance(case.padding, str):
        raise Unsupported("TensorFlow gives positions for plain channels-last images alone")
    return lambda x: tuple(
        tf.nn.max_pool_with_argmax(
            x, case.window, case.strides, case.padding, output_dtype=tf.int32
        )
    )


def _padded_first(case: Case) -> bool:
    """Whether x is padded first: explicit padding, or "SAME" for a sum or with dilation."""
    cannot = case.op == "sum_pool" or any(d > 1 for d in case.dilation)
    return not isinstance(case.padding, str) or (case.padding == "SAME" and cannot)


def _explicitly_padded(tf: Any, case: Case, native: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`tf.nn.max_pool2d` takes explicit padding of images; other arrays are padded first."""
    pads = [(0, 0)] * len(case.shape)
    for axis, pad in zip(case.axes, case.pads, strict=True):
        pads[axis] = pad
    dilated = any(d > 1 for d in case.dilation)
    images = len(case.window) == 2 and not case.channels_first
    if case.op == "max_pool" and images and not dilated:
        return lambda x: tf.nn.max_pool2d(x, case.window, case.strides, pads)
    fill = 0 if case.op in AVERAGES else numpy_dtype(case.dtype).type(-np.inf)
    return lambda x: native(tf.pad(x, pads, constant_values=fill))
