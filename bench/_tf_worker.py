"""TensorFlow's pools with its gradient tape, as one graph per case, on the CPU.

This is the process that `bench._tf_peer` starts. It needs no jax: it receives requests and sends answers.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tensorflow as tf

from bench import conditions
from bench._case import ARGMAX, ELEMENTWISE, MAX, Case, Unsupported, outputs_of
from bench.timing import timed_calls

_LAYOUTS = {False: {1: "NWC", 2: "NHWC", 3: "NDHWC"}, True: {1: "NCW", 2: "NCHW", 3: "NCDHW"}}


class Worker:
    """Each method answers one kind of request."""

    _calls: Any = None

    def version(self) -> str:
        return str(tf.__version__)

    def time(self, count: int) -> Sequence[float]:
        return self._calls(count)

    def prepare(self, case: Case, xs: Sequence[np.ndarray], dy: np.ndarray | None) -> Any:
        """The seconds to compile, the sample of the results, and whether averages count the padding."""
        self._calls = None  # frees the arrays of the previous case
        op = _op(case)
        if case.op == ARGMAX and dy is not None:
            raise Unsupported("TensorFlow has no gradient of max_pool_with_argmax on the CPU")
        xs = tuple(map(tf.constant, xs))
        dy = None if dy is None else tf.constant(dy)

        @tf.function(autograph=False)
        def step(*xs: Any) -> Any:
            if dy is None:
                return outputs_of(op(*xs)), ()
            with tf.GradientTape() as tape:
                tape.watch(xs)
                outputs = outputs_of(op(*xs))
            return outputs, tape.gradient(outputs[0], xs, output_gradients=dy)

        start = time.perf_counter()
        concrete = step.get_concrete_function(*xs)
        (y, *positions), dxs = concrete(*xs)
        compile_s = time.perf_counter() - start

        self._calls = timed_calls(lambda: concrete(*xs))
        # The positions of TensorFlow include the channel.
        outputs = [y, *(indices // case.shape[-1] for indices in positions)]
        samples = [[each.numpy()[case.sample] for each in arrays] for arrays in (outputs, dxs)]
        # Its averages with "SAME" do not count the padding.
        return compile_s, *samples, case.padding != "SAME"


def _op(case: Case) -> Callable[..., Any]:
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(tf, case.op), xs)
    if case.op == MAX:
        return lambda x: tf.reduce_max(x, case.axes, keepdims=True)
    if case.op == ARGMAX:
        return _with_argmax(case)
    if case.op not in ("avg_pool", "max_pool", "min_pool"):
        raise Unsupported(f"no TensorFlow call is written for {case.op}")
    if any(d > 1 for d in case.dilation):
        raise Unsupported("no TensorFlow call is written for dilation")
    explicit = not isinstance(case.padding, str)

    def native(x: Any) -> Any:
        return tf.nn.pool(
            x,
            case.window,
            "AVG" if case.op == "avg_pool" else "MAX",
            strides=case.strides,
            padding="VALID" if explicit else case.padding,
            data_format=_LAYOUTS[case.channels_first][len(case.window)],
        )

    largest = _explicitly_padded(case, native) if explicit else native
    return (lambda x: -largest(-x)) if case.op == "min_pool" else largest


def _with_argmax(case: Case) -> Callable[[Any], Any]:
    images = len(case.window) == 2 and not case.channels_first
    if not images or any(d > 1 for d in case.dilation) or not isinstance(case.padding, str):
        raise Unsupported("TensorFlow gives positions for plain channels-last images alone")
    return lambda x: tf.nn.max_pool_with_argmax(
        x, case.window, case.strides, case.padding, output_dtype=tf.int32
    )


def _explicitly_padded(case: Case, native: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`tf.nn.max_pool2d` takes explicit padding of images; other arrays are padded first."""
    pads = [(0, 0)] * len(case.shape)
    for axis, pad in zip(case.axes, case.pads, strict=True):
        pads[axis] = pad
    if case.op == "max_pool" and len(case.window) == 2 and not case.channels_first:
        return lambda x: tf.nn.max_pool2d(x, case.window, case.strides, pads)
    fill = 0 if case.op == "avg_pool" else np.dtype(case.dtype).type(-np.inf)
    return lambda x: native(tf.pad(x, pads, constant_values=fill))


def main() -> None:
    connection, threads = Connection(int(sys.argv[1])), int(sys.argv[2])
    conditions.keep_memory()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    worker = Worker()
    with contextlib.suppress(EOFError):
        while True:
            method, *arguments = connection.recv()
            try:
                answer = getattr(worker, method)(*arguments)
            except Unsupported as error:
                answer = error
            except Exception as error:  # send every TensorFlow exception back to the parent process
                answer = RuntimeError(f"{type(error).__name__}: {error}")
            connection.send(answer)


if __name__ == "__main__":
    main()
