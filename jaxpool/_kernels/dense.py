"""What every dense kernel is built from: padding and slicing along pooled axes, types to compute in, materialising."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import reshard

from jaxpool._geometry.window import Window, is_int
from jaxpool._plan.steps import Step

DType = Any

# Neighbours in memory, below which what is padded or put together piece by piece does not vectorise.
WIDE = 16


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is a floating type, the 8-bit ones included."""
    return jnp.issubdtype(dtype, jnp.floating)


def accumulator(dtype: DType) -> DType:
    """The type in which sums of `dtype` are accumulated: float32 for 8- and 16-bit floats, else its own."""
    return (
        jnp.dtype(jnp.float32)
        if is_float(dtype) and jnp.dtype(dtype).itemsize < 4
        else jnp.dtype(dtype)
    )


def is_narrow_float(dtype: DType) -> bool:
    """Whether sums of `dtype` are accumulated in a wider type."""
    return accumulator(dtype) != jnp.dtype(dtype)


def cast(x: Array, dtype: DType) -> Array:
    """x in `dtype`; as it is, weak types included, where that is its own."""
    return x if x.dtype == dtype else x.astype(dtype)


class End(NamedTuple):
    """What becomes of sums, in the pass that adds them up."""

    dtype: DType  # what they are rounded to
    divide: Callable[[Array], Array] | None = None


def finished(total: Array, end: End | None, *, by_bits: bool = False) -> Array:
    """Sums as `end` says; `by_bits` rounds to bfloat16 as fast as it is read, in a loop without branches."""
    if end is None:
        return total
    wide = cast(total, accumulator(total.dtype))
    divided = wide if end.divide is None else end.divide(wide)
    if by_bits and divided.dtype == jnp.float32 and end.dtype == jnp.bfloat16:
        return _rounded_by_bits(divided)
    return divided.astype(end.dtype)


def _rounded_by_bits(x: Array) -> Array:
    """float32 as bfloat16. XLA for CPU rounds slower than it adds up 9 elements."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    high = lax.shift_right_logical(bits, np.uint32(16))
    nearest = lax.shift_right_logical(
        bits + np.uint32(0x7FFF) + (high & np.uint32(1)), np.uint32(16)
    )
    quiet = high | np.uint32(0x40)  # a NaN stays one
    rounded = lax.select(x != x, quiet, nearest).astype(jnp.uint16)
    return lax.bitcast_convert_type(rounded, jnp.bfloat16)


def bytes_of(x: Array) -> float:
    """How many bytes x has; infinite where its shape is not known. The axes of a vmap are not seen."""
    known = all(map(is_int, x.shape))
    return math.prod(x.shape) * x.dtype.itemsize if known else math.inf


def row(x: Array, axes: Sequence[int]) -> float:
    """How many elements lie next to each other at a position of `axes`; infinite where not known."""
    inside = x.shape[max(axes, default=-1) + 1 :]
    return math.prod(inside) if all(map(is_int, inside)) else math.inf


def is_sharded(x: Array) -> bool:
    """Whether the type of x says that it is sharded; of a mesh whose axes XLA alone knows it does not."""
    return any(part for part in jax.typeof(x).sharding.spec)


def least(dtype: DType) -> Any:
    """The smallest value of `dtype`: what a maximum is padded with, and never selects."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(False)
    if not is_float(dtype):
        return np.asarray(jnp.iinfo(dtype).min, dtype)
    return _extreme(dtype, -np.inf, jnp.finfo(dtype).min)


