"""Window sums and their transpose; a tap t is an offset in the window.

sum         y[o]  = sum over taps t of x[stride * o - low + dilation * t]
transpose   dx[i] = sum of dy[o] over the windows o that cover element i
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import PadToRegion, Source, add_terms, run_pass
from jaxpool._kernels.reduce_window import reduce_window_sum, reduce_window_sum_transpose
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

    def element_term(tap: int, array_slices: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        return pad_to_region(cast(array_slices[0], sum_dtype), fill=0)

    pairs = zip((x, prev_x), pass_.sources, strict=False)
    sources = [Source([array], [0], phases) for array, phases in pairs]
    total = run_pass(pass_.layout, pass_.axes, sources, element_term, add_terms)
    return epilogue.apply(total) if epilogue else total


def _run_sum_passes(x: Array, plan: SumPlan, epilogue: Epilogue | None) -> Array:
    """Run the passes of a plan one after another; the last pass includes the `epilogue`."""
    prev = x
    for pass_ in plan.passes:
        is_last = pass_ is plan.passes[-1]
        kernel = functools.partial(_run_sum_pass, pass_, epilogue if is_last else None)
        is_stored = not is_last or pass_.layout.read_mode == "tables"
        x, prev = (materialise(plan.barrier, kernel, x, prev) if is_stored else kernel(x, prev), x)
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
        return epilogue.apply(
            functools.reduce(reduce_window_sum_transpose, plan.reduce_window_groups, wide)
        )
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
