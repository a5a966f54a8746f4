"""Flat positions of elements in the unpadded input, and gathers and scatters by position.

A position is a row-major int32 index over the pooled axes, in the order of `axes`, for one index along the batch axes
(all other axes). Argmax pools and unpooling use this module to convert taps to positions.
"""

import functools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import AdaptiveWindow, Axis, Window, replace_sizes
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.dtypes import DType, accumulator_dtype
from jaxpool._kernels.slices import Ints, unravel_index
from jaxpool._plan.problem import group_axes, is_constant_table

CountKind = Literal["counted", "real"]  # elements of input and padding, or of the input only
# An int32 array: a NumPy array is a constant of the program, a jax array is computed by the program.
IntArray = Any

_DROP = lax.GatherScatterMode.FILL_OR_DROP


def module_for_table(length: int) -> ModuleType:
    """NumPy for a table that is a constant of the program, jax.numpy for a table too long for a constant."""
    return np if is_constant_table(length) else jnp


def int32_iota(num_values: int) -> IntArray:
    """`arange(num_values)` in int32: a NumPy constant, or a jax iota if a constant would be too long."""
    return module_for_table(num_values).arange(num_values, dtype=np.int32)


def all_window_indices(dim: Axis) -> IntArray:
    """Indices of the windows along an axis."""
    return int32_iota(dim.out)


