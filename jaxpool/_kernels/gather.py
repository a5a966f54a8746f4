"""Sums whose elements are looked up in tables: one loop without bounds to test, where regions and phases are many.

XLA for CPU writes a loop for every region of a result and for every phase of a stride, and LLVM takes
its time over each. Where each entry of a table is good for many neighbours, one loop over them all
is as fast, is compiled in a third of the time, and shares nothing that would be kept in memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry import taps as _taps
from jaxpool._geometry.taps import Cut, Phases
from jaxpool._geometry.window import is_int
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.dense import End
from jaxpool._kernels.regions import missing

# So many neighbours after the last axis make up for looking up where they begin, in phases of up to two axes more, ...
WIDE_ROW = 12
WIDE_ROW_OF_PHASES = 20
# ... for up to so many taps, or forwards so many an element of x.
GATHERED_TAPS = 9
GATHERED_TAPS_AN_ELEMENT = 4
# Cotangents of strided windows win from this share of positions at the ends on, for up to so many taps a phase.
MANY_ENDS = 1 / 4
TAPS_OF_MANY_ENDS = 16
# Without strides regions win from this share on.
MOSTLY_ENDS = 1 / 3
# Of three axes and more regions lose up to so many taps: of phases, or whose ends are long, over short rows too.
TAPS_OF_MANY_AXES = 27
TESTED_ROW = 4
# Positions of an axis for which a program may hold tables, at most.
LONGEST_TABLE = 1 << 14


def can_gather(x: Array, taps: Sequence[Phases]) -> bool:
    """Whether elements of x may be looked up: not where its type says how it is sharded.

    Where XLA alone knows, a gather collects pooled axes that are sharded, and what it gives is not sharded.
    """
    if not all(map(is_int, x.shape)) or kernels.is_sharded(x):
        return False
    return all(each[0].out * len(each) <= LONGEST_TABLE for each in taps)


def worth_gathering(x: Array, axes: Sequence[int], taps: Sequence[Phases]) -> bool:
    """Whether sums can be looked up and are as fast so as in regions and phases (measured: bench/NOTES.md)."""
    strided = any(each[0].stride > 1 for each in taps)
    spread = any(len(each) > 1 for each in taps)  # the transpose of strided sums
    many = len(axes) > 2
    tested = many and long_ends(taps)
    wide_phases = spread and not many and not kernels.is_narrow_float(x.dtype)
    least = TESTED_ROW if tested else WIDE_ROW_OF_PHASES if wide_phases else WIDE_ROW
    if not can_gather(x, taps) or kernels.row(x, axes) < least:
        return False
    most = math.prod(max(len(phase.offsets) for phase in each) for each in taps)
    if many and (spread or tested):
        return most <= TAPS_OF_MANY_AXES
    inner, outs = _taps.complete_of_all([each[0] for each in taps])
    ends = 1 - inner / outs
    if not spread and (ends == 0 or (not strided and ends > MOSTLY_ENDS)):
        return False
    if spread and ends > MANY_ENDS:
        return most <= TAPS_OF_MANY_ENDS
    strides = math.prod(each[0].stride for each in taps)
    return len(axes) > 1 and most <= max(GATHERED_TAPS, GATHERED_TAPS_AN_ELEMENT * strides)


def long_ends(taps: Sequence[Phases]) -> bool:
    """Whether sums without strides have an end of several positions: a region of those may test bounds."""
    ends = [each[0].complete for each in taps]
    several = any(
        max(first, each[0].out - stop) > 1 for each, (first, stop) in zip(taps, ends, strict=True)
    )
    return several and all(len(each) == 1 and each[0].stride == 1 for each in taps)


def kept_sums(
    x: Array, axes: Sequence[int], taps: Sequence[Phases], end: End | None = None
) -> Array:
    """`gathered_sums` on CPU, computed once: else every tap would compute again what x is made of.

    A branch of a conditional as of `kernels.materialise`, whose result has a known shape.
    """
    whole = [Cut(0, sum(phase.out for phase in each), 1) for each in taps]
    dtype = end.dtype if end else kernels.accumulator(x.dtype)

    def summed(x: Array) -> Array:
        return gathered_sums(x, axes, taps, end)

    def unused(x: Array) -> Array:
        return missing(x, axes, whole, 0).astype(dtype)

    taken = lax.optimization_barrier(jnp.asarray(True))
    return lax.optimization_barrier(lax.cond(taken, summed, unused, x))


def gathered_sums(
    x: Array, axes: Sequence[int], taps: Sequence[Phases], end: End | None = None
) -> Array:
    """At each position of all phases the sum of its elements, one axis after the other in one loop."""
    wide = kernels.accumulator(x.dtype)
    for axis, phases in reversed([*zip(axes, taps, strict=True)]):
        terms = []
        for elements, exist in zip(*_taps.tables(phases), strict=True):
            term = kernels.cast(gather_along(x, axis, elements), wide)
            if not exist.all():
                shown = lax.broadcast_in_dim(exist, term.shape, (axis,))
                term = lax.select(shown, term, lax.full_like(term, 0))
            terms.append(term)
        x = functools.reduce(lax.add, terms)
    return row_major(kernels.finished(x, end, by_bits=True), axes[0])


def gather_along(x: Array, axis: int, elements: np.ndarray) -> Array:
    """The elements of an axis that a vector of positions names."""
    sizes = [1 if a == axis else size for a, size in enumerate(x.shape)]
    others = tuple(a for a in range(x.ndim) if a != axis)
    numbers = lax.GatherDimensionNumbers(others, (axis,), (axis,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, elements[:, None], numbers, sizes, mode=mode)


def row_major(x: Array, axis: int) -> Array:
    """x, gathered along `axis` last, laid out as it is indexed.

    XLA puts the axis of a gather first, and for one of several results it may leave it there and add a copy
    (jax 0.10 and 0.12). The axes before it are merged with it: that keeps them first.
    """
    if axis == 0:
        return x
    merged = lax.reshape(x, (math.prod(x.shape[: axis + 1]), *x.shape[axis + 1 :]))
    return lax.reshape(lax.optimization_barrier(merged), x.shape)
