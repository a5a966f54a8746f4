"""Sums whose elements are looked up in tables: one loop without bounds to test, where regions and phases are many.

XLA for CPU writes a loop for every region of a result and for every phase of a stride, and LLVM takes
its time over each. Where each entry of a table is good for many neighbours, one loop over them all
is as fast, is compiled in a third of the time, and shares nothing that would be kept in memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool import _kernels as kernels
from jaxpool import _taps
from jaxpool._kernels_regions import missing
from jaxpool._taps import Cut, Phases
from jaxpool._window import is_int

# So many neighbours after the last axis make up for looking up where they begin ...
WIDE_ROW = 24
# ... for up to so many taps, or so many an element of x.
TAPS = 9
TAPS_AN_ELEMENT = 4
# Loops that test bounds at a quarter of the positions lose to it for up to so many taps of a stride's phases.
TAPS_OF_PHASES = 16
# Positions of an axis for which a program may hold tables, at most.
LONGEST = 1 << 14


class End(NamedTuple):
    """What becomes of sums, in the pass that adds them up."""

    divide: Callable[[Array], Array]
    dtype: kernels.DType  # what they are rounded to


def worth_gathering(x: Array, axes: Sequence[int], taps: Sequence[Phases]) -> bool:
    """Whether sums are as fast in one loop as in regions and phases (measured: bench/NOTES.md).

    Not of an array whose type says how it is sharded. Where XLA knows alone, a gather collects sharded pooled axes.
    """
    known = all(map(is_int, x.shape)) and 0 not in x.shape
    if not known or any(part for part in jax.typeof(x).sharding.spec):
        return False
    row = math.prod(x.shape[max(axes) + 1 :])
    longest = max(each[0].out * len(each) for each in taps)
    if row < WIDE_ROW or longest > LONGEST:
        return False
    strides = math.prod(each[0].stride for each in taps)
    phases = math.prod(len(each) for each in taps)
    inner = math.prod(max(0, stop - first) for each in taps for first, stop in [each[0].complete])
    outs = math.prod(each[0].out for each in taps)
    if phases == 1 and (inner == outs or (strides == 1 and 3 * inner < 2 * outs)):
        return False
    most = math.prod(max(len(phase.offsets) for phase in each) for each in taps)
    if phases > 1 and 4 * inner < 3 * outs:
        return most <= TAPS_OF_PHASES
    if len(axes) == 1:
        return False
    return most <= max(TAPS, TAPS_AN_ELEMENT * strides)


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
    for axis, phases in sorted(zip(axes, taps, strict=True), reverse=True):
        terms = []
        for elements, exist in zip(*_taps.tables(phases), strict=True):
            term = kernels.cast(_gather(x, axis, elements), wide)
            if not exist.all():
                shown = lax.broadcast_in_dim(exist, term.shape, (axis,))
                term = lax.select(shown, term, lax.full_like(term, 0))
            terms.append(term)
        x = functools.reduce(lax.add, terms)
    return _row_major(_rounded(end.divide(x), end.dtype) if end else x, min(axes))


def _gather(x: Array, axis: int, elements: np.ndarray) -> Array:
    """The elements of an axis that a vector of positions names."""
    sizes = [1 if a == axis else size for a, size in enumerate(x.shape)]
    others = tuple(a for a in range(x.ndim) if a != axis)
    numbers = lax.GatherDimensionNumbers(others, (axis,), (axis,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, elements[:, None], numbers, sizes, mode=mode)


def _row_major(x: Array, axis: int) -> Array:
    """x, gathered along `axis` last, laid out as it is indexed.

    XLA puts the axis of a gather first, and for one of several results it may leave it there and add a copy
    (jax 0.10 and 0.12). The axes before it are merged with it: that keeps them first.
    """
    if axis == 0:
        return x
    merged = lax.reshape(x, (math.prod(x.shape[: axis + 1]), *x.shape[axis + 1 :]))
    return lax.reshape(lax.optimization_barrier(merged), x.shape)


def _rounded(x: Array, dtype: kernels.DType) -> Array:
    """x in `dtype`. XLA for CPU rounds to bfloat16 slower than it adds up 9 elements: that is done by bits."""
    if not (x.dtype == jnp.float32 and dtype == jnp.bfloat16):
        return x.astype(dtype)
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    high = lax.shift_right_logical(bits, np.uint32(16))
    nearest = lax.shift_right_logical(
        bits + np.uint32(0x7FFF) + (high & np.uint32(1)), np.uint32(16)
    )
    quiet = high | np.uint32(0x40)  # a NaN stays one
    return lax.bitcast_convert_type(lax.select(x != x, quiet, nearest).astype(jnp.uint16), dtype)
