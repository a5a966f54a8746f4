"""Expected value of a stochastic pool: the mean of each window with the weights max(x, 0).

With w = max(x, 0) it is sum(w^2) / sum(w). If a sum leaves the range of the dtype, the scaled evaluation (`scaled`)
divides by the largest weight; see `ranged`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window, resized
from jaxpool._kernels import slices
from jaxpool._kernels.tap_loop import gather, highest
from jaxpool._ops.ranged import (
    ALL_ZERO,
    RangedOp,
    Shares,
    amended,
    between,
    ratio,
    share,
    spread_of,
    sum_of,
    widened,
    with_status,
)
from jaxpool._plan.problem import Platform

REACH = 44  # log2 of the largest total for the direct evaluation: its square is in range too


@dataclasses.dataclass(frozen=True)
class ExpectedPool(RangedOp):
    """The mean of each window with the weights max(x, 0), or its first element if all weights are 0."""

    window: Window

    def _weights(self, x: Array) -> tuple[Array, Array, Array]:
        """Return x, the derivative of its weight (1 or 0), and its weight max(x, 0)."""
        wide = widened(x, self.window)
        return wide, (wide > 0).astype(wide.dtype), lax.max(wide, lax.full_like(wide, 0))

    def direct(self, x: Array) -> tuple[Array, Array]:
        weight = self._weights(x)[2]
        total = sum_of(self.window, weight, stored=True)
        y = sum_of(self.window, weight * weight) / total
        return y, with_status(between(total, REACH), total == 0)

    def outside(self, platform: Platform, status: Array, y: Array, x: Array) -> Array:
        """A window whose weights are all 0 gave y = 0 / 0, which its first element replaces."""

        def first(y: Array, x: Array) -> Array:
            return jnp.where(y == y, y, self._first(widened(x, self.window)))

        def scaled(y: Array, x: Array) -> Array:
            return self.scaled_in_chunks(platform, x)

        amended_y: Array = lax.cond(status == ALL_ZERO, first, scaled, y, x)
        return amended_y

    def _first(self, x: Array) -> Array:
        """The first element of each window inside the array, linear in x."""
        for dim in self.window.dims:
            before = min(dim.out, -(-dim.low // dim.stride))  # windows that begin in the padding
            begin, rest = before * dim.stride - dim.low, dim.out - before
            parts = []
            if before:
                edge = lax.slice_in_dim(x, 0, 1, axis=dim.axis)
                shape = resized(x.shape, [dim.axis], [before])
                parts.append(lax.broadcast_in_dim(edge, shape, range(x.ndim)))
            if rest:
                parts.append(slices.view(x, [dim.axis], [begin], [rest], [dim.stride]))
            x = slices.concatenate(parts, dim.axis)
        return x

    def _first_back(self, dy: Array) -> Array:
        """The transpose of `_first`."""
        like = slices.zeros_like(dy, self.window.axes, self.window.input_shape)
        dx: Array = jax.linear_transpose(self._first, like)(dy)[0]
        return dx

    def right(self, y: Array, x: Array) -> Array:
        total = sum_of(self.window, self._weights(x)[2])
        return jnp.logical_or(between(total, REACH), lax.stop_gradient(total) == 0)

    def direct_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        _, step, weight = self._weights(xs[0])
        total = sum_of(self.window, weight)
        first, once = sum_of(self.window, weight * dots[0]), sum_of(self.window, step * dots[0])
        mean = (2 * first - y * once) / jnp.where(total == 0, 1, total)
        return jnp.where(total == 0, self._first(dots[0]), mean)

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        total = sum_of(self.window, self._weights(xs[0])[2], stored=True)
        sure = between(total, REACH)
        (part,), statuses = share(dy, 1 / jnp.where(sure, total, 1), sure, total == 0)
        return (part, part * y), statuses

    def direct_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        _, step, weight = self._weights(xs[0])
        once = spread_of(self.window, shares[0], stored=True)
        dx = 2 * weight * once - step * spread_of(self.window, shares[1])
        return (dx.astype(xs[0].dtype),)

    def completed(
        self, platform: Platform, status: Array, dy: Array, shares: Shares, dxs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """If all weights of a window are 0, its first element receives the whole cotangent."""

        def more(dx: Array) -> Array:
            alone = jnp.where(shares[0] == 0, dy.astype(shares[0].dtype), 0)
            return dx + self._first_back(alone).astype(dx.dtype)

        return (amended(platform, status != ALL_ZERO, more, dxs[0]),)

    def _scaled_sums(self, weight: Array) -> tuple[Array, Array, Array]:
        """The largest weight m of each window, the total weight divided by m, and the mean divided by m."""
        high = highest(weight, self.window)

        def terms(weight: Array) -> tuple[Array, Array]:
            part = ratio(weight, high)
            return part, part * part

        total, square = gather(self.window, terms, (weight,))
        total = jnp.where(total == 0, 1, total)
        return high, total, square / total

    def scaled(self, x: Array) -> Array:
        wide, _, weight = self._weights(x)
        high, _, mean = self._scaled_sums(weight)
        y = jnp.where(high == 0, self._first(wide), high * mean)
        return jnp.where(jnp.isinf(high), high, y)

    def slope(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The slope of the weights. The infinite elements of a window share its cotangent."""
        weight = self._weights(x)[2]
        high, total, mean = self._scaled_sums(weight)
        infinite = sum_of(self.window, jnp.isinf(weight).astype(weight.dtype))
        infinite = lax.max(infinite, lax.full_like(infinite, 1))

        def slope(weight: Array) -> Array:
            usual = jnp.where(weight > 0, (2 * ratio(weight, high) - mean) / total, 0)
            return jnp.where(jnp.isinf(high), jnp.isinf(weight) / infinite, usual)

        return weight, slope

    def scaled_linear(self, xs: Any, dots: Any) -> Array:
        alone = highest(self._weights(xs[0])[2], self.window) == 0
        return jnp.where(alone, self._first(dots[0]), super().scaled_linear(xs, dots))

    def scaled_transpose(self, xs: Any, dy: Array) -> tuple[Array, ...]:
        alone = highest(self._weights(xs[0])[2], self.window) == 0
        (dx,) = super().scaled_transpose(xs, jnp.where(alone, 0, dy))
        return (dx + self._first_back(jnp.where(alone, dy, 0)).astype(dx.dtype),)