def scaled_floor_division(
    factor: IntArray, num_values: int, numerator: int, denominator: int, addend: int = 0
) -> IntArray:
    """`(factor * numerator + addend) // denominator` in int32, without overflow, for factors below `num_values`.

    `addend` is below `denominator`. With `factor = 2**16 * high + low`, one table per digit has the quotient and the
    remainder of the product of the digit; two remainders add up to a uint32.
    """
    if isinstance(factor, np.ndarray):
        return ((factor.astype(np.int64) * numerator + addend) // denominator).astype(np.int32)
    if num_values <= (np.iinfo(np.int32).max - denominator) // numerator:
        return (factor * numerator + addend) // denominator
    quotient: IntArray | np.uint32 = np.uint32(0)
    remainder: IntArray | np.uint32 = np.uint32(addend)
    divisor = np.uint32(denominator)
    for shift in (16, 0):
        products = np.arange(min(num_values >> shift, 0xFFFF) + 1) * (numerator << shift)
        tables = (part.astype(np.uint32) for part in np.divmod(products, denominator))
        digit = (factor >> shift) & 0xFFFF
        whole, rest = (jnp.take(jnp.asarray(table), digit, mode="clip") for table in tables)
        carry = (remainder + rest >= divisor).astype(np.uint32)
        quotient, remainder = quotient + whole + carry, remainder + rest - carry * divisor
    return quotient.astype(np.int32)


def window_starts(dim: Axis) -> IntArray:
    """Position of the first tap of each window along an axis; negative in the low padding."""
    return all_window_indices(dim) * np.int32(dim.stride) - np.int32(dim.low)


def elements_per_window(
    window: Window,
    kind: CountKind,
    ndim: int,
    dtype: DType,
    window_indices: Callable[[Axis], IntArray] = all_window_indices,
) -> Array:
    """The number of elements of each window, at least 1, broadcastable to an output of rank `ndim`."""
    counts = []
    for dim in window.dims:
        count_fn = dim.num_taps_counted if kind == "counted" else dim.num_taps_inside
        count = count_fn(window_indices(dim)) if dim.is_padded else np.array([dim.window])
        counts.append(count.clip(1).astype(dtype))
    return slices.outer_broadcast(jnp.multiply, counts, window.axes, ndim)


def flat_position_of_tap(
    flat_tap: Array, window: Window | AdaptiveWindow, starts: Sequence[IntArray]
) -> Array:
    """Position of the row-major `flat_tap` of each window.

    `starts[i]` holds the position of each window's first tap along axis i, negative in the low padding, and broadcasts
    to `flat_tap`.
    """
    taps, unit = unravel_index(flat_tap.astype(np.int32), window.window_shape), 1
    position = dtypes.full_like(taps[0], 0)
    for dim, tap, start in reversed([*zip(window.dims, taps, starts, strict=True)]):
        position = position + (start + tap * np.int32(dim.dilation)) * np.int32(unit)
        unit *= dim.size
    return position


@functools.partial(jax.jit, static_argnums=1)
def input_position_of_tap(flat_tap: Array, window: Window) -> Array:
    """Position in the unpadded input of the element at `flat_tap`."""
    ndim = flat_tap.ndim
    starts = [slices.reshape_along_axis(window_starts(d), d.axis, ndim) for d in window.dims]
    return flat_position_of_tap(flat_tap, window, starts)


def indices_to_positions(indices: Array, num_positions: int) -> Array:
    """Convert `indices` to int32; indices outside [0, num_positions) become `num_positions`."""
    # The barrier hides constants: XLA would evaluate gathers and scatters at constant indices with a slow interpreter.
    indices = lax.optimization_barrier(indices)
    if jnp.dtype(indices.dtype).itemsize < 4:
        indices = indices.astype(np.int32)
    inside = (indices >= 0) & (indices < num_positions)
    return dtypes.where(inside, indices, num_positions).astype(np.int32)


def _collapse_axes_to_last(x: Array, axes: Ints) -> Array:
    """Move `axes` to the end and collapse them into one axis."""
    return lax.collapse(jnp.moveaxis(x, axes, range(-len(axes), 0)), x.ndim - len(axes))


def _uncollapse_axes(x: Array, axes: Ints, sizes: Ints) -> Array:
    """Invert `_collapse_axes_to_last`: split the last axis into axes of `sizes`, and move them to `axes`."""
    return jnp.moveaxis(lax.reshape(x, (*x.shape[:-1], *sizes)), range(-len(axes), 0), axes)


def _last_axis_dimension_numbers(dimension_numbers_class: Any, ndim: int) -> Any:
    """Dimension numbers of a gather or scatter along the last axis, with all other axes as batch axes."""
    batch, last = tuple(range(ndim - 1)), (ndim - 1,)
    return dimension_numbers_class((), last, last, batch, batch)


def _gather_along_last_axis(x: Array, indices: Array) -> Array:
    """Gather elements of x at `indices` along the last axis; 0 for indices out of bounds."""
    dnums = _last_axis_dimension_numbers(lax.GatherDimensionNumbers, x.ndim)
    return lax.gather(x, indices, dnums, (1,) * x.ndim, mode=_DROP, fill_value=0)


def gather_at_position(x: Array, position: Array, axes: Ints) -> Array:
    """Gather elements of x at `position`. The map is linear in x, and its transpose adds in the accumulator dtype."""
    wide = _collapse_axes_to_last(x.astype(accumulator_dtype(x.dtype)), axes)
    y = _gather_along_last_axis(wide, _collapse_axes_to_last(position, axes)[..., None])
    return _uncollapse_axes(y, axes, [position.shape[axis] for axis in axes]).astype(x.dtype)


def _element_numbers(shape: Ints, axes: Ints) -> Array:
    """The row-major number along `axes` of each element of an array of `shape`."""
    batch = [size for axis, size in enumerate(shape) if axis not in axes]
    sizes = [shape[axis] for axis in axes]
    iota = lax.broadcasted_iota(np.int32, (*batch, math.prod(sizes)), len(batch))
    return _uncollapse_axes(iota, axes, sizes)


def scatter_add_at_position(y: Array, position: Array, axes: Ints, sizes: Ints) -> Array:
    """Transpose of `gather_at_position`: add each element of y at its position in zeros of `sizes`."""
    x = slices.zeros_like_with_sizes(y, axes, sizes)
    return jax.linear_transpose(lambda x: gather_at_position(x, position, axes), x)(y)[0]


def scatter_last_wins(y: Array, position: Array, axes: Ints, sizes: Ints) -> Array:
    """Scatter y into zeros of `sizes`; if several elements have one position, the last element is stored.

    A scatter may write in any order, so `scatter_max` finds the number of the last element at each position.
    """
    elements, targets = _collapse_axes_to_last(y, axes), _collapse_axes_to_last(position, axes)
    if elements.shape[-1] == 0:
        return slices.zeros_like_with_sizes(y, axes, sizes)
    element_number = lax.broadcasted_iota(np.int32, targets.shape, targets.ndim - 1)
    no_element = jnp.full((*targets.shape[:-1], math.prod(sizes)), -1, np.int32)
    dnums = _last_axis_dimension_numbers(lax.ScatterDimensionNumbers, targets.ndim)
    last_number = lax.scatter_max(no_element, targets[..., None], element_number, dnums, mode=_DROP)
    return _uncollapse_axes(_gather_along_last_axis(elements, last_number[..., None]), axes, sizes)


def drop_overwritten_positions(
    position: Array,
    axes: Ints,
    sizes: Ints,
    scatter: Callable[..., Array],
    gather: Callable[..., Array],
) -> Array:
    """Replace each position that a later element also has by an index out of bounds, the product of `sizes`.

    All positions in bounds are then distinct. `scatter` is a function like `scatter_last_wins`, `gather` reads it back.
    """
    if position.size == 0:
        return position
    number = _element_numbers(position.shape, axes)
    is_last = lax.eq(gather(scatter(number, position, axes, sizes), position, axes), number)
    return dtypes.where(is_last, position, math.prod(sizes))


def _pooled_axes_permutation(ndim: int, axes: Ints) -> list[int]:
    """Permutation of all axes that reorders only the pooled axes, to the order of `axes`."""
    order = list(range(ndim))
    for slot, axis in zip(sorted(axes), axes, strict=True):
        order[slot] = axis
    return order


def _collapse_from(x: Array, first_axis: int, axes: Ints) -> Array:
    """x with all axes from `first_axis` on collapsed into one, in the order of `axes`."""
    ordered = lax.transpose(x, _pooled_axes_permutation(x.ndim, axes))
    return lax.reshape(ordered, (*x.shape[:first_axis], math.prod(x.shape[first_axis:])))


def _scatter_indices(position: Array, first_axis: int, axes: Ints, shape: Ints) -> Array:
    """Indices into an array of `shape` whose axes from `first_axis` on are collapsed, ordered by `axes`."""
    position_size = math.prod(shape[axis] for axis in axes)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # A position along axes that are adjacent in memory needs no division.
    first_run, *later_runs = group_axes(axes, lambda run: run[-1] == run[-2] + 1)
    index, quotient = dtypes.full_like(position, 0), position
    for run in reversed(later_runs):
        run_size = dtypes.scalar_like(quotient, math.prod(shape[axis] for axis in run))
        index = index + lax.rem(quotient, run_size) * np.int32(strides[run[-1]])
        quotient = lax.div(quotient, run_size)
    index = index + quotient * np.int32(strides[first_run[-1]])
    for axis in {*range(first_axis, position.ndim)} - {*axes}:
        batch_index = lax.broadcasted_iota(np.int32, position.shape, axis)
        index = index + batch_index * np.int32(strides[axis])
    is_inside = lax.lt(position, dtypes.scalar_like(position, position_size))
    index = dtypes.where(is_inside, index, math.prod(shape[first_axis:]))
    return lax.expand_dims(_collapse_from(index, first_axis, axes), [first_axis + 1])


def scatter_in_order(
    y: Array, position: Array, axes: Ints, sizes: Ints, *, accumulate: bool = False
) -> Array:
    """`scatter_last_wins`, or `scatter_add_at_position` if `accumulate`, by one scatter that writes in order.

    Only for platforms whose scatters write one element after another. `position` comes from `indices_to_positions`.
    The axes from the first pooled axis on are collapsed into one, and elements are written in row-major order of
    `axes`. Leading batch axes are not collapsed, so XLA can keep the batch sharded. Flat indices are int32.
    """
    shape, first_axis = replace_sizes(y.shape, axes, sizes), min(axes)
    value = y.astype(accumulator_dtype(y.dtype)) if accumulate else dtypes.bitcast_half_to_uint16(y)
    index = _scatter_indices(position, first_axis, axes, shape)
    flat_x = (lax.scatter_add if accumulate else lax.scatter)(
        lax.full((*shape[:first_axis], math.prod(shape[first_axis:])), 0, value.dtype),
        index,
        _collapse_from(value, first_axis, axes),
        _last_axis_dimension_numbers(lax.ScatterDimensionNumbers, first_axis + 1),
        mode=_DROP,
    )
    x = lax.reshape(flat_x, shape)
    return x.astype(y.dtype) if accumulate else dtypes.bitcast_uint16_to_half(x, y.dtype)


def scatter_last_wins_flat(y: Array, position: Array, axes: Ints, sizes: Ints) -> Array:
    """`scatter_last_wins`, with all axes collapsed in the scatter: XLA for GPU would transpose arrays with batch axes.

    Elements are numbered from 1, and 0 marks an output without an element. The array of numbers is as large as the
    result, so the numbers have 16 bits if they fit.
    """
    if not y.size:
        return slices.zeros_like_with_sizes(y, axes, sizes)
    shape = replace_sizes(y.shape, axes, sizes)
    num_elements = math.prod(y.shape[axis] for axis in axes)
    dtype = np.uint16 if num_elements <= np.iinfo(np.uint16).max else np.int32
    last_number = lax.scatter_max(
        lax.full((math.prod(shape),), 0, dtype),
        _scatter_indices(position, 0, axes, shape),
        (_collapse_from(_element_numbers(y.shape, axes), 0, axes) + np.int32(1)).astype(dtype),
        _last_axis_dimension_numbers(lax.ScatterDimensionNumbers, 1),
        mode=_DROP,
    )
    last = last_number.reshape(shape).astype(np.int32) - np.int32(1)
    return gather_in_order(y, dtypes.where(last < 0, num_elements, last), axes)


def gather_in_order(x: Array, position: Array, axes: Ints) -> Array:
    """Gather elements of x at `position`, with axes collapsed as in `scatter_in_order`."""
    order, flat_x = _pooled_axes_permutation(x.ndim, axes), lax.collapse(x, min(axes))
    index = _scatter_indices(position, min(axes), axes, x.shape)
    flat_y = _gather_along_last_axis(flat_x, index)
    ordered = lax.reshape(flat_y, [position.shape[axis] for axis in order])
    return lax.transpose(ordered, np.argsort(order).tolist())


def scatter_at_sorted(y: Array, position: Array, axis: int, size: int) -> Array:
    """Scatter y into zeros of `size` along an axis; `position` must be strictly ascending along the axis."""
    zeros = _collapse_axes_to_last(slices.zeros_like_with_sizes(y, (axis,), (size,)), (axis,))
    dnums = _last_axis_dimension_numbers(lax.ScatterDimensionNumbers, y.ndim)
    x = lax.scatter(
        zeros,
        _collapse_axes_to_last(position.astype(np.int32), (axis,))[..., None],
        _collapse_axes_to_last(y, (axis,)),
        dnums,
        indices_are_sorted=True,
        unique_indices=True,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    return _uncollapse_axes(x, (axis,), (size,))
