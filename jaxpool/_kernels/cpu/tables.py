"""Passes that gather elements through tables of positions, in one loop instead of many regions and phases.

XLA for CPU writes a loop for every region of a result and for every phase of a stride, and LLVM compiles each loop
slowly. If each table entry serves many neighbouring elements, a single loop with tables is as fast, compiles in a third
of the time, and stores no intermediate array.
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
from jaxpool._kernels.clamped import gather_along_axis
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, full_like, index_dtype
from jaxpool._plan.problem import Step


def prevent_constant_folding(x: Array) -> Array:
    """Hide x from XLA's constant folding, which evaluates gathers from a constant element by element.

    XLA for CPU drops the barrier before it fuses, so the producer of x still fuses.
    """
    return lax.optimization_barrier(x)


def with_row_major_layout(x: Array, gather_axis: int) -> Array:
    """Return x, the result of a gather along `gather_axis`, in row-major layout.

    XLA puts the axis of a gather first in memory. For one of several results, XLA may keep this layout and add a copy
    (jax 0.10 and 0.12). Merging `gather_axis` with all axes before `gather_axis` prevents the copy.
    """
    if gather_axis == 0:
        return x
    merged = lax.reshape(x, (math.prod(x.shape[: gather_axis + 1]), *x.shape[gather_axis + 1 :]))
    return lax.reshape(lax.optimization_barrier(merged), x.shape)


def cast_without_branches(x: Array, dtype: DType) -> Array:
    """Cast x to `dtype`. The cast to bfloat16 has no branches: XLA's cast on CPU is slower than a sum of 9 elements."""
    if (x.dtype, dtype) != (jnp.float32, jnp.bfloat16):
        return cast(x, dtype)
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    upper_bits = lax.shift_right_logical(bits, np.uint32(16))
    rounded_bits = bits + np.uint32(0x7FFF) + (upper_bits & np.uint32(1))
    nearest = lax.shift_right_logical(rounded_bits, np.uint32(16))
    nan_bits = upper_bits | np.uint32(0x40)  # a NaN stays NaN
    result_bits = lax.select(x != x, nan_bits, nearest).astype(jnp.uint16)
    return lax.bitcast_convert_type(result_bits, jnp.bfloat16)


def sum_by_gather_tables(x: Array, axes: Sequence[int], axis_phases: Sequence[Phases]) -> Array:
    """Sum of the elements that each output position reads, over all axes and phases in one loop."""
    x = prevent_constant_folding(x)
    for axis, phases in reversed([*zip(axes, axis_phases, strict=True)]):
        parts = []
        for elements, _, exist in gather_tables(phases):
            term = cast(gather_along_axis(x, axis, elements), accumulator_dtype(x.dtype))
            if not exist.all():
                term = slices.where_or_zero(lax.broadcast_in_dim(exist, term.shape, (axis,)), term)
            parts.append(term)
        x = functools.reduce(lax.add, parts)
    return x


def _covering_windows(
    index: Array, step: Step
) -> Iterator[tuple[Callable[[Array], Array], Array, Array]]:
    """Yield (gather_at_window, tap_difference, is_selected) for each window that covers a position, for all positions.

    `tap_difference` is the tap that the window selected minus the tap of the position. The window selected the position
    if `tap_difference` is less than `step.piece_taps`.
    """
    no_tap = step.num_flat_taps  # tap of windows that do not exist, which is never selected
    # Unsigned, so that a selected tap below the position's tap wraps around to a value above `step.piece_taps`.
    dtype = index_dtype(len(step.axes) * no_tap + step.piece_taps)
    for tables in itertools.product(*map(gather_tables, step.transposed_phases)):
        axis_tables = dict(zip(step.axes, tables, strict=True))

        def gather_at_window(x: Array, axis_tables: dict[int, GatherTable] = axis_tables) -> Array:
            for axis in sorted(axis_tables, reverse=True):  # minor axis first
                x = gather_along_axis(x, axis, axis_tables[axis][0])
            return x

        tap_difference = cast(gather_at_window(index), dtype)
        for axis, (_, taps, exist) in axis_tables.items():
            table = np.where(exist, taps, no_tap).astype(dtype)
            tap = jnp.asarray(slices.reshape_along_axis(table, axis, index.ndim))
            tap_difference = tap_difference - jnp.broadcast_to(tap, tap_difference.shape)
        compare, limit = (lax.eq, 0) if step.piece_taps == 1 else (lax.lt, step.piece_taps)
        is_selected = compare(tap_difference, full_like(tap_difference, limit))
        yield gather_at_window, tap_difference, is_selected


def sum_dy_of_selecting_windows(dy: Array, index: Array, step: Step, dtype: DType) -> Array:
    """Sum of dy over the windows that selected each element, in `dtype`.

    `index` holds the flat tap that each window selected. All windows that selected the same element along the axes of
    `step` agree on the element's tap along the remaining axes.
    """
    max_terms = max(map(max_elements_per_position, step.transposed_phases))
    if dy.dtype == dtype == jnp.float16 and max_terms <= 1:
        # Each element gets at most one cotangent, so nothing is summed, and float16 can be handled as the bits of
        # bfloat16, which XLA converts faster. The payload of NaN may change.
        bits = lax.bitcast_convert_type(dy, jnp.bfloat16)
        dx = sum_dy_of_selecting_windows(bits, index, step, jnp.bfloat16)
        return lax.bitcast_convert_type(dx, jnp.float16)
    sum_dtype = accumulator_dtype(dy.dtype)
    dy, index = prevent_constant_folding(dy), prevent_constant_folding(index)
    terms = [
        cast(slices.where_or_zero(is_selected, gather(dy)), sum_dtype)
        for gather, _, is_selected in _covering_windows(index, step)
    ]
    dx = cast_without_branches(functools.reduce(lax.add, terms), dtype)
    return with_row_major_layout(dx, min(step.axes))


def index_before_step(index: Array, step: Step) -> Array:
    """Tap along the remaining axes that windows selected at each position; 0 where no window selected the position."""
    dtype = index_dtype(step.piece_taps)
    index = prevent_constant_folding(index)
    taps = [
        slices.where_or_zero(is_selected, tap_difference).astype(dtype)
        for _, tap_difference, is_selected in _covering_windows(index, step)
    ]
    return with_row_major_layout(functools.reduce(lax.max, taps), min(step.axes))
