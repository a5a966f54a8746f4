"""Passes that look elements up through tables of positions: one loop, where regions and phases are many.

XLA for CPU writes a loop for every region of a result and for every phase of a stride, and LLVM takes
its time over each. Where each entry of a table serves many neighbours, one loop over them all is as
fast, compiles in a third of the time, and needs no array between its terms.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import Phases, Table, tables, terms
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator, cast, index_dtype
from jaxpool._plan.steps import Step


def _read(x: Array, axis: int, elements: np.ndarray) -> Array:
    """The elements of an axis that a vector of positions names."""
    sizes = [1 if a == axis else size for a, size in enumerate(x.shape)]
    others = tuple(a for a in range(x.ndim) if a != axis)
    numbers = lax.GatherDimensionNumbers(others, (axis,), (axis,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, elements[:, None], numbers, sizes, mode=mode)


def unfolded(x: Array) -> Array:
    """x, which XLA does not see to be a constant while it folds constants.

    Else it evaluates every lookup in a constant, such as the cotangent of a sum, element by element while it
    compiles. XLA for CPU drops the barrier before it fuses, so the producer of x still fuses into the lookups.
    """
    return lax.optimization_barrier(x)


def row_major(x: Array, axis: int) -> Array:
    """x, gathered along `axis` last, laid out as it is indexed.

    XLA puts the axis of a gather first, and for one of several results it may leave it there and add a copy
    (jax 0.10 and 0.12). The axes before it are merged with it: that keeps them first.
    """
    if axis == 0:
        return x
    merged = lax.reshape(x, (math.prod(x.shape[: axis + 1]), *x.shape[axis + 1 :]))
    return lax.reshape(lax.optimization_barrier(merged), x.shape)


def rounded(x: Array, dtype: DType) -> Array:
    """x in `dtype`, bfloat16 without branches: else XLA for CPU rounds slower than it adds up 9 elements."""
    if (x.dtype, dtype) != (jnp.float32, jnp.bfloat16):
        return cast(x, dtype)
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    high = lax.shift_right_logical(bits, np.uint32(16))
    half_to_even = bits + np.uint32(0x7FFF) + (high & np.uint32(1))
    nearest = lax.shift_right_logical(half_to_even, np.uint32(16))
    quiet = high | np.uint32(0x40)  # a NaN stays one
    chosen = lax.select(x != x, quiet, nearest).astype(jnp.uint16)
    return lax.bitcast_convert_type(chosen, jnp.bfloat16)


def sums(x: Array, axes: Sequence[int], phases: Sequence[Phases]) -> Array:
    """At each position of all phases the sum of its elements, one axis after the other in one loop."""
    x = unfolded(x)
    for axis, each in reversed([*zip(axes, phases, strict=True)]):
        found = []
        for elements, _, exist in tables(each):
            term = cast(_read(x, axis, elements), accumulator(x.dtype))
            if not exist.all():
                term = slices.only(lax.broadcast_in_dim(exist, term.shape, (axis,)), term)
            found.append(term)
        x = functools.reduce(lax.add, found)
    return x


def _windows(index: Array, step: Step) -> Iterator[tuple[Callable[[Array], Array], Array, Array]]:
    """Of each of the windows that cover a position, for all positions at once: how it is read, and what it chose.

    That is, a function that reads an array at the window; its index less the tap at which it holds
    the position; and whether it chose the position, which is where that is less than `step.reach`.
    """
    none = step.count  # for windows that do not exist, a tap that none chose
    # Unsigned: an index below the tap wraps around to more than any reach.
    dtype = index_dtype(len(step.axes) * none + step.reach)
    for choice in itertools.product(*map(tables, step.transposed)):
        columns = dict(zip(step.axes, choice, strict=True))

        def read(x: Array, columns: dict[int, Table] = columns) -> Array:
            for axis in sorted(columns, reverse=True):  # the minor axis first
                x = _read(x, axis, columns[axis][0])
            return x

        within = cast(read(index), dtype)
        for axis, (_, taps, exist) in columns.items():
            tap = slices.along(np.where(exist, taps, none).astype(dtype), axis, index.ndim)
            within = within - jnp.broadcast_to(jnp.asarray(tap), within.shape)
        limit = lax.full_like(within, 0 if step.reach == 1 else step.reach)
        yield read, within, (lax.eq if step.reach == 1 else lax.lt)(within, limit)


def sent(dy: Array, index: Array, step: Step, dtype: DType) -> Array:
    """The sum of what the windows that cover each element send it, in `dtype`.

    `index` holds the flat tap that each window chose: all windows that chose an element along the
    first axes agree on where along the others it lies.
    """
    alone = all(terms(phases) <= 1 for phases in step.transposed)
    if dy.dtype == dtype == jnp.float16 and alone:
        # What is sent as it is passes for bfloat16, which is rounded faster; of NaNs the payload may change.
        bits = lax.bitcast_convert_type(dy, jnp.bfloat16)
        return lax.bitcast_convert_type(sent(bits, index, step, jnp.bfloat16), jnp.float16)
    wide = accumulator(dy.dtype)
    dy, index = unfolded(dy), unfolded(index)
    found = [cast(slices.only(chose, read(dy)), wide) for read, _, chose in _windows(index, step)]
    return row_major(rounded(functools.reduce(lax.add, found), dtype), min(step.axes))


def lowered(index: Array, step: Step) -> Array:
    """The taps along the later axes that are chosen at each position; 0 where none is."""
    dtype = index_dtype(step.reach)
    index = unfolded(index)
    taps = [slices.only(chose, by).astype(dtype) for _, by, chose in _windows(index, step)]
    return row_major(functools.reduce(lax.max, taps), min(step.axes))
