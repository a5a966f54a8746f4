"""Pools of powers, each with a direct and a scaled evaluation (against overflow and underflow; see `RangeCheckedOp`).

- `NormPool`: `(sum of |x|^p)^(1/p)`
- `MeanPool`, generalised mean (GeM): `mean(max(x, eps)^p)^(1/p)`

The scaled evaluation divides each window by its element with the largest power.
"""

import dataclasses
import functools
import math

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import (
    all_true_across_vmap,
    float_constant,
    full_like,
    is_inf,
    scalar_like,
    where,
)
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Arrays
from jaxpool._ops.range_status import (
    ALL_ZERO,
    Parameter,
    clip_value,
    divide,
    is_within,
    log2_within,
    range_status,
    ratio,
    scale_dy,
    zeros_with_tangent,
)
from jaxpool._ops.ranged import RangeCheckedOp, Slope, apply_ranged, widen_elements
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool, element_counts
from jaxpool._plan.problem import Platform

# Integer exponents up to this number use `lax.integer_pow`, which is differentiable at 0.
MAX_INTEGER_POWER = 16


def _power(x: Array, p: Parameter) -> Array:
    """`x^p` for positive x."""
    is_small_integer = isinstance(p, float) and p == int(p) and abs(p) <= MAX_INTEGER_POWER
    return lax.integer_pow(x, int(p)) if is_small_integer else lax.exp(p * lax.log(x))


def _abs_power(x: Array, p: float) -> Array:
    """`|x|^p`, with derivative 0 at x = 0 if the true derivative does not exist there."""
    if p == int(p) <= MAX_INTEGER_POWER:
        return lax.integer_pow(x if p % 2 == 0 else lax.abs(x), int(p))
    is_zero = lax.abs(x) < jnp.finfo(x.dtype).tiny
    # `jnp.where` would lose the varying mesh axes of an array without elements.
    nonzero_x = where(is_zero, 1, x)
    return where(is_zero, 0, lax.exp(p * lax.log(lax.abs(nonzero_x))))


def _root(total: Array, p: float) -> Array:
    return lax.sqrt(total) if p == 2 else lax.exp(lax.log(total) / p)


def _norm_slope(x: Array, p: float) -> Array:
    """The derivative of `|x|^p / p` with respect to x; 0 at x = 0."""
    if p == int(p) and p % 2 == 0 and p <= MAX_INTEGER_POWER:
        return lax.integer_pow(x, int(p) - 1)
    return lax.sign(x) * _abs_power(x, p - 1)


