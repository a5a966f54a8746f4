"""Cotangents of maxima looked up in tables: an input reads what the windows that cover it send to it.

XLA for CPU writes a loop for every phase of a stride, and puts the phases together in passes of
their own where there are many. Here it writes one loop over the input, in which each of the few
windows that cover a position is looked up: its cotangent, and whether it chose this position.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry import taps as _taps
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.dense import End
from jaxpool._kernels.gather import WIDE_ROW, can_gather, gather_along, row_major
from jaxpool._kernels.phases import reads_in_place
from jaxpool._plan.steps import select_steps

# One loop over several axes looks up so many windows a position, ...
FEW_WINDOWS = 8
# ... so many where each position begins one, and nothing is smaller between two loops, ...
FEW_WITHOUT_STRIDES = 9
# ... and so many along one axis.
MOST_WINDOWS = 11
# Neighbours after the last axis that make up for looking up few windows of narrow floats; else `WIDE_ROW`.
WIDE_ROW_OF_NARROW_FLOATS = 8
# From so many on, phases that are read where they are, are as fast.
WIDE_PHASES = 24
# Windows that do not meet, of up to so many taps, are as fast phase by phase; of narrow floats in narrow rows alone.
FEW_TAPS = 8

Group = tuple[Axis, ...]  # axes that one loop goes over
# Along an axis: a window that covers each position, and its tap there.
Column = tuple[np.ndarray, np.ndarray]


def _covering(dim: Axis) -> int:
    """How many windows cover a position along an axis, at most."""
    return max(1, *[len(phase.offsets) for phase in _taps.of_inputs(dim)])


def _size(group: Group) -> int:
    return math.prod(dim.window for dim in group)


def groups_looked_up(dy: Array, window: Window) -> list[Group]:
    """The axes of each loop, the major ones first; none where phases are as fast, or tables do not serve.

    Measured: bench/NOTES.md.
    """
    phases = [_taps.of_inputs(dim) for dim in window.dims]
    if 0 in window.input_shape or not window.dims or not can_gather(dy, phases):
        return []
    strided = any(dim.stride > 1 for dim in window.dims)
    few = FEW_WINDOWS if strided else FEW_WITHOUT_STRIDES
    groups: list[Group] = []
    for dim in window.dims:
        if groups and math.prod(map(_covering, (*groups[-1], dim))) <= few:
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    most = max(math.prod(map(_covering, group)) for group in groups)
    return groups if _worth(dy, window, len(groups), most) else []


def _worth(dy: Array, window: Window, loops: int, most: int) -> bool:
    row = kernels.row(dy, window.axes)
    narrow = kernels.is_narrow_float(dy.dtype)
    if most == 1:
        return window.size > FEW_TAPS or (narrow and row >= kernels.WIDE)
    least = WIDE_ROW_OF_NARROW_FLOATS if narrow and most <= FEW_WINDOWS else WIDE_ROW
    if most > MOST_WINDOWS or row < least:
        return False
    if narrow or loops > 1:
        return True
    if all(dim.stride == 1 for dim in window.dims):
        return False
    step, *later = select_steps(window)
    return row < WIDE_PHASES or bool(later) or not reads_in_place(step, window.axes)


def looked_up_route(dy: Array, index: Array, groups: Sequence[Group]) -> Array:
    """Each element of dy added to the position its window chose, one loop a group of axes.

    `index` holds the flat tap that each window chose, as `select` gives it: all windows that chose
    an element along the first axes agree on where along the others it lies. Between two loops the
    taps along those remain.
    """
    dx, dtype = dy, dy.dtype
    unit = _size(tuple(itertools.chain(*groups)))
    for group in groups[:-1]:
        unit //= _size(group)
        sent = functools.partial(_sent, group=group, unit=unit, end=None)
        rest = functools.partial(_rest, group=group, unit=unit)
        dx, index = kernels.materialise(sent, dx, index), kernels.materialise(rest, index)
    sent = functools.partial(_sent, group=groups[-1], unit=1, end=End(dtype))
    return kernels.materialise(sent, dx, index)


def _columns(dim: Axis, unit: int, none: int) -> list[Column]:
    """The windows that cover each position of an axis, and its tap in them times `unit`; `none` where none does."""
    windows, exist = _taps.tables(_taps.of_inputs(dim))
    taps = (np.arange(dim.size) + dim.low - windows * dim.stride) // dim.dilation * unit
    return [*zip(windows, np.where(exist, taps, none), strict=True)]


def _seen(x: Array, group: Group, columns: Sequence[Column]) -> Array:
    """x at a window for each position, the minor axis looked up first."""
    pairs = sorted(zip(group, columns, strict=True), key=lambda pair: -pair[0].axis)
    for dim, (windows, _) in pairs:
        x = gather_along(x, dim.axis, windows)
    return x


def _terms(
    index: Array,
    group: Group,
    unit: int,
    term: Callable[[Sequence[Column], Array], Array],
) -> list[Array]:
    """What each window that covers a position gives it: `term` where it chose it, else 0.

    `unit` taps of the later groups stand at each position. `term` takes the window and which of those it
    chose. Indices are unsigned, and of those that lie before a position the difference wraps beyond `unit`,
    as it does where there is no such window.
    """
    none = _size(group) * unit
    dtype = kernels.index_dtype(len(group) * none + unit)
    columns, rest = [], none
    for dim in group:
        rest //= dim.window
        columns.append(_columns(dim, rest, none))
    terms = []
    for choice in itertools.product(*columns):
        chosen = kernels.cast(_seen(index, group, choice), dtype)
        for dim, (_, taps) in zip(group, choice, strict=True):
            first = kernels.along(taps.astype(dtype), dim.axis, index.ndim)
            chosen = chosen - jnp.broadcast_to(jnp.asarray(first), chosen.shape)
        limit = lax.full_like(chosen, 0 if unit == 1 else unit)
        here = lax.eq(chosen, limit) if unit == 1 else lax.lt(chosen, limit)
        given = term(choice, chosen)
        terms.append(lax.select(here, given, lax.full_like(given, 0)))
    return terms


def _sent(dy: Array, index: Array, group: Group, unit: int, end: End | None) -> Array:
    """The sum of what is sent to each position, as `end` says if this is the last loop.

    In the type of sums, where nothing is added too: loops over 16-bit numbers vectorise less.
    """
    if dy.dtype == jnp.float16 and math.prod(map(_covering, group)) == 1:
        # What is sent as it is passes for bfloat16, which is rounded faster; of NaNs the payload may change.
        bits = lax.bitcast_convert_type(dy, jnp.bfloat16)
        sent = _sent(bits, index, group, unit, End(jnp.bfloat16))
        return lax.bitcast_convert_type(sent, jnp.float16)
    terms = _terms(index, group, unit, lambda windows, _: _seen(dy, group, windows))
    wide = kernels.accumulator(dy.dtype)
    total = functools.reduce(lax.add, [kernels.cast(term, wide) for term in terms])
    return row_major(kernels.finished(total, end, by_bits=True), min(dim.axis for dim in group))


def _rest(index: Array, group: Group, unit: int) -> Array:
    """The taps along the later axes that are chosen at each position of `group`; 0 where none is."""
    dtype = kernels.index_dtype(unit)
    terms = _terms(index, group, unit, lambda _, chosen: chosen.astype(dtype))
    return row_major(functools.reduce(lax.max, terms), min(dim.axis for dim in group))
