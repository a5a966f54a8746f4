"""The TensorFlow side of `bench._tf_peer`: reads one request per line and answers with one line.

The worker draws the input arrays from the case, and sends back the sample of the results that the reference checks.
The parent process compares, so jax need not be installed here. TensorFlow's averages with "SAME" padding do not
count the padding; the reference then does not count it either.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bench import conditions
from bench._case import ARGMAX, AVERAGES, ELEMENTWISE, MAX, TRAIN_STEP, Case, numpy_dtype
from bench.timing import TimedCalls, timed_calls

_LAYOUTS = {False: {1: "NWC", 2: "NHWC", 3: "NDHWC"}, True: {1: "NCW", 2: "NCHW", 3: "NCDHW"}}


class UnsupportedCase(Exception):
    pass


def op_for(case: Case) -> Callable[..., Any]:
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(tf, case.op), xs)
    if case.op == TRAIN_STEP:
        raise UnsupportedCase("whole steps compare lax's pool with ours")
    if case.op == MAX:
        return lambda x: tf.reduce_max(x, case.axes, keepdims=True)
    if case.op == ARGMAX:
        return _with_argmax(case)
    if case.op not in (*AVERAGES, "max_pool", "min_pool"):
        raise UnsupportedCase(f"TensorFlow has no {case.op}")
    if any(d > 1 for d in case.dilation) and any(s > 1 for s in case.strides):
        raise UnsupportedCase("TensorFlow has no dilation together with strides")
    averages, sums = case.op in AVERAGES, case.op == "sum_pool"
    padding = "VALID" if padded_first(case) else case.padding

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

    largest = _explicitly_padded(case, native) if padded_first(case) else native
    return (lambda x: -largest(-x)) if case.op == "min_pool" else largest


def _with_argmax(case: Case) -> Callable[[Any], Any]:
    images = len(case.window) == 2 and not case.channels_first
    if not images or any(d > 1 for d in case.dilation) or not isinstance(case.padding, str):
        raise UnsupportedCase("TensorFlow gives positions for plain channels-last images alone")
    return lambda x: tuple(
        tf.nn.max_pool_with_argmax(
            x, case.window, case.strides, case.padding, output_dtype=tf.int32
        )
    )


def padded_first(case: Case) -> bool:
    """Whether x is padded first: explicit padding, or "SAME" for a sum or with dilation."""
    cannot = case.op == "sum_pool" or any(d > 1 for d in case.dilation)
    return not isinstance(case.padding, str) or (case.padding == "SAME" and cannot)


def _explicitly_padded(case: Case, native: Callable[[Any], Any]) -> Callable[[Any], Any]:
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


def _outputs(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


class Worker:
    def __init__(self) -> None:
        self._calls: TimedCalls | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "version":
            return {"version": tf.__version__}
        if request["do"] == "time":
            assert self._calls is not None
            return {"seconds": list(self._calls(request["calls"]))}
        return self._prepare(Case.from_json(request["case"]), request["mode"])

    def _prepare(self, case: Case, mode: str) -> dict[str, Any]:
        self._calls = None  # frees the arrays of the previous case
        op = op_for(case)
        if case.op == ARGMAX and mode == "forward_and_vjp":
            raise UnsupportedCase("TensorFlow has no gradient of max_pool_with_argmax on the CPU")
        arrays = case.inputs()
        cotangent = case.cotangent() if mode == "forward_and_vjp" else None
        xs = tuple(map(tf.constant, arrays))
        dy = None if cotangent is None else tf.constant(cotangent)

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

        self._calls = timed_calls(lambda: concrete(*xs))
        # The positions of TensorFlow include the channel.
        outputs = [y.numpy(), *(p.numpy() // case.shape[-1] for p in positions)]
        return {
            "compile_s": compile_s,
            "outputs": [each[case.sample].tolist() for each in outputs],
            "dxs": [dx.numpy()[case.sample].tolist() for dx in dxs],
            "count_include_pad": case.padding != "SAME" or padded_first(case),
        }


def main() -> None:
    # Only answers go to the pipe. Output of libraries goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    conditions.keep_memory()
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except UnsupportedCase as error:
            answer = {"unsupported": str(error)}
        except Exception as error:  # any error of TensorFlow is an answer
            lines = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
