"""Logsumexp and softmax pools, each with a direct and a scaled evaluation against overflow (see `RangeCheckedOp`)."""

import dataclasses
import functools
import math

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import is_inf, scalar_like, where
from jaxpool._ops.op import Arrays
from jaxpool._ops.range_status import (
    Parameter,
    clip_value,
    divide,
    log2_within,
    range_status,
    scale_dy,
    zeros_with_tangent,
)
from jaxpool._ops.ranged import Pair, RangeCheckedOp, Slope, widen_elements

# Largest |log2| of a sum in range. The product of such a sum and a cotangent of similar size is a normal number.
MAX_LOG2 = 58
# `exp(-NEGLIGIBLE)` adds nothing to a sum in range.
NEGLIGIBLE = 200


@dataclasses.dataclass(frozen=True)
class SoftPool(RangeCheckedOp):
    """Base class of log-sum-exp and softmax pools. If `temperature` is None, the second input is the temperature.

    If `is_masked`, two bool arrays come last: a mask of windows whose elements are all masked, and the element mask.
    Windows in the first mask add 1 to their sum, to keep the sum in range, and return 0. Masked elements count as -inf.
    """

    temperature: float | None
    is_masked: bool = False

    @property
    def num_inputs(self) -> int:
        return 1 if self.temperature is not None else 2

    def _x_and_temperature(self, *xs: Array) -> tuple[Array, Parameter]:
        """x, with -inf for masked elements, and the temperature."""
        wide_x = self._fill_masked(widen_elements(xs[0], self.window), -np.inf, xs)
        temperature = xs[1] if self.temperature is None else self.temperature
        # `largest=0.25` keeps the inverse of the temperature normal.
        return wide_x, clip_value(temperature, wide_x.dtype, largest=0.25)

    def widen(self, *xs: Array) -> tuple[Array, Parameter]:
        """x and temperature for the direct evaluation. Masked elements become finite, to keep derivatives finite."""
        wide_x, temperature = self._x_and_temperature(*xs)
        if self.is_masked:
            floor = lax.stop_gradient(jnp.asarray(-NEGLIGIBLE * temperature, wide_x.dtype))
            wide_x = where(wide_x < floor, floor, wide_x)
        return wide_x, temperature

    def _fill_masked(self, x: Array, fill: float, xs: Arrays) -> Array:
        """x, with `fill` where the element mask in `xs` is False."""
        return where(xs[-1], x, fill) if self.is_masked else x

    def _add_empty(self, total: Array, xs: Arrays) -> Array:
        """The sums `total`, plus 1 for windows whose elements are all masked."""
        return total + xs[-2].astype(total.dtype) if self.is_masked else total

    def _zero_if_empty(self, y: Array, xs: Arrays) -> Array:
        """y, with 0 for windows whose elements are all masked."""
        return where(xs[-2], 0, y) if self.is_masked else y

    def elementwise_derivative(self, xs: Arrays, tangent: Array) -> Array:
        return self._fill_masked(tangent, 0, xs)

    def euler(self, x: Array) -> Array:
        """x, because the output is homogeneous of degree 1 in x and the temperature. Infinite elements become 0."""
        return where(is_inf(x), 0, x)

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def _moments(self, count: int, unit: float | None, *xs: Array) -> tuple[Array, ...]:
        """The maximum m of each window, and its sums of `w * ((x - m) / unit)^k` for k < `count`.

        w is `exp((x - m) / T)` for the temperature T. If `unit` is None, the unit is T.
        """
        wide_x, temperature = self._x_and_temperature(*xs)
        maximum = self.loops.max_per_window(wide_x, self.window)

        def terms(x: Array) -> tuple[Array, ...]:
            weight, difference = self._weight(x, maximum, temperature)
            ratio = divide(difference, temperature if unit is None else unit)
            return (weight, weight * ratio, weight * ratio * ratio)[:count]

        mask = xs[-1:] if self.is_masked else ()
        total, *moments = self.loops.sum_over_taps(self.window, terms, (wide_x,), *mask)
        return maximum, self._add_empty(total, xs), *moments

    def _weight(self, x: Array, maximum: Array, temperature: Parameter) -> tuple[Array, Array]:
        """`_weight`, with fewer instructions if nothing differentiates them and x is in the window of the maximum."""
        if not self.unrolls_taps:
            return _weight(x, maximum, temperature)
        difference = where(x == maximum, 0, x - maximum)
        # A number was clipped such that its inverse is normal.
        is_number = self.temperature is not None
        exponent = difference * (1 / temperature) if is_number else difference / temperature
        weight = lax.exp(exponent)
        return weight, where(weight == 0, 0, difference)


def _weight(x: Array, maximum: Array, temperature: Parameter) -> tuple[Array, Array]:
    """`exp((x - maximum) / temperature)` and `x - maximum`; both 0 if the first underflows, or x exceeds `maximum`."""
    info = jnp.finfo(x.dtype)
    # exp(-limit) is the smallest positive number.
    limit = math.log(2) * (info.nmant - info.minexp)
    fixed_x = lax.stop_gradient(x)
    # The difference of equal infinities would be NaN.
    difference = where(lax.eq(fixed_x, maximum), 0, lax.sub(fixed_x, maximum))
    exponents = lax.stop_gradient(difference / temperature)
    is_below = lax.lt(exponents, scalar_like(exponents, -limit))
    is_negligible = lax.bitwise_or(is_below, lax.gt(exponents, scalar_like(exponents, 0)))
    difference = where(is_negligible, 0, difference + zeros_with_tangent(x))
    return where(is_negligible, 0, lax.exp(divide(difference, temperature))), difference


