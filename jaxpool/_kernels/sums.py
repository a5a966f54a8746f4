"""Window sums and their transpose; a tap t is an offset in the window.

sum         y[o]  = sum over taps t of x[stride * o - low + dilation * t]
transpose   dx[i] = sum of dy[o] over the windows o that cover element i

Loops over the taps serve the rare arrays whose window sums overflow or underflow: `sum_over_taps` and its transpose sum
each window relative to its largest element, from `max_per_window`, so that every weight is at most 1. Each tap is a
strided slice of the padded input, so a loop that does not run costs nothing. `rolled.py` has loops that always run and
first rearrange the arrays.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._geometry.window import Axis, Window, replace_sizes
from jaxpool._kernels import slices
from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, full_like, scalar_like, where
from jaxpool._kernels.passes import PadToRegion, Source, run_pass
from jaxpool._kernels.reduce_window import (
    reduce_window_extremum,
    reduce_window_sum,
    reduce_window_sum_transpose,
)
from jaxpool._plan.sum_pool import SumPass, SumPlan


class Epilogue(NamedTuple):
    """Division and cast that the last pass of a window sum applies to each sum before the sum is stored."""

    dtype: DType
    divide_total: Callable[[Array], Array] | None = None

    def apply(self, total: Array, cast_fn: Callable[[Array, DType], Array] = cast) -> Array:
        """Divide `total` in the accumulator dtype, and cast the quotient to `dtype` by `cast_fn`."""
        wide = cast(total, accumulator_dtype(total.dtype))
        return cast_fn(wide if self.divide_total is None else self.divide_total(wide), self.dtype)


def _run_sum_pass(pass_: SumPass, epilogue: Epilogue | None, x: Array, prev_x: Array) -> Array:
    """Sums from a single pass over x. Passes with two sources also read `prev_x`, the input of the previous pass."""
    sum_dtype = accumulator_dtype(x.dtype)
    if pass_.layout.read_mode == "tables":
        total = tables.sum_by_gather_tables(x, pass_.axes, *pass_.sources)
        total = epilogue.apply(total, tables.cast_without_branches) if epilogue else total
        return tables.with_row_major_layout(total, pass_.axes[0])

    def element_term(tap: int, elements: Sequence[Array], pad: PadToRegion) -> Array:
        return pad(cast(elements[0], sum_dtype), fill=0)

    pairs = zip((x, prev_x), pass_.sources, strict=False)
    sources = [Source([array], [0], phases) for array, phases in pairs]
    total = run_pass(pass_.layout, pass_.axes, sources, element_term, slices.add_terms)
    return epilogue.apply(total) if epilogue else total


def _run_sum_passes(x: Array, plan: SumPlan, epilogue: Epilogue | None) -> Array:
    """Run the passes of a plan one after another; the last pass includes the `epilogue`."""
    # This dtype has no zero: padding with 0 would be NaN.
    if plan.passes and x.dtype == jnp.float8_e8m0fnu:
        x = cast(x, accumulator_dtype(x.dtype))
    prev = x
    for pass_ in plan.passes:
        is_last = pass_ is plan.passes[-1]
        kernel = functools.partial(_run_sum_pass, pass_, epilogue if is_last else None)
        if is_last and pass_.layout.read_mode != "tables":
            return kernel(x, prev)
        x, prev = slices.materialise(plan.barrier, kernel, x, prev), x
    return x if plan.passes or epilogue is None else epilogue.apply(x)


def window_sum(x: Array, plan: SumPlan, epilogue: Epilogue) -> Array:
    """Sum of each window, with 0 as the value of padding, followed by the `epilogue`."""
    whole_axes = tuple(dim.axis for dim in plan.global_dims)
    if whole_axes:
        x = jnp.sum(x, axis=whole_axes, keepdims=True, dtype=accumulator_dtype(x.dtype))
    if plan.reduce_window_groups:
        wide = cast(x, accumulator_dtype(x.dtype))
        return epilogue.apply(functools.reduce(reduce_window_sum, plan.reduce_window_groups, wide))
    return _run_sum_passes(x, plan, epilogue)


def window_sum_transpose(dy: Array, plan: SumPlan, epilogue: Epilogue) -> Array:
    """Transpose of `window_sum`: sum dy over the windows that cover each input position."""
    dx = dy if plan.passes or plan.reduce_window_groups else epilogue.apply(dy)
    dx = lax.broadcast_in_dim(dx, Window(plan.global_dims).unpooled_shape(dx.shape), range(dx.ndim))
    for dim in plan.disjoint_dims:
        dx = _repeat_over_disjoint_window(dx, dim)
    if plan.reduce_window_groups:
        wide = cast(dx, accumulator_dtype(dx.dtype))
        dx = functools.reduce(reduce_window_sum_transpose, plan.reduce_window_groups, wide)
        return epilogue.apply(dx)
    return _run_sum_passes(dx, plan, epilogue if plan.passes else None)


def _repeat_over_disjoint_window(dy: Array, dim: Axis) -> Array:
    """Repeat each element of dy over its window, for disjoint windows; elements in no window get 0."""
    shape = [*dy.shape[: dim.axis + 1], dim.window, *dy.shape[dim.axis + 1 :]]
    other_axes = [axis for axis in range(len(shape)) if axis != dim.axis + 1]
    dx = lax.broadcast_in_dim(dy, shape, other_axes)
    dx = slices.pad(dx, [dim.axis + 1], [(0, dim.stride - dim.window, 0)], 0)
    high_padding = dim.low + dim.size - dim.out * dim.stride
    dx = lax.collapse(dx, dim.axis, dim.axis + 2)
    return slices.pad(dx, [dim.axis], [(-dim.low, high_padding, 0)], 0)


def max_per_window(x: Array, window: Window) -> Array:
    """The largest element of each window, with derivative 0, because window sums do not depend on this offset."""
    # A loop over the taps is faster for long windows on CPU, but takes longer to compile, and rarely runs.
    return reduce_window_extremum(lax.stop_gradient(x), "max", window.dims)


def sum_over_taps(
    window: Window,
    terms_of_elements: Callable[..., tuple[Array, ...]],
    element_arrays: Sequence[Array],
    *mask: Array,
) -> tuple[Array, ...]:
    """Sums of `terms_of_elements(*element_arrays)` over each window, limited to elements where `mask` is True.

    The terms may read arrays in the shape of the output. The terms of 0, the value of padding, must be finite.
    """
    loop_window, whole_axes = _separate_whole_axes(window)
    padded = [slices.pad_input(array, loop_window, 0) for array in (*element_arrays, *mask)]

    def terms_at_tap(tap: Array) -> tuple[Array, ...]:
        elements = [_elements_at_traced_tap(array, loop_window, tap) for array in padded]
        if not mask and not loop_window.is_padded:
            return terms_of_elements(*elements)
        is_inside = elements.pop() if mask else tap_inside_mask(loop_window, tap, elements[0].ndim)
        return tuple(where(is_inside, array, 0) for array in terms_of_elements(*elements))

    totals = _sum_over_loop(loop_window, terms_at_tap)
    return tuple(jnp.sum(array, axis=whole_axes, keepdims=True) for array in totals)


def sum_over_taps_transpose(
    window: Window,
    x: Array,
    slope_of_term: Callable[..., Array],
    window_arrays: Sequence[Array],
    dy: Array,
) -> Array:
    """Transpose of `sum_over_taps`: sum `slope_of_term(x, *window_arrays) * dy` over the windows that cover x.

    The arrays broadcast to the shape of the output.
    """
    loop_window, _ = _separate_whole_axes(window)
    padded = slices.pad_input(x, loop_window, 0)

    def cotangent_at_tap(tap: Array) -> tuple[Array]:
        slope = slope_of_term(_elements_at_traced_tap(padded, loop_window, tap), *window_arrays)
        return (_elements_at_traced_tap_transpose(slope * dy, loop_window, tap),)

    (dx,) = _sum_over_loop(loop_window, cotangent_at_tap)
    cropped: Array = jax.linear_transpose(lambda x: slices.pad_input(x, loop_window, 0), x)(dx)[0]
    return cropped


def _separate_whole_axes(window: Window) -> tuple[Window, tuple[int, ...]]:
    """Split `window` into a window for the loop and the axes that a single window covers, which need no loop."""
    dims = tuple(dim for dim in window.dims if not dim.is_global)
    return Window(dims), tuple(dim.axis for dim in window.dims if dim.is_global)


def _sum_over_loop(
    window: Window, terms_at_tap: Callable[[Array], tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Sums of `terms_at_tap(tap)` over all flat (row-major) taps of `window`, one tap after another.

    The derivative recomputes the terms: saved terms would take memory even if the loop does not run.
    """
    # Traced once, for the types of the terms and for the loop.
    terms_at_tap = jax.jit(terms_at_tap)
    terms = terms_at_tap(np.int32(0))
    if window.size == 1:
        return terms

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def add_terms(tap: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(map(lax.add, totals, terms_at_tap(tap.astype(np.int32))))

    # The loop includes tap 0: XLA then drops `terms`, and compiles the terms once.
    zeros = match_varying_mesh_axes([full_like(term, 0) for term in terms], *terms)
    return lax.fori_loop(0, window.size, add_terms, zeros)


def _dynamic_slice_axes(x: Array, window: Window, starts: list[Array], sizes: list[int]) -> Array:
    all_starts = replace_sizes([np.int32(0)] * x.ndim, window.axes, starts)
    all_sizes = replace_sizes(x.shape, window.axes, sizes)
    return lax.dynamic_slice(x, all_starts, all_sizes, allow_negative_indices=False)


@functools.partial(jax.jit, static_argnums=1, inline=True)
def _elements_at_traced_tap(padded_input: Array, window: Window, flat_tap: Array) -> Array:
    """Element of each window at `flat_tap`, which may be traced; `padded_input` comes from `slices.pad_input`."""
    dims = window.dims
    pairs = zip(slices.unravel_index(flat_tap, window.window_shape), dims, strict=True)
    starts = [lax.mul(tap, np.int32(dim.dilation)) for tap, dim in pairs]
    lengths = [(dim.out - 1) * dim.stride + 1 for dim in dims]
    x = _dynamic_slice_axes(padded_input, window, starts, lengths)
    strides = [dim.stride for dim in dims]
    return slices.strided_slice(x, window.axes, [0] * len(dims), window.output_shape, strides)


def _elements_at_traced_tap_transpose(cotangents: Array, window: Window, flat_tap: Array) -> Array:
    """Transpose of `_elements_at_traced_tap` by padding and slicing, without the scatter of jax's transpose."""
    dims = window.dims
    padding = [(dim.span - 1, dim.span - 1, dim.stride - 1) for dim in dims]
    pairs = zip(slices.unravel_index(flat_tap, window.window_shape), dims, strict=True)
    starts = [np.int32(dim.span - 1) - tap * np.int32(dim.dilation) for tap, dim in pairs]
    wide = slices.pad(cotangents, window.axes, padding, 0)
    return _dynamic_slice_axes(wide, window, starts, [dim.covered_size for dim in dims])


@functools.partial(jax.jit, static_argnums=(0, 2), inline=True)
def tap_inside_mask(window: Window, flat_tap: Array, ndim: int) -> Array:
    """Mask of the windows whose element at `flat_tap` is inside the input, of rank `ndim` with batch axes of size 1."""
    masks = []
    taps = slices.unravel_index(flat_tap, window.window_shape)
    for dim, tap in zip(window.dims, taps, strict=True):
        shape = [dim.out if axis == dim.axis else 1 for axis in range(ndim)]
        i = lax.broadcasted_iota(np.int32, shape, dim.axis)
        first = lax.sub(lax.mul(tap, np.int32(dim.dilation)), np.int32(dim.low))
        # A negative position becomes a large number.
        position = lax.add(lax.mul(i, scalar_like(i, dim.stride)), first).astype(np.uint32)
        masks.append(lax.lt(position, scalar_like(position, dim.size)))
    return functools.reduce(lax.bitwise_and, masks)
