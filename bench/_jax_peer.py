"""Peers that run as one XLA program: jaxpool, lax with its own autodiff, and `x + 1`."""

from __future__ import annotations

import functools
import importlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench._case import AVERAGES, CUMMAX, ELEMENTWISE, MAX, TRAIN_STEP, Case, outputs_of
from bench.results import Row
from bench.run import Device, Prepared, Unsupported, Work
from bench.timing import TimedCalls, burst, timed_calls
from jaxpool._kernels.dtypes import reduction_identity

Op = Callable[..., Any]  # returns y, or y and positions


class JaxPeer:
    """An implementation `make_op(case) -> op(*xs)`. One jit holds the forward and backward pass."""

    def __init__(self, name: str, make_op: Callable[[Case], Op], device: Device) -> None:
        self.name = name
        self._make_op = make_op
        self._device = device

    def prepare(self, work: Work) -> Prepared:
        if work.case.op == TRAIN_STEP:
            from bench import train_steps

            return train_steps.prepare(work, self.name, self._device)
        case, op = work.case, self._make_op(work.case)
        device = jax.devices(self._device)[0]
        xs, dy = work.shared("jax", lambda: jax.device_put((work.xs, work.dy), device))
        function = op if dy is None else functools.partial(forward_and_vjp, case, op)
        arguments = xs if dy is None else (dy, *xs)
        compiled, compile_s = compile_timed(function, *arguments)

        results = compiled(*arguments)
        outputs, dxs = (results, ()) if dy is None else results
        checked = work.reference.check(
            [np.asarray(y)[case.sample] for y in outputs_of(outputs)],
            [np.asarray(dx)[case.sample] for dx in dxs],
        )
        row = Row(compile_s=compile_s, peak_bytes=peak_bytes(compiled), **checked)
        return calls_of(compiled, *arguments, device=self._device), row


class AddOnePeer:
    """`x + 1` on the first input: one pass over the array in the same framework."""

    name = "x+1"

    def __init__(self, device: Device) -> None:
        self._device = device

    def prepare(self, work: Work) -> Prepared:
        if work.case.op == TRAIN_STEP:
            raise Unsupported("a whole step has no floor")
        device = jax.devices(self._device)[0]
        xs, _ = work.shared("jax", lambda: jax.device_put((work.xs, work.dy), device))
        return add_one_calls(xs[0], self._device), Row()


def add_one_calls(x: jax.Array, device: Device) -> Any:
    compiled, _ = compile_timed(lambda x: x + jnp.ones((), x.dtype), x)
    return calls_of(compiled, x, device=device)


def calls_of(compiled: Any, *arguments: Any, device: Device = "cpu") -> TimedCalls:
    """The timed calls of a compiled program."""
    return timed_calls(lambda: compiled(*arguments), jax.block_until_ready, burst(device))


def compile_timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The compiled program, and the seconds spent tracing, lowering and compiling."""
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled, time.perf_counter() - start


def peak_bytes(compiled: Any) -> int | None:
    """Bytes of the temporaries and results of a compiled program."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes)


def value_and_vjp(op: Op, dy: jax.Array, *xs: jax.Array) -> tuple[Any, Any]:
    """The outputs of the op, and the cotangents of xs for a cotangent of the first output, broadcast from dy."""

    def first(*xs: jax.Array) -> tuple[jax.Array, Any]:
        y, *others = jax.tree.leaves(op(*xs))
        return y, others

    y, vjp, others = jax.vjp(first, *xs, has_aux=True)
    return (y, *others), vjp(jnp.broadcast_to(dy.astype(y.dtype), y.shape))


def forward_and_vjp(case: Case, op: Op, dy: jax.Array, *xs: jax.Array) -> tuple[Any, Any]:
    """The outputs of the op, and the cotangents of the inputs that have a gradient, for a cotangent dy of y."""
    floats, positions = xs[: case.arity], xs[case.arity :]
    return value_and_vjp(lambda *xs: op(*xs, *positions), dy, *floats)


def jaxpool_op(case: Case) -> Op:
    """The case as a call of this library."""
    return case.bound(getattr(importlib.import_module("jaxpool"), case.op))


def lax_op(case: Case) -> Op:
    """The case with `lax.reduce_window` and jax.numpy, as Flax and most programs use them."""
    if case.op in ELEMENTWISE:
        return lambda *xs: functools.reduce(getattr(jnp, case.op), xs)
    if case.op == CUMMAX:
        return lambda x: lax.cummax(x, *case.axes)
    if case.op == MAX:
        return lambda x: jnp.max(x, case.axes, keepdims=True)
    if case.op not in (*AVERAGES, "max_pool", "min_pool"):
        raise Unsupported(f"lax has no {case.op}")
    kind = "mean" if case.op == "avg_pool" else case.op.removesuffix("_pool")
    window, strides, dilation = (
        _full(case, values, 1) for values in (case.window, case.strides, case.dilation)
    )
    padding = _full(case, case.pads, (0, 0))
    return lambda x: reduce_window(x, kind, window, strides, padding, dilation)


def reduce_window(
    x: jax.Array, kind: str, window: Any, strides: Any, padding: Any, dilation: Any = None
) -> jax.Array:
    """`lax.reduce_window` for the "max", "min", "sum" or "mean" of each window. A mean counts the padding."""
    if kind in ("max", "min"):
        init, join = reduction_identity(x.dtype, kind), getattr(lax, kind)
    else:
        init, join = np.zeros((), x.dtype), lax.add
    y = lax.reduce_window(x, init[()], join, window, strides, padding, window_dilation=dilation)
    return y / math.prod(window) if kind == "mean" else y


def accelerate_op(case: Case) -> Op:
    """`jaxpool.accelerate` is only timed on whole train steps with lax's pools."""
    raise Unsupported("accelerate is timed on whole train steps")


def _full(case: Case, values: Sequence[Any], elsewhere: Any) -> tuple[Any, ...]:
    """Expand one value per pooled axis to one value per axis of x."""
    by_axis = dict(zip(case.axes, values, strict=True))
    return tuple(by_axis.get(axis, elsewhere) for axis in range(len(case.shape)))
