"""Pools of powers: generalised means."""

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
from jaxpool._ops.ranged import RangedOp, Shares, between, graded, share
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
    """x^p of numbers above 0."""
    return to(x, p) if isinstance(p, float) else lax.exp(p * lax.log(x))


def _log_ratio(low: Array, high: Array) -> tuple[Array, Array]:
    """`log(low / high)` of numbers above 0, and where it is finite; elsewhere 0."""
    fixed, around = lax.stop_gradient(low), lax.stop_gradient(high)
    info = jnp.finfo(low.dtype)
    level = fixed == around
    ratio = fixed / jnp.where(level, 1, around)
    near = jnp.logical_and(ratio >= float(info.tiny), ratio <= float(info.max))
    steps = jnp.where(near, lax.log(jnp.where(near, ratio, 1)), lax.log(fixed) - lax.log(around))
    steps = jnp.where(level, 0, steps)
    bounded = jnp.logical_not(jnp.isinf(steps))
    moving = departure(lax.log(jnp.where(bounded, low, 1)))
    moving = moving - departure(lax.log(jnp.where(bounded, high, 1)))
    return jnp.where(bounded, steps, 0) + moving, bounded


def _means(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """The sum of `(x / high)^p`, and of that times `log(x / high)` to the first and the second power."""
    steps, bounded = _log_ratio(low, high)
    return moved(sums, jnp.where(bounded, lax.exp(p * steps), 0), steps)


def _excess(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """How many elements there are, the sum of `(x / high)^p`, and how far that is from their number."""
    count, total, more = sums
    steps, bounded = _log_ratio(low, high)
    factor = jnp.where(bounded, lax.exp(p * steps), 0)
    less = jnp.where(bounded, lax.expm1(p * steps), -1)
    return count, factor * total, factor * more + less * count


def _mean_slopes(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """Terms weighed by `(low / high)^(p - 1)`."""
    steps, bounded = _log_ratio(low, high)
    weight = jnp.where(bounded, lax.exp((p - 1) * steps), 0)
    return tuple(weight * each for each in sums)


@dataclasses.dataclass(frozen=True)
class MeanPool(RangedOp):
    """`mean(max(x, eps)^p)^(1/p)`; `p` is None if an array comes with x."""

    window: Window
    p: float | None
    eps: float

    @property
    def inputs(self) -> int:
        """x, and the power if it is an array."""
        return 1 if self.p is not None else 2

    def is_plain(self, *given: Array) -> bool:
        return not given or not varies_along(given[0], self.window)

    def _taken(self, x: Array, *given: Array) -> tuple[Array, Any]:
        wide = widened(x, self.window)
        p = within(given[0] if given else self.p, wide.dtype)
        return lax.max(wide, lax.full_like(wide, self._least(wide))), p

    def _least(self, wide: Array) -> float:
        return max(self.eps, float(jnp.finfo(wide.dtype).tiny))

    def _share(self, x: Array, wide: Array) -> Array:
        """The derivative of `max(x, eps)`: half of it at eps, 0 below."""
        raw = x.astype(wide.dtype)
        return jnp.where(raw > self._least(wide), 1, jnp.where(raw == wide, 0.5, 0))

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, p = self._taken(x, *given)
        total = sum_of(self.window, _power(wide, p))
        mean = total / element_counts(self.window, "real", total)
        return lax.exp(lax.log(mean) / p), graded(self._near(mean, p))

    def _near(self, mean: Array, p: Any) -> Array:
        return between(mean, 66) & (lax.abs(lax.stop_gradient(jnp.asarray(p))) > 2.0**-4)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        p = within(given[0] if given else self.p, y.dtype)
        low = jnp.logical_and(between(y, 60), y > 0)
        fixed = lax.stop_gradient(jnp.where(low, y, 1))
        low = jnp.logical_and(low, between(_power(fixed, 1 - p), 60))
        return jnp.logical_and(low, self._near(_power(fixed, p), p))

    def _descent(self, y: Array, p: Any) -> Array:
        return _power(y, 1 - p) / element_counts(self.window, "real", y)

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide, p = self._taken(*xs)
        weight, found = _power(wide, p - 1), []
        if dots[0] is not None:
            x_dot = dots[0] * self._share(xs[0], wide)
            found.append(sum_of(self.window, weight * x_dot) * self._descent(y, p))
        if dots[1:] and dots[1] is not None:
            heights = sum_of(self.window, weight * (wide * lax.log(wide))) * self._descent(y, p)
            found.append((heights - y * lax.log(y)) * divided(dots[1], p))
        return sum(found[1:], found[0])

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        p = within(xs[1] if xs[1:] else self.p, y.dtype)
        right = self.right(y, *xs)
        return share(dy, self._descent(jnp.where(right, y, 1), p), right)

    def plain_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        wide, p = self._taken(*xs)
        whole = _power(wide, p - 1) * spread_of(self.window, *shares)
        found = [(whole * self._share(xs[0], wide)).astype(xs[0].dtype)]
        if len(xs) == 2:
            # log(x) and 1 / p are to log(y) what x and a temperature are to logsumexp.
            heights = summed_as(whole * (wide * lax.log(wide)), p)
            found.append(divided(heights - summed_as(dy * (y * lax.log(y)), p), p))
        return tuple(found)

    def _stages(self, wide: Array, p: Any) -> Stages:
        return in_stages(wide, self.window, p, 0, self._highest(p))

    def _highest(self, p: Any) -> Highest:
        """What has the largest power p: the largest, or of a negative power the least element."""

        def least(low: Array, window: Window) -> Array:
            return -window_max(-low, window, -np.inf)

        if isinstance(p, float):
            return largest(0) if p > 0 else least
        return lambda low, window: jnp.where(p > 0, window_max(low, window, 0), least(low, window))

    def careful(self, x: Array, *given: Array) -> Array:
        wide, p = self._taken(x, *given)
        stages = self._stages(wide, p)
        if isinstance(p, float) and abs(p) >= 2.0**-4:
            (total,) = stages.gather((1.0,), _means)
            log = lax.log(total / element_counts(self.window, "real", total))
        else:  # as exact near 0, where the mean is all but 1
            real = (wide == wide).astype(wide.dtype)  # 1, but not to XLA, which would fold the sums
            count, total, more = stages.gather((real, 1.0, 0.0), _excess)
            excess = more / count
            near = excess > -0.5
            far = lax.log(jnp.where(near, 1, total / count))
            log = jnp.where(near, lax.log1p(jnp.where(near, excess, 0)), far)
        endless = jnp.isinf(stages.high)
        y = jnp.where(endless, 1, stages.high) * lax.exp(divided(jnp.where(endless, 0, log), p))
        return jnp.where(endless, np.inf, y)

    def slope(self, stages: Stages, y: Array, p: Array) -> Array:
        """The derivative of the output to p."""
        tiny = math.sqrt(float(jnp.finfo(y.dtype).eps))
        total, first, second = stages.gather((1.0, 0.0, 0.0), _means)
        mean, square = first / total, second / total
        below, bounded = _log_ratio(y, stages.high)
        near = lax.abs(lax.stop_gradient(p * below)) < tiny
        apart = divided(mean - below, jnp.where(near, 1, p))
        steep = jnp.where(near, (square - mean * mean) / 2, apart)
        return jnp.where(bounded & jnp.logical_not(jnp.isinf(y)), y * steep, 0)

    def careful_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide, p = self._taken(*xs)
        stages, found = self._stages(wide, p), []
        if dots[0] is not None:
            x_dot = dots[0] * self._share(xs[0], wide)
            (total,) = stages.ending(y).gather((x_dot,), _mean_slopes)
            total = total / element_counts(self.window, "real", y)
            found.append(jnp.where(jnp.isinf(y), 0, total))
        if dots[1:] and dots[1] is not None:
            found.append(self.slope(stages, y, p) * dots[1])
        return sum(found[1:], found[0])

    def careful_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        wide, p = self._taken(*xs)
        stages = self._stages(wide, p)
        steep = jnp.where(jnp.isinf(y), 0, dy / element_counts(self.window, "real", y))
        (dx,) = stages.ending(y).spread((steep,), _mean_slopes)
        found = [(dx * self._share(xs[0], wide)).astype(xs[0].dtype)]
        if len(xs) == 2:
            found.append(summed_as(dy * self.slope(stages, y, p), p))
        return tuple(found)
