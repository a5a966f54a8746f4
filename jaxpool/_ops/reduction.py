"""Maximum, minimum and mean over whole axes, for reductions, global pools and windows that span their axes.

`reduce` is the entry point for maxima and minima.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window, replace_sizes
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import Kind, accumulator_dtype, is_float
from jaxpool._kernels.keys import has_sign_bit, set_sign_of_zeros
from jaxpool._kernels.positions import gather_at_flat_index
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.apply import Autodiff, apply, apply_with_extra_args
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.reduce import Fold, plan_fold, reduces_as_floats
from jaxpool._plan.tuning import tuning


def fold_of(platform: Platform, x: Array, axes: tuple[int, ...], *, ties: bool) -> Fold | None:
    """The combination of blocks of x before the reduction, if any."""
    if not is_float(x.dtype):
        return None
    problem = problem_of(Window(()), x, platform)
    return plan_fold(problem.shape, axes, 8 * x.dtype.itemsize, platform, problem.sharded, ties)


@dataclasses.dataclass(frozen=True)
class Reduction(Op):
    """Maximum or minimum over whole `axes` of lengths `sizes`, with an optional mask. The output keeps the axes.

    Residual: the index of the selected element, or with ties "split" x, y and the mask. +0 and -0 tie. A zero of
    `primal` has the sign of the selected element; of `value` and with ties "split" its sign is unspecified.
    """

    kind: Kind
    ties: Ties
    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    stores_inputs = True

    @property
    def stores_residual(self) -> bool:
        return self.ties == "split"

    def _fold(self, platform: Platform, x: Array, *, ties: bool) -> Fold | None:
        return fold_of(platform, x, self.axes, ties=ties)

    def _as_floats(self, platform: Platform, x: Array) -> bool:
        """True if sums, counts of ties and ranks are computed in float32."""
        return reduces_as_floats(platform, problem_of(Window(()), x, platform).shape, self.axes)

    def value(self, platform: Platform, *xs: Array) -> Array:
        x, mask = xs[0], xs[1] if xs[1:] else None
        lost, fold = tuning(platform).loses_nan, self._fold(platform, x, ties=False)
        floats = self._as_floats(platform, x)
        return reducing.max_or_min_over_axes(
            x,
            self.axes,
            self.kind,
            mask,
            reduction_loses_nan=lost,
            fold_plan=fold,
            use_float32=floats,
        )

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, Any]:
        x, mask = xs[0], xs[1] if xs[1:] else None
        y = self.value(platform, *xs)
        if self.ties == "split":
            return y, (x, y, mask)
        last, fold = self.ties == "last", self._fold(platform, x, ties=True)
        floats = self._as_floats(platform, x)
        rank = reducing.flat_index_of_extremum(
            x, y, self.axes, last, mask, fold, use_float32=floats
        )
        if is_float(x.dtype) and x.size:
            chosen = gather_at_flat_index(x, rank, self.axes, last)
            y = set_sign_of_zeros(y, has_sign_bit(chosen))
        return y, rank

    def won(self, platform: Platform, residual: Any, shape: Sequence[Any]) -> Array:
        """True where an array of `shape` has a selected or tied element."""
        if self.ties != "split":
            return reducing.one_hot_of_flat_index(residual, shape, self.axes, self.ties == "last")
        x, y, mask = residual
        return reducing.attains_extremum(x, y, mask, self._fold(platform, x, ties=True))

    def count(self, platform: Platform, residual: Any) -> Array:
        """The number of tied elements."""
        x, y, mask = residual
        fold = self._fold(platform, x, ties=True)
        floats = self._as_floats(platform, x)
        return reducing.num_tied_elements(x, y, self.axes, mask, fold, use_float32=floats)

    def _share(self, platform: Platform, total: Array, residual: Any) -> Array:
        """Return total divided by the number of selected elements."""
        if self.ties != "split":
            return total
        return divide_by_num_tied(total, self.count(platform, residual))

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator_dtype(x_dot.dtype))
        won = lax.select(self.won(platform, residual, wide.shape), wide, lax.full_like(wide, 0))
        total = jnp.sum(won, axis=self.axes, keepdims=True, dtype=won.dtype)
        return self._share(platform, total, residual).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        share = self._share(platform, dy.astype(accumulator_dtype(dy.dtype)), residual).astype(
            dy.dtype
        )
        shape = replace_sizes(dy.shape, self.axes, self.sizes)
        dx = jnp.broadcast_to(share, shape)
        return (lax.select(self.won(platform, residual, shape), dx, lax.full_like(dx, 0)),)


@dataclasses.dataclass(frozen=True)
class MeanOver(Op):
    """Mean over whole `axes` of lengths `sizes`, with an optional mask, the residual. The output keeps the axes."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    linear_in_x = True

    def _counting(self, mask: Array, wide: Array) -> tuple[Array, Array]:
        """The mask with the shape of `wide`, and its number of True elements, at least 1."""
        counting = slices.broadcast_like(mask, wide)
        count = jnp.sum(counting, axis=self.axes, keepdims=True, dtype=np.uint32)
        return counting, lax.max(count, lax.full_like(count, 1)).astype(wide.dtype)

    def linear(self, platform: Platform, extra_args: tuple[Array, ...], x: Array) -> Array:
        wide = x.astype(accumulator_dtype(x.dtype))
        count = lax.full((), math.prod(self.sizes), wide.dtype)
        if extra_args:
            counting, count = self._counting(extra_args[0], wide)
            wide = lax.select(counting, wide, lax.full_like(wide, 0))
        total = jnp.sum(wide, axis=self.axes, keepdims=True, dtype=wide.dtype)
        return (total / count).astype(x.dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array]:
        wide = dy.astype(accumulator_dtype(dy.dtype))
        shape = replace_sizes(dy.shape, self.axes, self.sizes)
        if not extra_args:
            share = wide / lax.full((), math.prod(self.sizes), wide.dtype)
            return (jnp.broadcast_to(share.astype(dy.dtype), shape),)
        counting, count = self._counting(extra_args[0], jnp.broadcast_to(wide, shape))
        dx = jnp.broadcast_to((wide / count).astype(dy.dtype), shape)
        return (lax.select(counting, dx, lax.full_like(dx, 0)),)


def reduce(
    x: Array,
    axes: tuple[int, ...],
    kind: Kind,
    ties: Ties,
    autodiff: Autodiff,
    keepdims: bool = False,
    where: Array | None = None,
) -> Array:
    """The maximum or minimum over distinct non-negative `axes`.

    `where` has the rank of x and broadcasts to it. A result without elements is the identity of the reduction.
    """
    if where is not None and slices.is_sharded(x):
        where = slices.broadcast_like(where, x)
    if not axes:
        wide = None if where is None else lax.expand_dims(where, [where.ndim])
        return reduce(lax.expand_dims(x, [x.ndim]), (x.ndim,), kind, ties, autodiff, where=wide)
    op = Reduction(kind, ties, axes, tuple(x.shape[axis] for axis in axes))
    mask = () if where is None else (where,)
    y = apply_with_extra_args(op, x, *mask)[0] if mask else apply(op, autodiff, x)
    return y if keepdims else lax.squeeze(y, axes)
