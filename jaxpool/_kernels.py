"""What every dense kernel is built from: padding and slicing along pooled axes, types to compute in, materialising."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._steps import Step
from jaxpool._window import Window, is_int

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


def cast(x: Array, dtype: DType) -> Array:
    """x in `dtype`; as it is, weak types included, where that is its own."""
    return x if x.dtype == dtype else x.astype(dtype)


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


def crop_input(x: Array, window: Window) -> Array:
    """Undoes `pad_input`: cuts the padding off, and gives zeros to the input's end that no window reached."""
    return pad(x, window.axes, [(-dim.low, -dim.tail, 0) for dim in window.dims], 0)


def pad_step(x: Array, axes: Sequence[int], step: Step, fill: Any) -> Array:
    """x as a step takes it."""
    return pad(x, axes, [(low, high, 0) for low, high in step.sides], fill)


def crop_step(x: Array, axes: Sequence[int], step: Step) -> Array:
    """Undoes `pad_step`."""
    return pad(x, axes, [(-low, -high, 0) for low, high in step.sides], 0)


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


def polyphase_pieces(x: Array, axes: Sequence[int], step: Step) -> list[Array]:
    """All pieces of a step, for linear maps: as jax transposes them, phases are interleaved as by `assemble`.

    The transpose of a strided slice spreads its operand with zeros between; the transpose of a
    split is a concatenation.
    """
    sides = [
        (0, block * stride - size, 0)
        for block, stride, size in zip(step.blocks, step.strides, step.sizes, strict=True)
    ]
    parts = [pad(x, axes, sides, 0)]
    for axis, stride, used in zip(axes, step.strides, step.phases, strict=True):
        if stride > 1:
            parts = [phase for part in parts for phase in _phases(part, axis, stride, used)]
    ones = [1] * len(axes)

    def taken(piece: int) -> Array:
        delays, phases = step.placed(piece)
        part = parts[int(np.ravel_multi_index(phases, step.phases))]
        return view(part, axes, delays, step.outs, ones)

    return [taken(piece) for piece in range(len(step.starts))]


def _phases(x: Array, axis: int, stride: int, used: int) -> list[Array]:
    """Every `stride`-th element along an axis, from each of the first `used` on."""
    blocks = x.shape[axis] // stride
    apart = lax.reshape(x, (*x.shape[:axis], blocks, stride, *x.shape[axis + 1 :]))
    apart = lax.slice_in_dim(apart, 0, used, axis=axis + 1)
    return [lax.squeeze(phase, [axis + 1]) for phase in lax.split(apart, [1] * used, axis + 1)]


Term = Callable[..., Array]


def assemble(
    term: Term, arrays: Sequence[Array], axes: Sequence[int], step: Step, join: Term
) -> Array:
    """The transpose of a step: `term(q, *arrays)` is what piece q gets from each output; `join` adds what meets.

    Positions are seen as blocks of `strides`: position `stride * block + phase` gets its terms from
    the pieces of that phase, each from the output as many blocks back as its shift says. One dense
    expression a phase; the phases are interleaved at the end.
    """
    delays = [step.placed(piece)[0] for piece in range(len(step.starts))]
    longest = [max(column) for column in zip(*delays, strict=True)]
    ones = [1] * len(step.blocks)

    def sides(late: Sequence[int]) -> list[tuple[int, int, int]]:
        """What shifts an output by `late` blocks, in as many as the input has."""
        ends = zip(late, step.blocks, step.outs, strict=True)
        return [(before, block - out, 0) for before, block, out in ends]

    if _read_padded(arrays, axes):
        wide = [pad(array, axes, sides(longest), 0) for array in arrays]

        def placed(piece: int) -> Array:
            starts = [late - delay for late, delay in zip(longest, delays[piece], strict=True)]
            return term(piece, *[view(a, axes, starts, step.blocks, ones) for a in wide])
    else:

        def placed(piece: int) -> Array:
            ends = [
                (delay, block - out - delay, 0)
                for delay, block, out in zip(delays[piece], step.blocks, step.outs, strict=True)
            ]
            return pad(term(piece, *arrays), axes, ends, 0)

    found: dict[tuple[int, ...], list[Array]] = {}
    for piece in range(len(step.starts)):
        found.setdefault(step.placed(piece)[1], []).append(placed(piece))
    joined = {phase: functools.reduce(join, terms) for phase, terms in found.items()}
    nothing = lax.full_like(next(iter(joined.values())), 0)
    every = itertools.product(*[range(used) for used in step.phases])
    return _interleave([joined.get(phase, nothing) for phase in every], axes, step)


def _read_padded(arrays: Sequence[Array], axes: Sequence[int]) -> bool:
    """Whether terms are read from padded arrays, or padded each: what vectorises was measured (bench/NOTES.md)."""
    inside = arrays[0].shape[max(axes, default=-1) + 1 :]
    return len(arrays) == 1 or (all(is_int(n) for n in inside) and math.prod(inside) < WIDE)


def _interleave(parts: list[Array], axes: Sequence[int], step: Step) -> Array:
    """One array from one for each phase in use, in row-major order of the phases; zeros in the others."""
    for axis, stride, used in reversed(list(zip(axes, step.strides, step.phases, strict=True))):
        if stride == 1:
            continue
        joined = []
        for first in range(0, len(parts), used):
            stacked = jnp.stack(parts[first : first + used], axis=axis + 1)
            stacked = pad(stacked, [axis + 1], [(0, stride - used, 0)], 0)
            shape = list(parts[first].shape)
            shape[axis] *= stride
            joined.append(lax.reshape(stacked, shape))
        parts = joined
    sides = [
        (0, size - parts[0].shape[axis], 0) for axis, size in zip(axes, step.sizes, strict=True)
    ]
    return pad(parts[0], axes, sides, 0)


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
    if wide == dy.dtype or not window.overlapping:
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
