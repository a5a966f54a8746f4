"""Maximum, minimum and mean over whole axes, for reductions, global pools and windows that span their axes."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import replace_sizes
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import Kind, Ties, accumulator_dtype, as_float, scalar_like
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.op import Arrays, Op, Residual, array_problem
from jaxpool._plan.problem import Platform, barrier_of
from jaxpool._plan.reduce import ReductionPlan, plan_reduction


@dataclasses.dataclass(frozen=True)
class Reduction(Op):
    """Maximum or minimum over whole `axes` of lengths `sizes`, with an optional mask. The output keeps the axes.

    Residual: the index of the selected element, or with ties "split" x, y and the mask. +0 and -0 tie, so the sign of
    a zero is unspecified.
    """

    kind: Kind
    ties: Ties
    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    materialises_inputs = True

    @property
    def materialises_residual(self) -> bool:
        return self.ties == "split"

    def _plan(self, platform: Platform, x: Array, *, of_ties: bool) -> ReductionPlan:
        return plan_reduction(array_problem(x, platform), self.axes, of_ties=of_ties)

    def value(self, platform: Platform, x: Array, mask: Array | None = None) -> Array:
        plan = self._plan(platform, x, of_ties=False)
        return reducing.max_or_min_over_axes(x, self.axes, self.kind, mask, plan)

    def primal(
        self, platform: Platform, x: Array, mask: Array | None = None
    ) -> tuple[Array, Residual]:
        y = self.value(platform, x, mask)
        if self.ties == "split":
            return y, (x, y, mask)
        last, plan = self.ties == "last", self._plan(platform, x, of_ties=True)
        return y, reducing.flat_index_of_extremum(x, y, self.axes, last, mask, plan)

    def is_selected(self, platform: Platform, residual: Residual, shape: Sequence[int]) -> Array:
        """A mask of `shape`, True at each selected or tied element."""
        if self.ties != "split":
            return reducing.one_hot_of_flat_index(residual, shape, self.axes, self.ties == "last")
        x, y, mask = residual
        return reducing.attains_extremum(x, y, mask, self._plan(platform, x, of_ties=True))

    def num_tied(self, platform: Platform, residual: Residual) -> Array:
        """The number of elements that tie for each output."""
        x, y, mask = residual
        plan = self._plan(platform, x, of_ties=True)
        return reducing.num_tied_elements(x, y, self.axes, mask, plan)

    def _split_tied(self, platform: Platform, total: Array, residual: Residual) -> Array:
        """Return `total`, divided by the number of tied elements if ties are split."""
        if self.ties != "split":
            return total
        return divide_by_num_tied(total, self.num_tied(platform, residual))

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        wide_dot = x_dot.astype(accumulator_dtype(x_dot.dtype))
        is_selected = self.is_selected(platform, residual, wide_dot.shape)
        selected_dot = slices.where_or_zero(is_selected, wide_dot)
        total = jnp.sum(selected_dot, axis=self.axes, keepdims=True, dtype=selected_dot.dtype)
        return self._split_tied(platform, total, residual).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        share = self._split_tied(platform, dy.astype(accumulator_dtype(dy.dtype)), residual)
        shape = replace_sizes(dy.shape, self.axes, self.sizes)
        dx = jnp.broadcast_to(share.astype(dy.dtype), shape)
        return (slices.where_or_zero(self.is_selected(platform, residual, shape), dx),)


@dataclasses.dataclass(frozen=True)
class NumTied(Op):
    """The number of elements over whole `axes` that tie with the extremum y. Arguments: x, y, optional mask.

    The count has no derivative: apply the op to arrays behind `lax.stop_gradient`.
    """

    axes: tuple[int, ...]

    is_pool = False
    materialises_inputs = True

    def value(self, platform: Platform, x: Array, *y_and_mask: Array) -> Array:
        problem = array_problem(x, platform)
        plan = plan_reduction(problem, self.axes, of_ties=True)

        def count(x: Array, y: Array, mask: Array | None = None) -> Array:
            return reducing.num_tied_elements(x, y, self.axes, mask, plan)

        num_tied: Array = slices.store_arguments(barrier_of(platform), count)(x, *y_and_mask)
        return num_tied


@dataclasses.dataclass(frozen=True)
class MeanReduction(Op):
    """Mean over whole `axes` of lengths `sizes`. The optional mask is also the residual. The output keeps the axes."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    linear_in_x = True

    def _mask_and_count(self, mask: Array, like: Array) -> tuple[Array, Array]:
        """The mask with the shape of `like`, and its number of True elements, at least 1."""
        is_counted = slices.broadcast_like(mask, like)
        count = jnp.sum(is_counted, axis=self.axes, keepdims=True, dtype=np.uint32)
        return is_counted, lax.max(count, scalar_like(count, 1)).astype(like.dtype)

    def linear(self, platform: Platform, extra_args: Arrays, x: Array) -> Array:
        wide_x = x.astype(accumulator_dtype(x.dtype))
        count = lax.full((), math.prod(self.sizes), wide_x.dtype)
        if extra_args:
            is_counted, count = self._mask_and_count(extra_args[0], wide_x)
            wide_x = slices.where_or_zero(is_counted, wide_x)
        total = jnp.sum(wide_x, axis=self.axes, keepdims=True, dtype=wide_x.dtype)
        return (total / count).astype(x.dtype)

    def transpose(self, platform: Platform, extra_args: Arrays, dy: Array) -> tuple[Array]:
        wide_dy = dy.astype(accumulator_dtype(dy.dtype))
        shape = replace_sizes(dy.shape, self.axes, self.sizes)
        if not extra_args:
            share = wide_dy / lax.full((), math.prod(self.sizes), wide_dy.dtype)
            return (jnp.broadcast_to(share.astype(dy.dtype), shape),)
        is_counted, count = self._mask_and_count(extra_args[0], jnp.broadcast_to(wide_dy, shape))
        dx = jnp.broadcast_to((wide_dy / count).astype(dy.dtype), shape)
        return (slices.where_or_zero(is_counted, dx),)