def greatest(dtype: DType) -> Any:
    """The largest value of `dtype`: what a minimum is padded with."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(True)
    if not is_float(dtype):
        return np.asarray(jnp.iinfo(dtype).max, dtype)
    return _extreme(dtype, np.inf, jnp.finfo(dtype).max)


def _extreme(dtype: DType, infinity: float, finite: Any) -> Any:
    """The infinity of a floating type, or its finite extreme where it has none (several of the float8 types)."""
    with np.errstate(all="ignore"):
        value = np.asarray(infinity).astype(dtype)
    return value if np.isinf(value.astype(np.float32)) else np.asarray(finite, dtype)


def index_dtype(count: int) -> DType:
    """The narrowest unsigned type that holds `count` different values."""
    return jnp.dtype(
        next(kind for kind in (np.uint8, np.uint16, np.uint32) if count <= np.iinfo(kind).max + 1)
    )


def losing(dtype: DType, kind: Literal["max", "min"]) -> Any:
    """What a maximum or a minimum is padded with: its identity."""
    return least(dtype) if kind == "max" else greatest(dtype)


def pad(x: Array, axes: Sequence[int], sides: Sequence[tuple[int, int, int]], fill: Any) -> Array:
    """Pads `axes` of x by (low, high, interior) each; a negative side crops."""
    if not any(any(side) for side in sides):
        return x
    config = [(0, 0, 0)] * x.ndim
    for axis, side in zip(axes, sides, strict=True):
        config[axis] = side
    return lax.pad(x, jnp.asarray(fill, x.dtype), config)


def pad_input(x: Array, window: Window, fill: Any) -> Array:
    """x with the positions before and after it that the windows reach, cropped where they reach none."""
    return pad(x, window.axes, [(dim.low, dim.tail, 0) for dim in window.dims], fill)


def pad_step(x: Array, axes: Sequence[int], step: Step, fill: Any) -> Array:
    """x as a step takes it."""
    return pad(x, axes, [(low, high, 0) for low, high in step.sides], fill)


def view(
    x: Array,
    axes: Sequence[int],
    starts: Sequence[int],
    outs: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """`outs` positions along each of `axes`, from `starts` on, `strides` apart."""
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, outs, strides, strict=True):
        begin[axis], end[axis], step[axis] = start, start + (out - 1) * stride + 1, stride
    return lax.slice(x, begin, end, step)


def piece(x: Array, axes: Sequence[int], step: Step, which: int) -> Array:
    """Piece `which` of a step, one element an output."""
    return view(x, axes, step.shifts[which], step.outs, step.strides)


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    """The parts one after another along an axis.

    XLA for CPU does not fuse a concatenation along the last axis with what makes its parts (jax 0.12; 0.10 for
    one axis alone), and along the last but one it does: an axis of size 1 stands after it.
    """
    if len(parts) == 1:
        return parts[0]
    if axis < parts[0].ndim - 1:
        return lax.concatenate(parts, axis)
    apart = [lax.expand_dims(part, [part.ndim]) for part in parts]
    return lax.squeeze(lax.concatenate(apart, axis), [parts[0].ndim])


def broadcast_like(value: Any, like: Array) -> Array:
    """Ints or bools broadcast to the shape of `like`, and sharded as its type says."""
    whole = jnp.broadcast_to(jnp.asarray(value), like.shape)
    given, wanted = jax.typeof(whole).sharding, jax.typeof(like).sharding
    known = any(given.spec) or any(wanted.spec)
    return reshard(whole, wanted) if known and given.spec != wanted.spec else whole


def along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A vector as an array of rank `ndim` that lies along `axis`."""
    shape = [1] * ndim
    shape[axis] = len(values)
    return values.reshape(shape)


def widen(dy: Array, window: Window) -> Array:
    """dy in the type in which its sums are accumulated; in its own where windows do not meet and nothing is added.

    The wide array is kept apart: a cast inside every term of a backward pass does not vectorise on CPU.
    """
    wide = accumulator(dy.dtype)
    if not (is_narrow_float(dy.dtype) and window.overlapping):
        return dy
    return materialise(lambda dy: dy.astype(wide), dy)


def materialise(kernel: Callable[..., Any], *args: Array | None) -> Any:
    """`kernel(*args)`, computed once and kept, however many consumers read the result.

    XLA fuses a cheap producer into each of its consumers and computes it again there; a select
    chain inside every term of a backward pass is 10 to 40 times slower. On GPU and TPU an
    optimization barrier keeps the two apart. XLA for CPU drops barriers before it fuses, so there
    the kernel stands in a branch of a conditional, whose predicate is hidden behind a barrier for
    just long enough not to be folded. Elsewhere the predicate is a constant and the conditional
    goes away: one copy of the kernel, whatever the platform, makes gradients quicker to trace.
    """
    shapes = jax.eval_shape(kernel, *args)

    def unused(*args: Array | None) -> Any:
        return jax.tree.map(lambda leaf: lax.full_like(leaf, 0), shapes)

    taken = lax.platform_dependent(
        cpu=lambda: lax.optimization_barrier(jnp.asarray(True)), default=lambda: jnp.asarray(True)
    )
    return lax.optimization_barrier(lax.cond(taken, kernel, unused, *args))