class LogSumExpPool(SoftPool):
    """`temperature * log(sum of exp(x / temperature))`."""

    def direct_y(self, *xs: Array) -> tuple[Array, Array]:
        wide_x, temperature = self.widen(*xs)
        total = self._add_empty(self.sum_over(lax.exp(wide_x / temperature)), xs)
        y = temperature * lax.log(total)
        return y, range_status(self.is_accurate(y, *xs))

    def is_accurate(self, y: Array, *xs: Array) -> Array:
        temperature = self._x_and_temperature(*xs)[1]
        return lax.abs(lax.stop_gradient(y / temperature)) < MAX_LOG2 * math.log(2)

    def x_factor(self, x: Array, parameter: Parameter) -> Array:
        return lax.exp(divide(x, parameter))

    def y_factor(self, y: Array, parameter: Parameter) -> Array:
        return lax.exp(-divide(y, parameter))

    def scaled_y(self, *xs: Array) -> Array:
        maximum, total = self._moments(1, 1.0, *xs)
        temperature = self._x_and_temperature(*xs)[1]
        return self._zero_if_empty(maximum + temperature * lax.log(total), xs)

    def x_and_slope(self, *xs: Array) -> tuple[Array, Slope, tuple[Array, ...]]:
        wide_x, temperature = self._x_and_temperature(*xs)

        def slope(x: Array, maximum: Array, total: Array) -> Array:
            return self._weight(x, maximum, temperature)[0] / total

        return wide_x, slope, self._moments(1, 1.0, *xs)

    def parameter_slope(self, *xs: Array) -> Array:
        _, total, moment = self._moments(2, None, *xs)
        return lax.log(total) - moment / total


class SoftmaxPool(SoftPool):
    """The mean of x, weighted by `exp(x / temperature)`."""

    def direct_y(self, *xs: Array) -> tuple[Array, Array]:
        wide_x, temperature = self.widen(*xs)
        weight, total = self._weights(wide_x, temperature, xs)
        # An infinite element of weight 0 contributes 0, not NaN.
        moment = where(weight == 0, 0, wide_x * weight)
        return self.sum_over(moment) / total, range_status(log2_within(total, MAX_LOG2))

    def _weights(self, x: Array, temperature: Parameter, xs: Arrays) -> tuple[Array, Array]:
        """The exponentials, and their sum in each window."""
        # Weights out of range stay finite: their derivatives are multiplied by 0, and 0 times infinity is NaN.
        exponents = divide(x, temperature)
        weight = lax.exp(lax.min(exponents, scalar_like(exponents, 2 * MAX_LOG2 * math.log(2))))
        return weight, self._add_empty(self.sum_over(weight, stores_result=True), xs)

    def is_accurate(self, y: Array, *xs: Array) -> Array:
        """True where the exponent `x / temperature` of an element is in range."""
        wide_x, temperature = self._x_and_temperature(*xs)
        exponents = lax.stop_gradient(wide_x / temperature)
        in_range = lax.abs(exponents) < MAX_LOG2 * math.log(2)
        return in_range | (exponents <= -NEGLIGIBLE) if self.is_masked else in_range

    def x_jvp(self, xs: Arrays, x: Array, parameter: Parameter, y: Array, x_dot: Array) -> Array:
        weight, total = self._weights(x, parameter, xs)
        weighted_dot = weight * x_dot
        weighted_sum = self.sum_over(weighted_dot * (1 + divide(x, parameter)))
        return (weighted_sum - divide(y, parameter) * self.sum_over(weighted_dot)) / total

    def dy_shares(self, xs: Arrays, y: Array, dy: Array) -> tuple[Pair, Array]:
        wide_x, temperature = self.widen(*xs)
        total = self._weights(wide_x, temperature, xs)[1]
        in_range = log2_within(total, MAX_LOG2)
        part, statuses = scale_dy(dy, 1 / where(in_range, total, 1), in_range)
        return (part, part * (1 - divide(y, temperature))), statuses

    def x_vjp(self, x: Array, parameter: Parameter, shares: Pair) -> Array:
        spread_share = self.spread_over(shares[0], stores_result=True)
        moment = self.spread_over(shares[1])
        exponents = divide(x, parameter)
        weight = lax.exp(exponents)
        return weight * (moment + where(weight == 0, 0, exponents) * spread_share)

    def scaled_y(self, *xs: Array) -> Array:
        maximum, total, moment = self._moments(2, 1.0, *xs)
        return self._zero_if_empty(maximum + moment / total, xs)

    def x_and_slope(self, *xs: Array) -> tuple[Array, Slope, tuple[Array, ...]]:
        wide_x, temperature = self._x_and_temperature(*xs)
        unit = 1.0 if self.temperature == 1 else None  # shares the moments of `scaled_y`
        maximum, total, moment = self._moments(2, unit, *xs)

        def slope(x: Array, maximum: Array, total: Array, mean: Array) -> Array:
            weight, difference = self._weight(x, maximum, temperature)
            return weight * (1 + divide(difference, temperature) - mean) / total

        return wide_x, slope, (maximum, total, moment / total)

    def parameter_slope(self, *xs: Array) -> Array:
        _, total, moment, square = self._moments(3, None, *xs)
        mean, mean_square = moment / total, square / total
        return mean * mean - mean_square