@dataclasses.dataclass(frozen=True)
class NormPool(RangeCheckedOp):
    """`(sum of |x|^p)^(1/p)` for finite p other than 1."""

    p: float

    def widen(self, x: Array) -> tuple[Array, float]:
        wide_x = widen_elements(x, self.window)
        return wide_x, clip_value(self.p, wide_x.dtype)

    def direct_y(self, x: Array) -> tuple[Array, Array]:
        wide_x, p = self.widen(x)
        y = _root(self.sum_over(_abs_power(wide_x, p)), p)
        return y, range_status(self._in_range(y, p), y == 0)

    def _in_range(self, y: Array, p: float) -> Array:
        # Powers by logarithms lose digits, so their bound is lower.
        max_log2 = 58.0 if p == int(p) <= MAX_INTEGER_POWER else 30.0
        return log2_within(y, min(max_log2 / p, 100.0))

    def fallback_y(self, platform: Platform, status: Array, y: Array, x: Array) -> Array:
        """Return y if y is 0 only in windows of zeros, or the scaled evaluation if powers underflow or overflow."""
        wide_x, p = self.widen(x)
        is_zero_or_large = (wide_x == 0) | (lax.abs(wide_x) > 2.0 ** -(100 / max(p, 1)))
        is_accurate = (status == ALL_ZERO) & all_true_across_vmap(is_zero_or_large)
        return lax.cond(is_accurate, lambda: y, lambda: self.scaled_in_chunks(platform, x))

    def is_accurate(self, y: Array, x: Array) -> Array:
        return self._is_slope_in_range(y) | (lax.stop_gradient(y) == 0)

    def _is_slope_in_range(self, y: Array) -> Array:
        p = clip_value(self.p, y.dtype)
        slope = _power(lax.stop_gradient(where(y == 0, 1, y)), 1 - p)
        return self._in_range(y, p) & log2_within(slope, 60)

    def x_factor(self, x: Array, parameter: float) -> Array:
        return _norm_slope(x, parameter)

    def y_factor(self, y: Array, parameter: Parameter) -> Array:
        """`y^(1 - p)`, or 1 where y is 0: all elements of such a window have slope 0."""
        return _power(where(y == 0, 1, y), 1 - parameter)

    def dy_shares(self, xs: Arrays, y: Array, dy: Array) -> tuple[Array, Array]:
        in_range = self._is_slope_in_range(y)
        slope = self.y_factor(where(in_range, y, 1), clip_value(self.p, y.dtype))
        return scale_dy(dy, slope, in_range, y == 0)

    @functools.partial(jax.jit, static_argnums=0)
    def _scaled_sums(self, x: Array) -> tuple[Array, Array]:
        """The largest magnitude m of each window, and `(sum of (|x| / m)^p)^(1/p)`, or 1 if m is 0 or infinite."""
        wide_x, p = self.widen(x)
        maximum = self.loops.max_per_window(lax.abs(wide_x), self.window)

        def term(x: Array) -> tuple[Array]:
            return (_abs_power(ratio(x, maximum), p),)

        (total,) = self.loops.sum_over_taps(self.window, term, (wide_x,))
        is_valid = ~((maximum == 0) | is_inf(maximum))
        return maximum, _root(where(is_valid, total, 1), p)

    def scaled_y(self, x: Array) -> Array:
        maximum, root = self._scaled_sums(x)
        return maximum * root

    def x_and_slope(self, x: Array) -> tuple[Array, Slope, tuple[Array, ...]]:
        wide_x, p = self.widen(x)

        def slope(x: Array, maximum: Array, root: Array) -> Array:
            is_flat = is_inf(x) | (x == 0)
            return where(is_flat, 0, _norm_slope(ratio(x, maximum) / root, p))

        return wide_x, slope, self._scaled_sums(x)


@functools.partial(jax.jit, static_argnums=(0, 1))
def norm(window: Window, p: float, x: Array) -> Array:
    """The p-norm of each window: the sum of |x| for p = 1, the maximum of |x| for p = inf."""
    if p not in (1, math.inf):
        return apply_ranged(NormPool(window, p), x)

    # `jax.checkpoint` saves x for the backward pass instead of the wider derivative of |x|.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def absolute_values(x: Array) -> Array:
        wide_x = widen_elements(x, window)
        # Not `lax.abs`, whose derivative at a NaN is -1: a NaN counts as positive.
        return where(wide_x == 0, 0, where(wide_x < 0, -wide_x, wide_x))

    if p == 1:
        return apply(SumPool(window), absolute_values(x)).astype(x.dtype)
    return apply(SelectPool(window, "max", "first"), absolute_values(x)).astype(x.dtype)


@functools.partial(jax.jit, inline=True)
def _log_ratio(x: Array, divisor: Array) -> tuple[Array, Array]:
    """`log(x / divisor)` of positive numbers, with 0 for infinite logarithms, and a mask of the finite logarithms."""
    fixed_x, fixed_divisor = lax.stop_gradient(x), lax.stop_gradient(divisor)
    info = jnp.finfo(x.dtype)
    equal = lax.eq(fixed_x, fixed_divisor)
    ratio = lax.div(fixed_x, where(equal, 1, fixed_divisor))
    in_range = is_within(ratio, float(info.tiny), float(info.max))
    log_ratio = where(
        in_range, lax.log(where(in_range, ratio, 1)), lax.log(fixed_x) - lax.log(fixed_divisor)
    )
    log_ratio = where(equal, 0, log_ratio)
    is_finite = lax.bitwise_not(is_inf(log_ratio))
    tangent = zeros_with_tangent(lax.log(where(is_finite, x, 1)))
    tangent = tangent - zeros_with_tangent(lax.log(where(is_finite, divisor, 1)))
    return where(is_finite, log_ratio, 0) + tangent, is_finite


