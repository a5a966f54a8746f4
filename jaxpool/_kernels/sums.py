"""Window sums and their transpose.

sum     y[o]  = sum over taps t of x[stride * o - low + dilation * t]
spread  dx[i] = sum of dy[o] over the windows o that cover element i
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator, cast
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import Grow, Source, added, carry_out
from jaxpool._kernels.reduce_window import window_total, window_total_transposed
from jaxpool._plan.sum_pool import SumPass, SumPlan


class Epilogue(NamedTuple):
    """Division and cast of each sum before it is stored."""

    dtype: DType
    divide: Callable[[Array], Array] | None = None

    def applied(self, total: Array, rounded: Callable[[Array, DType], Array] = cast) -> Array:
        """Divide the total in the accumulator dtype and cast it."""
        wide = cast(total, accumulator(total.dtype))
        return rounded(wide if self.divide is None else self.divide(wide), self.dtype)


def _pass(pass_: SumPass, end: Epilogue | None, x: Array, before: Array) -> Array:
    """Sums of one pass over x; `before` is the input of the previous pass."""
    wide = accumulator(x.dtype)
    if pass_.layout.reading == "tables":
        total = tables.sums(x, pass_.axes, *pass_.sources)
        total = end.applied(total, tables.rounded) if end else total
        return tables.row_major(total, pass_.axes[0])

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> Array:
        return grow(cast(parts[0], wide), fill=0)

    pairs = zip((x, before), pass_.sources, strict=False)
    sources = [Source([array], [0], phases) for array, phases in pairs]
    total = carry_out(pass_.layout, pass_.axes, sources, term, added)
    return end.applied(total) if end else total


def _passes(x: Array, plan: SumPlan, end: Epilogue | None) -> Array:
    """Run the passes of a plan, with the epilogue `end` in the last pass."""
    before = x
    for pass_ in plan.passes:
        last = pass_ is plan.passes[-1]
        kernel = functools.partial(_pass, pass_, end if last else None)
        stored = not last or pass_.layout.reading == "tables"
        x, before = materialise(plan.barrier, kernel, x, before) if stored else kernel(x, before), x
    return x if plan.passes or end is None else end.applied(x)


def window_sum(x: Array, plan: SumPlan, end: Epilogue) -> Array:
    """Sum over each window, with padding as 0, followed by the epilogue `end`."""
    whole = tuple(dim.axis for dim in plan.whole)
    if whole:
        x = jnp.sum(x, axis=whole, keepdims=True, dtype=accumulator(x.dtype))
    if plan.reduced:
        wide = cast(x, accumulator(x.dtype))
        return end.applied(functools.reduce(window_total, plan.reduced, wide))
    return _passes(x, plan, end)


def window_spread(dy: Array, plan: SumPlan, end: Epilogue) -> Array:
    """Transpose of `window_sum`: sum dy over the windows that cover each input position."""
    dx = dy if plan.passes or plan.reduced else end.applied(dy)
    dx = lax.broadcast_in_dim(dx, Window(plan.whole).unpooled(dx.shape), range(dx.ndim))
    for dim in plan.separate:
        dx = _spread_separate(dx, dim)
    if plan.reduced:
        wide = cast(dx, accumulator(dx.dtype))
        return end.applied(functools.reduce(window_total_transposed, plan.reduced, wide))
    return _passes(dx, plan, end if plan.passes else None)


def _spread_separate(dy: Array, dim: Axis) -> Array:
    """Repeat each element of dy over its window, for disjoint windows; zeros in the gaps between windows."""
    shape = [*dy.shape[: dim.axis + 1], dim.window, *dy.shape[dim.axis + 1 :]]
    others = [axis for axis in range(len(shape)) if axis != dim.axis + 1]
    dx = lax.broadcast_in_dim(dy, shape, others)
    dx = slices.pad(dx, [dim.axis + 1], [(0, dim.stride - dim.window, 0)], 0)
    rest = dim.low + dim.size - dim.out * dim.stride
    dx = lax.collapse(dx, dim.axis, dim.axis + 2)
    return slices.pad(dx, [dim.axis], [(-dim.low, rest, 0)], 0)
