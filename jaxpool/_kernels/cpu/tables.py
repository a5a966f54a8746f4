"""Passes that gather elements through tables of positions, in one loop instead of many regions and phases.

XLA for CPU writes a loop for every region of a result and for every phase of a stride, and LLVM compiles each loop
slowly. If each table entry serves many neighbours, a single loop is as fast, compiles in a third of the time, and
stores no intermediate array.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import GatherTable, Phases, gather_tables, max_elements_per_position
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, index_dtype
from jaxpool._plan.steps import Step


def _gather_along_axis(x: Array, axis: int, positions: np.ndarray) -> Array:
    """Gather elements along an axis at a vector of `positions`."""
    sizes = [1 if a == axis else size for a, size in enumerate(x.shape)]
    others = tuple(a for a in range(x.ndim) if a != axis)
    numbers = lax.GatherDimensionNumbers(others, (axis,), (axis,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, positions[:, None], numbers, sizes, mode=mode)


def prevent_constant_folding(x: Array) -> Array:
    """Hide a constant x from constant folding.

    XLA would otherwise evaluate each gather from a constant, such as the cotangent of a sum, element by element
    during compilation. XLA for CPU drops the barrier before it fuses, so the producer of x still fuses.
    """
    return lax.optimization_barrier(x)


def with_row_major_layout(x: Array, gather_axis: int) -> Array:
    """x, whose last gather was along `gather_axis`, in row-major layout.

    XLA puts the axis of a gather first. For one of several results it may keep this layout and add a copy (jax 0.10
    and 0.12). Merging `gather_axis` with the axes before it prevents this.
    """
    if gather_axis == 0:
        return x
    merged = lax.reshape(x, (math.prod(x.shape[: gather_axis + 1]), *x.shape[gather_axis + 1 :]))
    return lax.reshape(lax.optimization_barrier(merged), x.shape)


def cast_without_branches(x: Array, dtype: DType) -> Array:
    """Cast x to `dtype`, to bfloat16 without branches: XLA's rounding on CPU is slower than the sum of 9 elements."""
    if (x.dtype, dtype) != (jnp.float32, jnp.bfloat16):
        return cast(x, dtype)
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    high = lax.shift_right_logical(bits, np.uint32(16))
    half_to_even = bits + np.uint32(0x7FFF) + (high & np.uint32(1))
    nearest = lax.shift_right_logical(half_to_even, np.uint32(16))
    quiet = high | np.uint32(0x40)  # a NaN stays one
    chosen = lax.select(x != x, quiet, nearest).astype(jnp.uint16)
    return lax.bitcast_convert_type(chosen, jnp.bfloat16)


def sum_by_gather_tables(x: Array, axes: Sequence[int], phases_per_axis: Sequence[Phases]) -> Array:
    """Sum of the elements that each position of all phases reads, over all axes in one loop."""
    x = prevent_constant_folding(x)
    for axis, each in reversed([*zip(axes, phases_per_axis, strict=True)]):
        parts = []
        for elements, _, exist in gather_tables(each):
            term = cast(_gather_along_axis(x, axis, elements), accumulator_dtype(x.dtype))
            if not exist.all():
                term = slices.where_or_zero(lax.broadcast_in_dim(exist, term.shape, (axis,)), term)
            parts.append(term)
        x = functools.reduce(lax.add, parts)
    return x


def _windows_covering_positions(
    index: Array, step: Step
) -> Iterator[tuple[Callable[[Array], Array], Array, Array]]:
    """Yield (gather_at_window, within, chose) for each window that covers a position, for all positions at once.

    `gather_at_window` gathers an array at the window, and `within` is the index of the window minus its tap at
    the position. The window selected the position where `within` is less than `step.reach`, which is the mask `chose`.
    """
    none = step.count  # tap of windows that do not exist; never selected
    # Unsigned, so that an index below the tap wraps around to a value above `step.reach`.
    dtype = index_dtype(len(step.axes) * none + step.reach)
    for choice in itertools.product(*map(gather_tables, step.transposed)):
        table_of_axis = dict(zip(step.axes, choice, strict=True))

        def gather_at_window(
            x: Array, table_of_axis: dict[int, GatherTable] = table_of_axis
        ) -> Array:
            for axis in sorted(table_of_axis, reverse=True):  # minor axis first
                x = _gather_along_axis(x, axis, table_of_axis[axis][0])
            return x

        within = cast(gather_at_window(index), dtype)
        for axis, (_, taps, exist) in table_of_axis.items():
            tap = slices.reshape_along_axis(
                np.where(exist, taps, none).astype(dtype), axis, index.ndim
            )
            within = within - jnp.broadcast_to(jnp.asarray(tap), within.shape)
        limit = lax.full_like(within, 0 if step.reach == 1 else step.reach)
        yield gather_at_window, within, (lax.eq if step.reach == 1 else lax.lt)(within, limit)


def sum_dy_of_selecting_windows(dy: Array, index: Array, step: Step, dtype: DType) -> Array:
    """Sum of dy over the windows that selected each element, in `dtype`.

    `index` holds the flat tap that each window selected. All windows that selected an element along the first axes
    agree on its tap along the other axes.
    """
    alone = all(max_elements_per_position(phases) <= 1 for phases in step.transposed)
    if dy.dtype == dtype == jnp.float16 and alone:
        # Each element gets at most one cotangent, so nothing is summed and any 16-bit dtype will do. XLA converts
        # bfloat16 faster than float16. The payload of NaN may change.
        bits = lax.bitcast_convert_type(dy, jnp.bfloat16)
        return lax.bitcast_convert_type(
            sum_dy_of_selecting_windows(bits, index, step, jnp.bfloat16), jnp.float16
        )
    wide = accumulator_dtype(dy.dtype)
    dy, index = prevent_constant_folding(dy), prevent_constant_folding(index)
    parts = [
        cast(slices.where_or_zero(chose, read(dy)), wide)
        for read, _, chose in _windows_covering_positions(index, step)
    ]
    return with_row_major_layout(
        cast_without_branches(functools.reduce(lax.add, parts), dtype), min(step.axes)
    )


def index_before_step(index: Array, step: Step) -> Array:
    """Selected tap along the later axes at each position; 0 where no window selected the position."""
    dtype = index_dtype(step.reach)
    index = prevent_constant_folding(index)
    taps = [
        slices.where_or_zero(chose, by).astype(dtype)
        for _, by, chose in _windows_covering_positions(index, step)
    ]
    return with_row_major_layout(functools.reduce(lax.max, taps), min(step.axes))