def max_or_min(
    x: Array,
    axes: tuple[int, ...],
    kind: Kind,
    ties: Ties,
    autodiff: Autodiff,
    keepdims: bool = False,
    where: Array | None = None,
) -> Array:
    """The maximum or minimum over distinct non-negative `axes`.

    `where` has the rank of x and broadcasts to x. A result without elements is the identity of the reduction.
    """
    if where is not None:
        where = slices.reshard_like(where, x)
    if not axes:
        where = None if where is None else lax.expand_dims(where, [where.ndim])
        x = lax.expand_dims(x, [x.ndim])
        return max_or_min(x, (x.ndim - 1,), kind, ties, autodiff, where=where)
    op = Reduction(kind, ties, axes, tuple(x.shape[axis] for axis in axes))
    mask = () if where is None else (where,)
    y = apply(op, x, *mask, autodiff="jvp" if mask else autodiff)
    return y if keepdims else lax.squeeze(y, axes)


def reduce_axes(
    kind: Kind | Literal["mean"],
    axes: tuple[int, ...],
    ties: Ties,
    x: Array,
    where: Array | None = None,
    keepdims: bool = True,
    autodiff: Autodiff = "jvp",
) -> Array:
    """The maximum, minimum or mean over distinct non-negative `axes`, as in `max_or_min`."""
    if kind != "mean":
        return max_or_min(x, axes, kind, ties, autodiff, keepdims, where)
    mask = () if where is None else (slices.reshard_like(where, x),)
    op = MeanReduction(axes, tuple(x.shape[axis] for axis in axes))
    y = apply(op, as_float(x), *mask, autodiff=autodiff)
    return y if keepdims else lax.squeeze(y, axes)
