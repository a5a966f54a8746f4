"""Cotangents of maxima looked up in tables: an input reads what the windows that cover it send to it.

XLA for CPU writes a loop for every phase of a stride, and puts the phases together in passes of
their own where there are many. Here it writes one loop over the input, in which each of the few
windows that cover a position is looked up: its cotangent, and whether it chose this position.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool import _kernels as kernels
from jaxpool import _taps
from jaxpool._kernels import End
from jaxpool._kernels_gather import can_gather, gather_along, row_major
from jaxpool._window import Axis, Window

# One loop over several axes looks up so many windows a position, ...
FEW_WINDOWS = 4
# ... so many where each position begins one, and nothing is smaller between two loops, ...
FEW_WITHOUT_STRIDES = 9
# ... and so many along one axis.
MOST_WINDOWS = 11
# So many neighbours after the last axis make up for looking up where they begin, of few 16-bit floats fewer.
WIDE_ROW = 12
WIDE_ROW_OF_NARROW_FLOATS = 8
# From so many on, phases that are read where they are, are as fast.
WIDE_PHASES = 24
# Windows that do not meet, of up to so many taps, are as fast phase by phase; bfloat16 is not.
FEW_TAPS = 8

Pass = tuple[Axis, ...]


def _covering(dim: Axis) -> int:
    """How many windows cover a position along an axis, at most."""
    return max(len(phase.offsets) for phase in _taps.of_inputs(dim))


def passes(window: Window) -> list[Pass]:
    """The axes of each loop, the major ones first."""
    strided = any(dim.stride > 1 for dim in window.dims)
    few = FEW_WINDOWS if strided else FEW_WITHOUT_STRIDES
    groups: list[Pass] = []
    for dim in window.dims:
        group = (*groups[-1], dim) if groups else (dim,)
        if groups and math.prod(map(_covering, group)) <= few:
            groups[-1] = group
        else:
            groups.append((dim,))
    return groups


def worth_looking_up(dy: Array, window: Window, *, in_place: bool) -> bool:
    """Whether cotangents can be looked up and are faster so than phase by phase (measured: bench/NOTES.md).

    `in_place`: whether phases are read where they are, not from padded copies.
    """
    if not window.dims or 0 in window.input_shape:
        return False
    if not can_gather(dy, [_taps.of_inputs(dim) for dim in window.dims]):
        return False
    groups = passes(window)
    most = max(math.prod(map(_covering, group)) for group in groups)
    row = math.prod(dy.shape[max(window.axes) + 1 :])
    if most == 1:
        return window.size > FEW_TAPS or (dy.dtype == jnp.bfloat16 and row >= kernels.WIDE)
    narrow_float = dy.dtype != kernels.accumulator(dy.dtype)
    least = WIDE_ROW_OF_NARROW_FLOATS if narrow_float and most <= FEW_WINDOWS else WIDE_ROW
    if most > MOST_WINDOWS or row < least:
        return False
    if narrow_float or len(groups) > 1:
        return True
    strided = any(dim.stride > 1 for dim in window.dims)
    return strided and not (in_place and row >= WIDE_PHASES)


def looked_up_route(dy: Array, index: Array, groups: Sequence[Pass]) -> Array:
    """Each element of dy added to the position its window chose, `index` being the flat tap of it, a pass a group.

    All windows that chose an element along the major axes agree on where along the others it lies:
    the taps along those remain, joined by max.
    """
    dx = dy
    unit = math.prod(dim.window for group in groups for dim in group)
    for group in groups[:-1]:
        unit //= math.prod(dim.window for dim in group)
        sent = functools.partial(_sent, group=group, unit=unit, end=None)
        dx, index = (
            kernels.materialise(sent, dx, index),
            kernels.materialise(functools.partial(_rest, group=group, unit=unit), index),
        )
    sent = functools.partial(_sent, group=groups[-1], unit=1, end=End(dy.dtype))
    return kernels.materialise(sent, dx, index)


def _terms(group: Pass, ndim: int) -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Of each window that covers a position: which it is along each axis, and its tap there, flat, or one too many."""
    columns = []
    for dim in group:
        windows, exist = _taps.tables(_taps.of_inputs(dim))
        taps = (np.arange(dim.size) + dim.low - windows * dim.stride) // dim.dilation
        columns.append([*zip(windows, np.where(exist, taps, -1), strict=True)])
    size = math.prod(dim.window for dim in group)
    found = []
    for choice in itertools.product(*columns):
        flat, exists = np.zeros((1,) * ndim, np.int64), np.ones((1,) * ndim, np.bool_)
        for dim, (_, taps) in zip(group, choice, strict=True):
            tap = kernels.along(taps, dim.axis, ndim)
            flat, exists = flat * dim.window + tap, exists & (tap >= 0)
        found.append(([windows for windows, _ in choice], np.where(exists, flat, size)))
    return found


def _seen(x: Array, group: Pass, windows: Sequence[np.ndarray]) -> Array:
    """x at a window for each position, the minor axis first."""
    columns = sorted(zip(group, windows, strict=True), key=lambda column: -column[0].axis)
    for dim, at in columns:
        x = gather_along(x, dim.axis, at)
    return x


def _below(
    index: Array, group: Pass, windows: Sequence[np.ndarray], tap: np.ndarray, unit: int
) -> Array:
    """How far the index of a window lies above the first tap of a position, of `unit`; beyond them it wraps."""
    size = math.prod(dim.window for dim in group) * unit
    dtype = kernels.index_dtype(size + unit)
    seen = _seen(kernels.cast(index, dtype), group, windows)
    return seen - jnp.broadcast_to(jnp.asarray((tap * unit).astype(dtype)), seen.shape)


def _within(below: Array, unit: int) -> Array:
    if unit == 1:
        return lax.eq(below, lax.full_like(below, 0))
    return lax.lt(below, lax.full_like(below, unit))


def _sent(dy: Array, index: Array, group: Pass, unit: int, end: End | None) -> Array:
    terms = []
    for windows, tap in _terms(group, dy.ndim):
        here = _within(_below(index, group, windows, tap, unit), unit)
        term = _seen(dy, group, windows)
        terms.append(lax.select(here, term, lax.full_like(term, 0)))
    if len(terms) > 1:
        terms = [kernels.cast(term, kernels.accumulator(dy.dtype)) for term in terms]
    total = functools.reduce(lax.add, terms)
    return row_major(kernels.finished(total, end, by_bits=True), min(dim.axis for dim in group))


def _rest(index: Array, group: Pass, unit: int) -> Array:
    """The taps along the other axes that are chosen at each position of `group`; 0 where none is."""
    dtype = kernels.index_dtype(unit)
    terms = []
    for windows, tap in _terms(group, index.ndim):
        below = _below(index, group, windows, tap, unit)
        here = _within(below, unit)
        terms.append(lax.select(here, below, lax.full_like(below, 0)).astype(dtype))
    return row_major(functools.reduce(lax.max, terms), min(dim.axis for dim in group))
