"""Logsumexp and softmax pools, each with the direct and the scaled evaluation of `RangedOp`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.tap_loop import max_per_window, sum_over_taps
from jaxpool._ops.ranged import (
    RangedOp,
    Shares,
    between,
    departure,
    divided,
    share,
    spread_of,
    sum_of,
    widened,
    with_status,
    within,
)

# Largest |log2| of a total in range. Its products with cotangents of similar size are normal numbers.
REACH = 58
# exp(-NOTHING) adds nothing to a total in range.
NOTHING = 200


@dataclasses.dataclass(frozen=True)
class SoftPool(RangedOp):
    """Base class of both pools. `temperature` is None if it is an array, the second input.

    If `masked`, two bool arrays come last. The first marks windows without any selected element: 1 is added to their
    totals, to keep them in range, and their output is 0. The second is the mask. Excluded elements count as -inf.
    """

    window: Window
    temperature: float | None
    masked: bool = False

    @property
    def inputs(self) -> int:
        """x, and the temperature if it is an array."""
        return 1 if self.temperature is not None else 2

    def _taken(self, x: Array, *extra_args: Array) -> tuple[Array, Any]:
        wide = self._counted(widened(x, self.window), -np.inf, *extra_args)
        temperature = extra_args[0] if self.temperature is None else self.temperature
        return wide, within(temperature, wide.dtype, largest=0.25)  # its inverse is normal

    def _counted(self, x: Array, fill: float, *extra_args: Array) -> Array:
        """x with `fill` where the mask is False."""
        return jnp.where(extra_args[-1], x, fill) if self.masked else x

    def prepared(self, x: Array, *extra_args: Array) -> tuple[Array, Any]:
        """x and temperature of the direct evaluation. Excluded elements are finite, and so are their derivatives."""
        wide, temperature = self._taken(x, *extra_args)
        if self.masked:
            floor = lax.stop_gradient(jnp.asarray(-NOTHING * temperature, wide.dtype))
            wide = jnp.where(wide < floor, floor, wide)
        return wide, temperature

    def _total(self, weight: Array, *extra_args: Array, stored: bool = False) -> Array:
        """The sum of the exponentials of each window."""
        total = sum_of(self.window, weight, stored=stored)
        return total + extra_args[-2].astype(total.dtype) if self.masked else total

    def _of_some(self, y: Array, *extra_args: Array) -> Array:
        """y with 0 for windows without a selected element."""
        return jnp.where(extra_args[-2], 0, y) if self.masked else y

    def elementwise(self, xs: Any, change: Array) -> Array:
        return self._counted(change, 0, *xs[1:])

    def euler(self, x: Array) -> Array:
        """The output is homogeneous of degree 1 in x and the temperature. Infinite elements have weight 0 here."""
        return jnp.where(jnp.isinf(x), 0, x)

    def _moments(
        self, x: Array, temperature: Any, count: int, unit: Any, *extra_args: Array
    ) -> tuple[Array, ...]:
        """The maximum m of each window, and sums of `exp((x - m) / temperature)` times powers of `(x - m) / unit`."""
        high = max_per_window(x, self.window)

        def terms(x: Array) -> tuple[Array, ...]:
            weight, height = _weight(x, high, temperature)
            steps = divided(height, unit)
            return (weight, weight * steps, weight * steps * steps)[:count]

        total, *rest = sum_over_taps(
            self.window, terms, (x,), *extra_args[-1:] if self.masked else ()
        )
        return high, total + extra_args[-2].astype(x.dtype) if self.masked else total, *rest


def _weight(x: Array, high: Array, temperature: Any) -> tuple[Array, Array]:
    """`exp((x - high) / temperature)` and `x - high`. Both are 0 if the exponential is, or if x exceeds `high`."""
    info = jnp.finfo(x.dtype)
    # exp(-limit) is the smallest positive number.
    limit = math.log(2) * (info.nmant - info.minexp)
    fixed = lax.stop_gradient(x)
    # The difference of equal infinities would be NaN.
    height = jnp.where(fixed == high, 0, fixed - high)
    far = lax.stop_gradient(height / temperature)
    far = jnp.logical_or(far < -limit, far > 0)
    height = jnp.where(far, 0, height + departure(x))
    return jnp.where(far, 0, lax.exp(divided(height, temperature))), height


class LogSumExpPool(SoftPool):
    """`temperature * log(sum of exp(x / temperature))`."""

    def direct(self, x: Array, *extra_args: Array) -> tuple[Array, Array]:
        wide, temperature = self.prepared(x, *extra_args)
        y = temperature * lax.log(self._total(lax.exp(wide / temperature), *extra_args))
        right = self.right(y, x, *extra_args)
        return y, with_status(right)

    def right(self, y: Array, x: Array, *extra_args: Array) -> Array:
        temperature = self._taken(x, *extra_args)[1]
        return lax.abs(lax.stop_gradient(y / temperature)) < REACH * math.log(2)

    def weight(self, x: Array, parameter: Any) -> Array:
        return lax.exp(divided(x, parameter))

    def descent(self, y: Array, parameter: Any) -> Array:
        return lax.exp(-divided(y, parameter))

    def scaled(self, x: Array, *extra_args: Array) -> Array:
        wide, temperature = self._taken(x, *extra_args)
        high, total = self._moments(wide, temperature, 1, 1.0, *extra_args)
        return self._of_some(high + temperature * lax.log(total), *extra_args)

    def slope(self, x: Array, *extra_args: Array) -> tuple[Array, Callable[[Array], Array]]:
        wide, temperature = self._taken(x, *extra_args)
        high, total = self._moments(wide, temperature, 1, 1.0, *extra_args)
        return wide, lambda x: _weight(x, high, temperature)[0] / total

    def parameter_slope(self, x: Array, *extra_args: Array) -> Array:
        wide, temperature = self._taken(x, *extra_args)
        _, total, moment = self._moments(wide, temperature, 2, temperature, *extra_args)
        return lax.log(total) - moment / total


class SoftmaxPool(SoftPool):
    """The mean of x, weighted by `exp(x / temperature)`."""

    def direct(self, x: Array, *extra_args: Array) -> tuple[Array, Array]:
        wide, temperature = self.prepared(x, *extra_args)
        weight, total = self._weights(wide, temperature, *extra_args)
        # An infinite element of weight 0 contributes 0, not NaN.
        moment = jnp.where(weight == 0, 0, wide * weight)
        return sum_of(self.window, moment) / total, with_status(between(total, REACH))

    def _weights(self, x: Array, temperature: Any, *extra_args: Array) -> tuple[Array, Array]:
        # Weights out of range stay finite, because their derivatives are multiplied by 0.
        steps = divided(x, temperature)
        weight = lax.exp(lax.min(steps, lax.full_like(steps, 2 * REACH * math.log(2))))
        return weight, self._total(weight, *extra_args, stored=True)

    def right(self, y: Array, x: Array, *extra_args: Array) -> Array:
        """Mask of the elements whose exponents are in range."""
        wide, temperature = self._taken(x, *extra_args)
        steps = lax.stop_gradient(wide / temperature)
        near = lax.abs(steps) < REACH * math.log(2)
        return jnp.logical_or(near, steps <= -NOTHING) if self.masked else near

    def pushed(self, x: Array, parameter: Any, y: Array, x_dot: Array, *extra_args: Array) -> Array:
        weight, total = self._weights(x, parameter, *extra_args)
        weighed = weight * x_dot
        first = sum_of(self.window, weighed * (1 + divided(x, parameter)))
        return (first - divided(y, parameter) * sum_of(self.window, weighed)) / total

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        wide, temperature = self.prepared(*xs)
        total = self._weights(wide, temperature, *xs[1:])[1]
        right = between(total, REACH)
        (part,), statuses = share(dy, 1 / jnp.where(right, total, 1), right)
        return (part, part * (1 - divided(y, temperature))), statuses

    def pulled(self, x: Array, parameter: Any, shares: Shares) -> Array:
        once = spread_of(self.window, shares[0], stored=True)
        moment = spread_of(self.window, shares[1])
        steps = divided(x, parameter)
        weight = lax.exp(steps)
        return weight * (moment + jnp.where(weight == 0, 0, steps) * once)

    def scaled(self, x: Array, *extra_args: Array) -> Array:
        wide, temperature = self._taken(x, *extra_args)
        high, total, moment = self._moments(wide, temperature, 2, 1.0, *extra_args)
        return self._of_some(high + moment / total, *extra_args)

    def slope(self, x: Array, *extra_args: Array) -> tuple[Array, Callable[[Array], Array]]:
        wide, temperature = self._taken(x, *extra_args)
        high, total, moment = self._moments(wide, temperature, 2, temperature, *extra_args)
        mean = moment / total

        def slope(x: Array) -> Array:
            weight, height = _weight(x, high, temperature)
            return weight * (1 + divided(height, temperature) - mean) / total

        return wide, slope

    def parameter_slope(self, x: Array, *extra_args: Array) -> Array:
        wide, temperature = self._taken(x, *extra_args)
        _, total, *sums = self._moments(wide, temperature, 3, temperature, *extra_args)
        mean, square = (each / total for each in sums)
        return mean * mean - square
