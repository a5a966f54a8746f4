"""Windowed selection: each window's maximum or minimum, and the flat row-major tap it stands at."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry import taps as _taps
from jaxpool._geometry.taps import Cut, Taps
from jaxpool._geometry.window import Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.phases import FEW_TERMS
from jaxpool._kernels.regions import (
    large,
    missing,
    mostly_complete,
    padded_part,
    pieces,
    put_together,
    within_part,
)
from jaxpool._plan.steps import Step, select_steps

Kind = Literal["max", "min"]
# Rows of so many neighbours are parts of longer ones in steps along an axis that others follow; ...
SHORTEST_ROW = 4
SHORT_ROW = 12
SHORT_ROW_OF_MANY_AXES = 16
# ... of so many, and one more of narrower types than 32 bits, in steps along the last axis.
END_TO_END = 9, 15
# Over rows of so many neighbours, indices of so few taps are found in float32.
UNROLLED_ROWS = 9, 19
UNROLLED_TAPS = 4
_MAGNITUDE = np.int16(2**15 - 1)  # all bits but the sign; as a float, a NaN
_NAN_KEY = {"max": np.int16(2**15 - 1), "min": np.int16(-(2**15))}
Ties = Literal["first", "last", "split"]
Order = Literal["first", "last", "last_nan"]  # the third: the first of equal numbers, the last NaN


def decode(x: Array) -> Array:
    """x in the type in which it is compared: narrow floats as float32, bool as uint8; exact, and `encode` undoes it."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.bfloat16:
        # Its bits are the upper half of a float32's: shifting them vectorises, a cast does not.
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << np.uint32(16)
        return lax.bitcast_convert_type(bits, jnp.float32)
    if x.dtype == jnp.float8_e8m0fnu:
        # Its least value is a subnormal float32, which XLA may flush to 0; its bits are in order.
        bits = lax.bitcast_convert_type(x, jnp.uint8)
        return jnp.where(bits == np.uint8(255), np.float32(np.nan), bits.astype(jnp.float32))
    return kernels.cast(x, kernels.accumulator(x.dtype))


def encode(y: Array, dtype: kernels.DType) -> Array:
    """Back from `decode` for values that `dtype` holds exactly."""
    if dtype == jnp.bfloat16:
        bits = (lax.bitcast_convert_type(y, jnp.uint32) >> np.uint32(16)).astype(jnp.uint16)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    if dtype == jnp.float8_e8m0fnu:
        bits = jnp.where(lax.ne(y, y), np.float32(255), y).astype(jnp.uint8)
        return lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
    return kernels.cast(y, dtype)


def decoded_losing(dtype: kernels.DType, kind: Kind) -> np.ndarray:
    """The identity of a maximum or a minimum of `dtype`, decoded."""
    with jax.ensure_compile_time_eval():
        return np.asarray(decode(jnp.asarray(kernels.losing(dtype, kind))))


def sort_key(x: Array, kind: Kind, ties: Order) -> Array:
    """x in the type in which a selection compares it; `from_sort_key` undoes it.

    16-bit floats become 16-bit integers in the same order, NaN at the end where it wins: twice as
    many to a vector as float32, and no test for NaN. The rest as `decode`.
    """
    if not _as_integers(x.dtype, ties):
        return decode(x)
    bits = lax.bitcast_convert_type(x, jnp.int16)
    order = jnp.where(bits < 0, bits ^ _MAGNITUDE, bits)
    infinity = np.asarray(np.inf, x.dtype).view(np.int16)
    return jnp.where((bits & _MAGNITUDE) > infinity, _NAN_KEY[kind], order)


def from_sort_key(key: Array, dtype: kernels.DType, kind: Kind, ties: Order) -> Array:
    """Back from `sort_key`; every NaN comes back as the same one."""
    if not _as_integers(dtype, ties):
        return encode(key, dtype)
    bits = jnp.where(key < 0, key ^ _MAGNITUDE, key)
    bits = jnp.where(key == _NAN_KEY[kind], _MAGNITUDE, bits)
    return lax.bitcast_convert_type(bits, dtype)


def _as_integers(dtype: kernels.DType, ties: Order) -> bool:
    return dtype in (jnp.bfloat16, jnp.float16) and ties != "last_nan"


def _as_if_positive_zero(key: Array) -> Array:
    """The keys of 16-bit floats with that of -0, which is -1, as that of +0."""
    return jnp.where(key == np.int16(-1), np.int16(0), key)


def wins(challenger: Array, best: Array, kind: Kind, ties: Order) -> Array:
    """Where `challenger` takes the place of `best`, which comes before it; NaN beats numbers and ties with NaN."""
    behind, behind_or_level = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)
    if not kernels.is_float(best.dtype):
        return lax.bitwise_not((behind if ties == "last" else behind_or_level)(challenger, best))
    if ties == "last_nan":
        ahead = lax.gt if kind == "max" else lax.lt
        return lax.bitwise_or(ahead(challenger, best), lax.ne(challenger, challenger))
    if ties == "first":
        return lax.bitwise_and(
            lax.bitwise_not(behind_or_level(challenger, best)), lax.eq(best, best)
        )
    beaten = lax.bitwise_or(
        behind(challenger, best),
        lax.bitwise_and(lax.ne(best, best), lax.eq(challenger, challenger)),
    )
    return lax.bitwise_not(beaten)