@dataclasses.dataclass(frozen=True)
class MeanPool(RangeCheckedOp):
    """`mean(max(x, eps)^p)^(1/p)`. If `p` is None, the exponent is an array, the second input."""

    p: float | None
    eps: float
    sign = -1

    @property
    def can_unroll(self) -> bool:
        # Between 1 and 2, the slope of a ratio may be in range though the ratio underflows.
        return self.p is not None and (abs(self.p) == 1 or 2 <= abs(self.p) <= MAX_INTEGER_POWER)

    @property
    def _scales_by_division(self) -> bool:
        """True if the scaled evaluation takes powers of ratios, not of their logarithms."""
        if self.p is None or not self.can_unroll:
            return False
        return self.unrolls_taps or self.p == int(self.p)

    @property
    def num_inputs(self) -> int:
        return 1 if self.p is not None else 2

    def widen(self, x: Array, *extra_args: Array) -> tuple[Array, Parameter]:
        wide_x = widen_elements(x, self.window)
        p = clip_value(extra_args[0] if self.p is None else self.p, wide_x.dtype)
        return lax.max(wide_x, scalar_like(wide_x, self._min_value(wide_x))), p

    def _min_value(self, wide_x: Array) -> np.ndarray:
        return float_constant(max(self.eps, float(jnp.finfo(wide_x.dtype).tiny)), wide_x.dtype)

    def direct_y(self, x: Array, *extra_args: Array) -> tuple[Array, Array]:
        wide_x, p = self.widen(x, *extra_args)
        total = self.sum_over(_power(wide_x, p))
        mean = total / element_counts(self.window, "real", total)
        return lax.exp(lax.log(mean) / p), range_status(self._in_range(mean, p))

    def _in_range(self, mean: Array, p: Parameter) -> Array:
        return log2_within(mean, 66) & (lax.abs(lax.stop_gradient(jnp.asarray(p))) > 2.0**-4)

    def is_accurate(self, y: Array, x: Array, *extra_args: Array) -> Array:
        p = clip_value(extra_args[0] if self.p is None else self.p, y.dtype)
        in_range = log2_within(y, 60) & (y > 0)
        fixed_y = lax.stop_gradient(where(in_range, y, 1))
        in_range &= log2_within(_power(fixed_y, 1 - p), 60)
        return in_range & self._in_range(_power(fixed_y, p), p)

    def x_factor(self, x: Array, parameter: Parameter) -> Array:
        return _power(x, parameter - 1)

    def y_factor(self, y: Array, parameter: Parameter) -> Array:
        return _power(y, 1 - parameter) / element_counts(self.window, "real", y)

    def elementwise_derivative(self, xs: Arrays, tangent: Array) -> Array:
        """`tangent` times the derivative of `max(x, eps)`, which is 1/2 at x = eps and 0 below eps."""
        wide_x = self.widen(*xs)[0]
        raw_x = xs[0].astype(wide_x.dtype)
        slope = where(lax.eq(raw_x, wide_x), full_like(wide_x, 0.5), 0)
        is_above = lax.gt(raw_x, scalar_like(wide_x, self._min_value(wide_x)))
        return lax.mul(tangent, where(is_above, 1, slope))

    def euler(self, x: Array) -> Array:
        """`x * log(x)`, because log(y) is a log-mean-exp of log(x) at the temperature 1 / p."""
        return x * lax.log(x)

    def _extremum(self, wide_x: Array, p: Parameter) -> Array:
        """The element of each window with the largest power."""
        max_per_window = functools.partial(self.loops.max_per_window, window=self.window)
        if isinstance(p, float):
            return max_per_window(wide_x) if p > 0 else -max_per_window(-wide_x)
        return jnp.where(p > 0, max_per_window(wide_x), -max_per_window(-wide_x))

    def _extremum_and_log_mean(self, *xs: Array) -> tuple[Array, ...]:
        """The element m of each window with the largest power, and `log(y / m)` of the generalised mean y."""
        if not self._scales_by_division:
            return self._moments(0, *xs)
        wide_x, p = self.widen(*xs)
        extremum = self._extremum(wide_x, p)
        num_taps = element_counts(self.window, "real", extremum)
        unit = where(is_inf(extremum), 1, extremum)

        def power(x: Array) -> tuple[Array]:
            return (_power(x / unit, p),)

        (total,) = self.loops.sum_over_taps(self.window, power, (wide_x,))
        return extremum, lax.log(total / num_taps) / p

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def _moments(self, count: int, *xs: Array) -> tuple[Array, ...]:
        """`_extremum_and_log_mean` by logarithms, and moments.

        `count` further results are the means of `log(x / m)` and of its square, weighted by the powers.
        """
        wide_x, p = self.widen(*xs)
        extremum = self._extremum(wide_x, p)

        def terms(x: Array) -> tuple[Array, ...]:
            log_ratio, is_finite = _log_ratio(x, extremum)
            weight = where(is_finite, lax.exp(p * log_ratio), 0)
            excess = where(is_finite, lax.expm1(p * log_ratio), -1)
            return (weight, excess, weight * log_ratio, weight * log_ratio * log_ratio)[: 2 + count]

        total, excess_total, *moments = self.loops.sum_over_taps(self.window, terms, (wide_x,))
        # For p near 0, the mean of the powers is nearly 1, where `log1p` loses no digits.
        num_taps = element_counts(self.window, "real", total)
        excess = excess_total / num_taps
        near_one = excess > -0.5
        plain_log = lax.log(where(near_one, 1, total / num_taps))
        log_mean = where(near_one, lax.log1p(where(near_one, excess, 0)), plain_log)
        return extremum, divide(log_mean, p), *[moment / total for moment in moments]

    def scaled_y(self, *xs: Array) -> Array:
        return self._unscale(*self._extremum_and_log_mean(*xs))

    def _unscale(self, extremum: Array, log_mean: Array) -> Array:
        return where(is_inf(extremum), np.inf, extremum * lax.exp(log_mean))

    def x_and_slope(self, x: Array, *extra_args: Array) -> tuple[Array, Slope, tuple[Array, ...]]:
        """x in the accumulator dtype, and the slope function. The slope is 0 where the output is infinite."""
        wide_x, p = self.widen(x, *extra_args)
        extremum, log_mean = self._extremum_and_log_mean(x, *extra_args)
        infinite = is_inf(self._unscale(extremum, log_mean))
        num_taps = element_counts(self.window, "real", extremum)

        if self._scales_by_division:
            y = self._unscale(extremum, log_mean)

            def direct_slope(x: Array, y: Array, num_taps: Array) -> Array:
                power = _power(divide(x, y), p - 1)
                return where(is_inf(y), 0, where(lax.eq(y, y), power, y) / num_taps)

            return wide_x, direct_slope, (y, num_taps)

        def slope(
            x: Array, extremum: Array, log_mean: Array, infinite: Array, num_taps: Array
        ) -> Array:
            log_ratio, is_finite = _log_ratio(x, extremum)
            has_slope = is_finite & ~infinite
            log_ratio = where(has_slope, log_ratio - log_mean, 0)
            return where(has_slope, lax.exp((p - 1) * log_ratio), 0) / num_taps

        return wide_x, slope, (extremum, log_mean, infinite, num_taps)

    def parameter_slope(self, x: Array, *extra_args: Array) -> Array:
        p = self.widen(x, *extra_args)[1]
        extremum, log_mean, mean, square = self._moments(2, x, *extra_args)
        y = self._unscale(extremum, log_mean)
        near_0 = lax.abs(lax.stop_gradient(p * log_mean)) < math.sqrt(float(jnp.finfo(y.dtype).eps))
        quotient = divide(mean - log_mean, jnp.where(near_0, 1, p))
        slope = where(near_0, (square - mean * mean) / 2, quotient)
        return where(is_inf(y), 0, y * slope)
