"""Generalised-mean (GeM) pools, `mean(max(x, eps)^p)^(1/p)`.

The direct evaluation (`direct`) sums the powers. If a sum leaves the range of the dtype, the scaled evaluation
(`scaled`) divides by the element with the largest power. See `ranged` and `scaled`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._ops.moves import State, departure, divided, moved
from jaxpool._ops.power_pool import to
from jaxpool._ops.ranged import RangedOp, Shares, between, share, with_status
from jaxpool._ops.scaled import (
    Highest,
    Stages,
    in_stages,
    largest,
    spread_of,
    sum_of,
    summed_as,
    varies_along,
    widened,
    window_max,
    within,
)
from jaxpool._ops.sum_pool import element_counts


def _power(x: Array, p: Any) -> Array:
    """x^p for x > 0."""
    return to(x, p) if isinstance(p, float) else lax.exp(p * lax.log(x))


def _log_ratio(low: Array, high: Array) -> tuple[Array, Array]:
    """`log(low / high)` of positive numbers, or 0 if it is infinite, and where it is finite."""
    fixed, fixed_high = lax.stop_gradient(low), lax.stop_gradient(high)
    info = jnp.finfo(low.dtype)
    equal = fixed == fixed_high
    ratio = fixed / jnp.where(equal, 1, fixed_high)
    in_range = jnp.logical_and(ratio >= float(info.tiny), ratio <= float(info.max))
    steps = jnp.where(
        in_range, lax.log(jnp.where(in_range, ratio, 1)), lax.log(fixed) - lax.log(fixed_high)
    )
    steps = jnp.where(equal, 0, steps)
    bounded = jnp.logical_not(jnp.isinf(steps))
    tangent = departure(lax.log(jnp.where(bounded, low, 1)))
    tangent = tangent - departure(lax.log(jnp.where(bounded, high, 1)))
    return jnp.where(bounded, steps, 0) + tangent, bounded


def _means(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """Rescale the sum of `(x / high)^p`, and its sums with the factors `log(x / high)` and `log(x / high)^2`."""
    steps, bounded = _log_ratio(low, high)
    return moved(sums, jnp.where(bounded, lax.exp(p * steps), 0), steps)


def _excess(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """Rescale the number of elements, the sum of `(x / high)^p`, and the sum of `(x / high)^p - 1`."""
    count, total, more = sums
    steps, bounded = _log_ratio(low, high)
    factor = jnp.where(bounded, lax.exp(p * steps), 0)
    less = jnp.where(bounded, lax.expm1(p * steps), -1)
    return count, factor * total, factor * more + less * count


def _mean_slopes(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """Multiply the sums by `(low / high)^(p - 1)`."""
    steps, bounded = _log_ratio(low, high)
    weight = jnp.where(bounded, lax.exp((p - 1) * steps), 0)
    return tuple(weight * each for each in sums)


@dataclasses.dataclass(frozen=True)
class MeanPool(RangedOp):
    """`mean(max(x, eps)^p)^(1/p)`. If `p` is None, the power is an array and the second input."""

    window: Window
    p: float | None
    eps: float

    @property
    def inputs(self) -> int:
        return 1 if self.p is not None else 2

    def has_direct_evaluation(self, *extra_args: Array) -> bool:
        return not extra_args or not varies_along(extra_args[0], self.window)

    def _taken(self, x: Array, *extra_args: Array) -> tuple[Array, Any]:
        wide = widened(x, self.window)
        p = within(extra_args[0] if extra_args else self.p, wide.dtype)
        return lax.max(wide, lax.full_like(wide, self._least(wide))), p

    def _least(self, wide: Array) -> float:
        return max(self.eps, float(jnp.finfo(wide.dtype).tiny))

    def _share(self, x: Array, wide: Array) -> Array:
        """The derivative of `max(x, eps)`: 1/2 at eps, 0 below."""
        raw = x.astype(wide.dtype)
        return jnp.where(raw > self._least(wide), 1, jnp.where(raw == wide, 0.5, 0))

    def direct(self, x: Array, *extra_args: Array) -> tuple[Array, Array]:
        wide, p = self._taken(x, *extra_args)
        total = sum_of(self.window, _power(wide, p))
        mean = total / element_counts(self.window, "real", total)
        return lax.exp(lax.log(mean) / p), with_status(self._near(mean, p))

    def _near(self, mean: Array, p: Any) -> Array:
        return between(mean, 66) & (lax.abs(lax.stop_gradient(jnp.asarray(p))) > 2.0**-4)

    def right(self, y: Array, x: Array, *extra_args: Array) -> Array:
        p = within(extra_args[0] if extra_args else self.p, y.dtype)
        low = jnp.logical_and(between(y, 60), y > 0)
        fixed = lax.stop_gradient(jnp.where(low, y, 1))
        low = jnp.logical_and(low, between(_power(fixed, 1 - p), 60))
        return jnp.logical_and(low, self._near(_power(fixed, p), p))

    def _descent(self, y: Array, p: Any) -> Array:
        return _power(y, 1 - p) / element_counts(self.window, "real", y)

    def direct_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide, p = self._taken(*xs)
        weight, terms = _power(wide, p - 1), []
        if dots[0] is not None:
            x_dot = dots[0] * self._share(xs[0], wide)
            terms.append(sum_of(self.window, weight * x_dot) * self._descent(y, p))
        if dots[1:] and dots[1] is not None:
            heights = sum_of(self.window, weight * (wide * lax.log(wide))) * self._descent(y, p)
            terms.append((heights - y * lax.log(y)) * divided(dots[1], p))
        return sum(terms[1:], terms[0])

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        p = within(xs[1] if xs[1:] else self.p, y.dtype)
        right = self.right(y, *xs)
        return share(dy, self._descent(jnp.where(right, y, 1), p), right)

    def direct_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        wide, p = self._taken(*xs)
        whole = _power(wide, p - 1) * spread_of(self.window, *shares)
        cotangents = [(whole * self._share(xs[0], wide)).astype(xs[0].dtype)]
        if len(xs) == 2:
            # log(y) is a log-mean-exp of log(x) at the temperature 1 / p.
            heights = summed_as(whole * (wide * lax.log(wide)), p)
            cotangents.append(divided(heights - summed_as(dy * (y * lax.log(y)), p), p))
        return tuple(cotangents)

    def _stages(self, wide: Array, p: Any) -> Stages:
        return in_stages(wide, self.window, p, 0, self._highest(p))

    def _highest(self, p: Any) -> Highest:
        """The element of a window with the largest power: the maximum, or the minimum if p is negative."""

        def least(low: Array, window: Window) -> Array:
            return -window_max(-low, window, -np.inf)

        if isinstance(p, float):
            return largest(0) if p > 0 else least
        return lambda low, window: jnp.where(p > 0, window_max(low, window, 0), least(low, window))

    def scaled(self, x: Array, *extra_args: Array) -> Array:
        wide, p = self._taken(x, *extra_args)
        stages = self._stages(wide, p)
        if isinstance(p, float) and abs(p) >= 2.0**-4:
            (total,) = stages.gather((1.0,), _means)
            log = lax.log(total / element_counts(self.window, "real", total))
        else:  # log1p stays exact for p near 0, where the mean of the powers is nearly 1
            real = (wide == wide).astype(wide.dtype)  # equals 1, but XLA cannot fold it
            count, total, more = stages.gather((real, 1.0, 0.0), _excess)
            excess = more / count
            near_one = excess > -0.5
            far = lax.log(jnp.where(near_one, 1, total / count))
            log = jnp.where(near_one, lax.log1p(jnp.where(near_one, excess, 0)), far)
        is_infinite = jnp.isinf(stages.high)
        y = jnp.where(is_infinite, 1, stages.high) * lax.exp(
            divided(jnp.where(is_infinite, 0, log), p)
        )
        return jnp.where(is_infinite, np.inf, y)

    def slope(self, stages: Stages, y: Array, p: Array) -> Array:
        """The derivative of the output with respect to p."""
        tiny = math.sqrt(float(jnp.finfo(y.dtype).eps))
        total, first, second = stages.gather((1.0, 0.0, 0.0), _means)
        mean, square = first / total, second / total
        below, bounded = _log_ratio(y, stages.high)
        near = lax.abs(lax.stop_gradient(p * below)) < tiny
        apart = divided(mean - below, jnp.where(near, 1, p))
        steep = jnp.where(near, (square - mean * mean) / 2, apart)
        return jnp.where(bounded & jnp.logical_not(jnp.isinf(y)), y * steep, 0)

    def scaled_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide, p = self._taken(*xs)
        stages, terms = self._stages(wide, p), []
        if dots[0] is not None:
            x_dot = dots[0] * self._share(xs[0], wide)
            (total,) = stages.ending(y).gather((x_dot,), _mean_slopes)
            total = total / element_counts(self.window, "real", y)
            terms.append(jnp.where(jnp.isinf(y), 0, total))
        if dots[1:] and dots[1] is not None:
            terms.append(self.slope(stages, y, p) * dots[1])
        return sum(terms[1:], terms[0])

    def scaled_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        wide, p = self._taken(*xs)
        stages = self._stages(wide, p)
        steep = jnp.where(jnp.isinf(y), 0, dy / element_counts(self.window, "real", y))
        (dx,) = stages.ending(y).spread((steep,), _mean_slopes)
        cotangents = [(dx * self._share(xs[0], wide)).astype(xs[0].dtype)]
        if len(xs) == 2:
            cotangents.append(summed_as(dy * self.slope(stages, y, p), p))
        return tuple(cotangents)