def _real_bound(window: Window, ndim: int, ties: Order) -> Array | None:
    """The first (or last) flat tap of each window that is no padding, broadcastable to the output."""
    if not window.padded:
        return None
    bound = np.zeros((1,) * ndim, np.int64)
    for which, dim in enumerate(window.dims):
        unit = math.prod(window.window_shape[which + 1 :])
        taps = [
            max(0, dim.last_real(o)) if ties == "last" else dim.first_real(o)
            for o in range(dim.out)
        ]
        bound = bound + kernels.along(np.minimum(taps, dim.window - 1), dim.axis, ndim) * unit
    return jnp.asarray(bound.astype(kernels.index_dtype(window.size)))


def _grid(step: Step) -> list[list[int]]:
    """Along each axis, where the pieces of a step begin."""
    return [sorted(set(column)) for column in zip(*step.shifts, strict=True)]


def _taps_of(step: Step, *, padded: bool) -> list[Taps]:
    """What a step takes, along each axis: of an array that is padded already, or that is not."""
    taps = []
    for which, shifts in enumerate(_grid(step)):
        low, _ = step.sides[which]
        offsets = tuple(shift if padded else shift - low for shift in shifts)
        size = step.sizes[which] if padded else step.unpadded[which]
        taps.append(Taps(offsets, step.strides[which], size, step.outs[which]))
    return taps


def _by_regions(taps: Sequence[Taps], step: Step, value: Array, axes: Sequence[int]) -> bool:
    """Whether a step reads a large array where it is, faster than from a padded copy.

    Where few elements lie next to each other at a position of an axis with padding, few taps and strides
    are needed.
    """
    if not large(value) or not mostly_complete(taps):
        return False
    alone = step.axis if len(axes) <= 2 else None
    strides = step.strides if alone is None else [step.strides[alone]]
    if len(step.shifts) <= FEW_TERMS and min(strides) > 1:
        return True
    ends = [axis for axis, each in zip(axes, taps, strict=True) if each.complete != (0, each.out)]
    return kernels.row(value, ends) >= kernels.WIDE


def _complete(taps: Taps, cut: Cut) -> bool:
    """Whether every element exists at the positions of a region."""
    first, stop = taps.complete
    return first <= cut.first and cut.stop <= stop


def _in_float(step: Step, value: Array, axes: Sequence[int]) -> bool:
    """Whether an index of few taps is found in float32: of bytes, LLVM unrolls loops over rows so short."""
    short = UNROLLED_ROWS[0] <= kernels.row(value, axes) <= UNROLLED_ROWS[1]
    return short and value.dtype == jnp.float32 and len(step.starts) <= UNROLLED_TAPS


def _select_step(
    step: Step,
    value: Array,
    index: Array | None,
    *,
    axes: tuple[int, ...],
    kind: Kind,
    ties: Order,
    dtype: kernels.DType,
    one_step: bool,
) -> tuple[Array, Array]:
    """The best piece at each output of a step, and the flat tap it stands at; None: each element stands at tap 0."""
    narrow = kernels.index_dtype(step.count)
    found_in = jnp.dtype(jnp.float32) if index is None and _in_float(step, value, axes) else narrow
    fill = _fill(dtype, kind, ties)
    taps = _taps_of(step, padded=False)
    cut = _by_regions(taps, step, value, axes)
    inner, outs = _taps.complete_of_all(taps)
    if inner < outs and not cut:
        taps = _taps_of(step, padded=True)
        value = kernels.pad_step(value, axes, step, fill)
        index = None if index is None else kernels.pad_step(index, axes, step, 0)
    grid = _grid(step)
    places = {shift: which for which, shift in enumerate(step.shifts)}
    arrays = [value] if index is None else [value, index.astype(narrow)]
    fills = [fill, np.zeros((), narrow)][: len(arrays)]
    # Of more terms, or in one of several steps, regions at the ends are read from padded copies of their own.
    tested = one_step and len(step.shifts) <= FEW_TERMS

    def region(cuts: list[Cut]) -> tuple[Array, Array]:
        own, own_taps = arrays, taps
        if cut and not tested and not all(map(_complete, taps, cuts)):
            own = [
                padded_part(x, axes, taps, cuts, losing)
                for x, losing in zip(arrays, fills, strict=True)
            ]
            own_taps, cuts = within_part(taps, cuts)
        best: tuple[Array, Array] | None = None
        for tap, (part, *rest), around in pieces(own, axes, own_taps, cuts):
            place = places[tuple(starts[one] for starts, one in zip(grid, tap, strict=True))]
            challenger = kernels.pad(part, axes, around, fill)
            found = lax.full_like(challenger, step.starts[place], found_in)
            if rest:
                found = found + kernels.pad(rest[0], axes, around, 0)
            if best is None:
                best = challenger, found
                continue
            take = _takes(challenger, best[0], kind, ties, dtype)
            best = lax.select(take, challenger, best[0]), lax.select(take, found, best[1])
        if best is not None:
            return best[0], kernels.cast(best[1], narrow)
        nothing = missing(value, axes, cuts, fill)
        return nothing, lax.full_like(nothing, step.starts[-1 if ties == "last" else 0], narrow)

    return put_together(axes, [_taps.cuts([(each,)], int(cut)) for each in taps], region)


