"""Expected value of a stochastic pool: the mean of each window with the weights max(x, 0).

With w = max(x, 0) it is sum(w^2) / sum(w). If a sum leaves the range of the dtype, the scaled evaluation (`scaled`)
divides by the largest weight; see `ranged`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window, replace_sizes
from jaxpool._kernels import slices
from jaxpool._ops.moves import State, ratio
from jaxpool._ops.ranged import ALL_ZERO, RangedOp, Shares, amended, between, share, with_status
from jaxpool._ops.scaled import Stages, in_stages, largest, spread_of, sum_of, widened
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
                shape = replace_sizes(x.shape, [dim.axis], [before])
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

    def scaled(self, x: Array) -> Array:
        wide, _, weight = self._weights(x)
        stages, total = self._stages(weight)
        (square,) = stages.gather((1.0,), _squares)
        high = stages.high
        mean = high * (square / jnp.where(total == 0, 1, total))
        return jnp.where(jnp.isinf(high), high, jnp.where(high == 0, self._first(wide), mean))

    def _stages(self, weight: Array) -> tuple[Stages, Array]:
        """The stages, and the total of each window divided by its largest weight."""
        stages = in_stages(weight, self.window, 1.0, 0, largest(0))
        return stages, stages.gather((1.0,), _ratios)[0]

    def scaled_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        _, step, weight = self._weights(xs[0])
        stages, total = self._stages(weight)
        moving = step * dots[0]
        (first,) = stages.gather((moving,), _ratios)
        once = sum_of(self.window, moving)
        usual = (2 * first - _height(y, stages.high) * once) / jnp.where(total == 0, 1, total)
        is_infinite = jnp.isinf(weight)
        shared = sum_of(self.window, jnp.where(is_infinite, dots[0], 0)) / self._endless(weight)
        usual = jnp.where(stages.high == 0, self._first(dots[0]), usual)
        return jnp.where(jnp.isinf(stages.high), shared, usual)

    def scaled_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        _, step, weight = self._weights(xs[0])
        stages, total = self._stages(weight)
        high = stages.high
        usual = jnp.where(jnp.logical_or(high == 0, jnp.isinf(high)), 0, dy)
        usual = usual / jnp.where(total == 0, 1, total)
        (first,) = stages.spread((usual,), _ratios)
        once = spread_of(self.window, usual * _height(y, high))
        shared = jnp.where(jnp.isinf(high), dy, 0) / self._endless(weight)
        shared = jnp.where(jnp.isinf(weight), spread_of(self.window, shared), 0)
        alone = self._first_back(jnp.where(high == 0, dy, 0))
        return ((step * (2 * first - once) + shared + alone).astype(xs[0].dtype),)

    def _endless(self, weight: Array) -> Array:
        """The number of infinite elements of each window, at least 1."""
        count = sum_of(self.window, jnp.isinf(weight).astype(weight.dtype))
        return lax.max(count, lax.full_like(count, 1))


def _height(y: Array, high: Array) -> Array:
    """Return `y / high`, which is at most 1, or 0 if `high` is 0 or infinite."""
    usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
    return jnp.where(usual, y, 0) / jnp.where(usual, high, 1)


def _ratios(sums: Sequence[Array], low: Array, high: Array, rate: Any) -> State:
    """Multiply the sums by `low / high`, or by 0 if `high` is 0 or infinite."""
    return tuple(ratio(low, high) * each for each in sums)


def _squares(sums: Sequence[Array], low: Array, high: Array, rate: Any) -> State:
    """Multiply the sums by `(low / high)^2`, or by 0 if `high` is 0 or infinite."""
    return tuple(lax.square(ratio(low, high)) * each for each in sums)