def _select_rows(
    step: Step, *found: Array, wanted: int, last: bool, axes: tuple[int, ...], **how: Any
) -> tuple[Array, ...]:
    """The `wanted` first results of `_select_step`, computed once unless it is the last.

    On CPU short rows are parts of long ones there.
    """

    def one(step: Step, axes: tuple[int, ...], value: Array, *index: Array) -> tuple[Array, ...]:
        return _select_step(step, value, *(index or [None]), axes=axes, **how)[:wanted]

    def plain(*found: Array) -> tuple[Array, ...]:
        kernel = functools.partial(one, step, axes)
        return kernel(*found) if last else kernels.materialise(kernel, *found)

    value = found[0]
    long = _long_rows(step, value, axes)
    if long is None:
        return plain(*found)
    axis, merged = long

    def in_long_rows(*found: Array) -> tuple[Array, ...]:
        # Kept apart: XLA would reshape in the loop, and pass over short rows again.
        # Merging or splitting one axis only, which jax 0.10 wants under vmap over a sharded one.
        rest = () if axis == max(axes) else (-1,)
        rows = [each.reshape(*each.shape[:axis], merged.unpadded[0], *rest) for each in found]
        best = kernels.materialise(functools.partial(one, merged, (axis,)), *rows)
        shape = list(value.shape)
        for which, out in zip(axes, step.outs, strict=True):
            shape[which] = out
        return tuple(lax.reshape(each, shape) for each in best)

    return lax.platform_dependent(*found, cpu=in_long_rows, default=plain)


def _long_rows(step: Step, value: Array, axes: Sequence[int]) -> tuple[int, Step] | None:
    """A step over long rows and its axis: all that follows that is one axis, or rows are put end to end; None: neither.

    Not where the type of x says how it is sharded: a reshape would ask for another.
    """
    which = step.axis
    if which is None or not large(value) or kernels.is_sharded(value):
        return None
    axis, one = axes[which], step.along(which)
    row = int(kernels.row(value, axes))  # known, as that of all that is large
    if axis == max(axes):
        most = END_TO_END[1] + (value.dtype.itemsize < 4)
        between = END_TO_END[0] <= row <= most
        return (axis, one.stretched(row)) if one.strides == (1,) and between else None
    most = SHORT_ROW if len(axes) <= 2 else SHORT_ROW_OF_MANY_AXES
    return (axis, one) if SHORTEST_ROW <= row <= most else None


def _takes(challenger: Array, best: Array, kind: Kind, ties: Order, dtype: kernels.DType) -> Array:
    """`wins`, of keys of `dtype`."""
    if _as_integers(dtype, ties):
        # The key of +0 is greater than that of -0: the one in which that would decide becomes +0's.
        if (kind == "max") == (ties == "first"):
            best = _as_if_positive_zero(best)
        else:
            challenger = _as_if_positive_zero(challenger)
    return wins(challenger, best, kind, ties)


def _fill(dtype: kernels.DType, kind: Kind, ties: Order) -> np.ndarray:
    """The key that padding holds, a constant of the program."""
    with jax.ensure_compile_time_eval():
        return np.asarray(sort_key(jnp.asarray(kernels.losing(dtype, kind)), kind, ties))


def _select(x: Array, window: Window, kind: Kind, ties: Order, *, wanted: int) -> tuple[Array, ...]:
    """The keys of each window's extreme, and if two are wanted the flat tap it stands at, padding counted."""
    steps = select_steps(window, forward=True)
    how: dict[str, Any] = {"kind": kind, "ties": ties, "dtype": x.dtype}
    how |= {"axes": window.axes, "wanted": wanted, "one_step": len(steps) == 1}
    found: tuple[Array, ...] = (sort_key(x, kind, ties),)
    for step in steps:
        found = _select_rows(step, *found, last=step is steps[-1], **how)
    return found


def select_value(x: Array, window: Window, kind: Kind, ties: Order) -> Array:
    """Each window's extreme alone."""
    (value,) = _select(x, window, kind, ties, wanted=1)
    return from_sort_key(value, x.dtype, kind, ties)


def select(x: Array, window: Window, kind: Kind, ties: Order) -> tuple[Array, Array]:
    """Each window's extreme and the flat tap it stands at.

    Padding is the least value of the type, so it is chosen only in a window that holds nothing
    greater; the real elements of such a window all tie with it, and the index is moved to the first
    (or last) of those.
    """
    value, index = _select(x, window, kind, ties, wanted=2)
    bound = _real_bound(window, x.ndim, ties)
    if bound is not None:
        index = jnp.minimum(index, bound) if ties == "last" else jnp.maximum(index, bound)
    return from_sort_key(value, x.dtype, kind, ties), index
