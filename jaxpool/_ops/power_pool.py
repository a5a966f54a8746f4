"""Pools of powers, with the direct and the scaled evaluation of `RangedOp`.

- `NormPool`: `(sum of |x|^p)^(1/p)`
- `MeanPool`, generalised mean (GeM): `mean(max(x, eps)^p)^(1/p)`
- `ExpectedPool`: `sum(w^2) / sum(w)` with w = max(x, 0)

The scaled evaluation divides by the element of the window with the largest power.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window, replace_sizes
from jaxpool._kernels import slices
from jaxpool._kernels.predicates import all_true_across_vmap
from jaxpool._kernels.tap_loop import max_per_window, sum_over_taps
from jaxpool._ops.apply import apply
from jaxpool._ops.ranged import (
    ALL_ZERO,
    RangedOp,
    Shares,
    amended,
    between,
    departure,
    divided,
    ranged,
    ratio,
    share,
    spread_of,
    sum_of,
    widened,
    with_status,
    within,
)
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import element_counts
from jaxpool._plan.problem import Platform

# Integer powers up to this exponent are products, so that they are smooth at 0.
POLYNOMIAL = 16
# log2 of the largest total weight for the direct evaluation of an `ExpectedPool`: its square is in range too.
TOTAL_REACH = 44


def _power(x: Array, p: Any) -> Array:
    """x^p for x > 0."""
    whole = isinstance(p, float) and p == int(p) and abs(p) <= POLYNOMIAL
    return lax.integer_pow(x, int(p)) if whole else lax.exp(p * lax.log(x))


def _size_to(x: Array, p: float) -> Array:
    """`|x|^p`, with derivative 0 at 0 if it has none."""
    if p == int(p) <= POLYNOMIAL:
        return lax.integer_pow(x if p % 2 == 0 else lax.abs(x), int(p))
    none = lax.abs(x) < jnp.finfo(x.dtype).tiny
    # `jnp.where` would lose the varying mesh axes of an array without elements.
    some = lax.select(none, lax.full_like(x, 1), x)
    return lax.select(none, lax.full_like(x, 0), lax.exp(p * lax.log(lax.abs(some))))


def _reach(p: float) -> float:
    """Largest |log2| of a total in range. It is lower for powers by logarithms, which lose digits."""
    return 58.0 if p == int(p) <= POLYNOMIAL else 30.0


def _root(total: Array, p: float) -> Array:
    return lax.sqrt(total) if p == 2 else lax.exp(lax.log(total) / p)


def _norm_slope(x: Array, p: float) -> Array:
    """The derivative of `|x|^p / p`; 0 at 0."""
    if p == int(p) and p % 2 == 0 and p <= POLYNOMIAL:
        return lax.integer_pow(x, int(p) - 1)
    return lax.sign(x) * _size_to(x, p - 1)


@dataclasses.dataclass(frozen=True)
class NormPool(RangedOp):
    """`(sum of |x|^p)^(1/p)` for finite p other than 1."""

    window: Window
    p: float

    def prepared(self, x: Array) -> tuple[Array, float]:
        wide = widened(x, self.window)
        return wide, within(self.p, wide.dtype)

    def direct(self, x: Array) -> tuple[Array, Array]:
        wide, p = self.prepared(x)
        y = _root(sum_of(self.window, _size_to(wide, p)), p)
        return y, with_status(self._near(y, p), y == 0)

    def _near(self, y: Array, p: float) -> Array:
        return between(y, min(_reach(p) / p, 100.0))

    def outside(self, platform: Platform, status: Array, y: Array, x: Array) -> Array:
        """y, if it is 0 only for windows of zeros; the scaled evaluation, if powers underflow or overflow."""
        wide, p = self.prepared(x)
        usual = jnp.logical_or(wide == 0, lax.abs(wide) > 2.0 ** -(100 / max(p, 1)))
        right = jnp.logical_and(status == ALL_ZERO, all_true_across_vmap(usual))
        result: Array = lax.cond(
            right, lambda y, x: y, lambda y, x: self.scaled_in_chunks(platform, x), y, x
        )
        return result

    def right(self, y: Array, x: Array) -> Array:
        return jnp.logical_or(self._steady(y), lax.stop_gradient(y) == 0)

    def _steady(self, y: Array) -> Array:
        p = within(self.p, y.dtype)
        slope = _power(lax.stop_gradient(jnp.where(y == 0, 1, y)), 1 - p)
        return jnp.logical_and(self._near(y, p), between(slope, 60))

    def weight(self, x: Array, parameter: Any) -> Array:
        return _norm_slope(x, parameter)

    def descent(self, y: Array, parameter: Any) -> Array:
        """`y^(1 - p)`; 1 if y is 0, whose elements have slope 0."""
        return _power(jnp.where(y == 0, 1, y), 1 - parameter)

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        sure = self._steady(y)
        slope = self.descent(jnp.where(sure, y, 1), within(self.p, y.dtype))
        return share(dy, slope, sure, y == 0)

    def _scaled_sums(self, wide: Array, p: float) -> tuple[Array, Array]:
        """The largest size m of each window, and `(sum of (|x| / m)^p)^(1/p)`; 1 if m is 0 or infinite."""
        high = max_per_window(lax.abs(wide), self.window)

        def term(x: Array) -> tuple[Array]:
            return (_size_to(ratio(x, high), p),)

        (total,) = sum_over_taps(self.window, term, (wide,))
        usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
        return high, _root(jnp.where(usual, total, 1), p)

    def scaled(self, x: Array) -> Array:
        high, root = self._scaled_sums(*self.prepared(x))
        return high * root

    def slope(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        wide, p = self.prepared(x)
        high, root = self._scaled_sums(wide, p)

        def slope(x: Array) -> Array:
            still = jnp.logical_or(jnp.isinf(x), x == 0)
            return jnp.where(still, 0, _norm_slope(ratio(x, high) / root, p))

        return wide, slope


@functools.partial(jax.jit, static_argnums=(0, 1))
def norm(window: Window, p: float, x: Array) -> Array:
    """The p-norm of each window: the sum of |x| for p = 1, the maximum of |x| for p = inf."""
    if p not in (1, math.inf):
        y: Array = ranged(NormPool(window, p), x)
        return y

    # The residual is x, not the derivative of |x| in the dtype of sums.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def sizes(x: Array) -> Array:
        wide = widened(x, window)
        return jnp.where(wide == 0, 0, lax.abs(wide))

    if p == 1:
        return sum_of(window, sizes(x)).astype(x.dtype)
    return apply(SelectPool(window, "max", "first"), "jvp", sizes(x)).astype(x.dtype)


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


@dataclasses.dataclass(frozen=True)
class MeanPool(RangedOp):
    """`mean(max(x, eps)^p)^(1/p)`. If `p` is None, the power is an array and the second input."""

    window: Window
    p: float | None
    eps: float
    sign = -1

    @property
    def inputs(self) -> int:
        return 1 if self.p is not None else 2

    def prepared(self, x: Array, *extra_args: Array) -> tuple[Array, Any]:
        wide = widened(x, self.window)
        p = within(extra_args[0] if extra_args else self.p, wide.dtype)
        return lax.max(wide, lax.full_like(wide, self._least(wide))), p

    def _least(self, wide: Array) -> float:
        return max(self.eps, float(jnp.finfo(wide.dtype).tiny))

    def direct(self, x: Array, *extra_args: Array) -> tuple[Array, Array]:
        wide, p = self.prepared(x, *extra_args)
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

    def weight(self, x: Array, parameter: Any) -> Array:
        return _power(x, parameter - 1)

    def descent(self, y: Array, parameter: Any) -> Array:
        return _power(y, 1 - parameter) / element_counts(self.window, "real", y)

    def elementwise(self, xs: Any, change: Array) -> Array:
        """`change` times the derivative of `max(x, eps)`: 1/2 at eps, 0 below."""
        wide = self.prepared(*xs)[0]
        raw = xs[0].astype(wide.dtype)
        slope = jnp.where(raw > self._least(wide), 1, jnp.where(raw == wide, 0.5, 0))
        return change * slope

    def euler(self, x: Array) -> Array:
        """log(y) is a log-mean-exp of log(x) at the temperature 1 / p."""
        return x * lax.log(x)

    def _moments(self, wide: Array, p: Any, count: int) -> tuple[Array, ...]:
        """The element m of each window with the largest power, and the logarithm of the mean divided by m.

        `count` further results are the means of `log(x / m)` and of its square, weighted by the powers.
        """
        high = jnp.where(
            p > 0, max_per_window(wide, self.window), -max_per_window(-wide, self.window)
        )

        def terms(x: Array) -> tuple[Array, ...]:
            steps, bounded = _log_ratio(x, high)
            weight = jnp.where(bounded, lax.exp(p * steps), 0)
            less = jnp.where(bounded, lax.expm1(p * steps), -1)
            return (weight, less, weight * steps, weight * steps * steps)[: 2 + count]

        total, less, *moments = sum_over_taps(self.window, terms, (wide,))
        # For p near 0 the mean of the powers is nearly 1, and log1p exact.
        taps = element_counts(self.window, "real", total)
        excess = less / taps
        near_one = excess > -0.5
        far = lax.log(jnp.where(near_one, 1, total / taps))
        log = jnp.where(near_one, lax.log1p(jnp.where(near_one, excess, 0)), far)
        return high, divided(log, p), *[moment / total for moment in moments]

    def scaled(self, x: Array, *extra_args: Array) -> Array:
        return self._raised(*self._moments(*self.prepared(x, *extra_args), 0))

    def _raised(self, high: Array, below: Array) -> Array:
        return jnp.where(jnp.isinf(high), np.inf, high * lax.exp(below))

    def slope(self, x: Array, *extra_args: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The slope is 0 if the output is infinite."""
        wide, p = self.prepared(x, *extra_args)
        high, below = self._moments(wide, p, 0)
        infinite = jnp.isinf(self._raised(high, below))
        taps = element_counts(self.window, "real", high)

        def slope(x: Array) -> Array:
            steps, bounded = _log_ratio(x, high)
            moves = jnp.logical_and(bounded, jnp.logical_not(infinite))
            steps = jnp.where(moves, steps - below, 0)
            return jnp.where(moves, lax.exp((p - 1) * steps), 0) / taps

        return wide, slope

    def parameter_slope(self, x: Array, *extra_args: Array) -> Array:
        wide, p = self.prepared(x, *extra_args)
        high, below, mean, square = self._moments(wide, p, 2)
        y = self._raised(high, below)
        near = lax.abs(lax.stop_gradient(p * below)) < math.sqrt(float(jnp.finfo(y.dtype).eps))
        apart = divided(mean - below, jnp.where(near, 1, p))
        steep = jnp.where(near, (square - mean * mean) / 2, apart)
        return jnp.where(jnp.isinf(y), 0, y * steep)


@dataclasses.dataclass(frozen=True)
class ExpectedPool(RangedOp):
    """The mean of each window with the weights max(x, 0), or its first element if all weights are 0.

    With w = max(x, 0) it is `sum(w^2) / sum(w)`, the expected value of a stochastic pool.
    """

    window: Window

    def _weights(self, x: Array) -> tuple[Array, Array, Array]:
        """Return x, the derivative of its weight (1 or 0), and its weight max(x, 0)."""
        wide = widened(x, self.window)
        return wide, (wide > 0).astype(wide.dtype), lax.max(wide, lax.full_like(wide, 0))

    def direct(self, x: Array) -> tuple[Array, Array]:
        weight = self._weights(x)[2]
        total = sum_of(self.window, weight, stored=True)
        y = sum_of(self.window, weight * weight) / total
        return y, with_status(between(total, TOTAL_REACH), total == 0)

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
                parts.append(slices.strided_slice(x, [dim.axis], [begin], [rest], [dim.stride]))
            x = slices.concatenate(parts, dim.axis)
        return x

    def _first_back(self, dy: Array) -> Array:
        """The transpose of `_first`."""
        like = slices.zeros_like_with_sizes(dy, self.window.axes, self.window.input_shape)
        dx: Array = jax.linear_transpose(self._first, like)(dy)[0]
        return dx

    def right(self, y: Array, x: Array) -> Array:
        total = sum_of(self.window, self._weights(x)[2])
        return jnp.logical_or(between(total, TOTAL_REACH), lax.stop_gradient(total) == 0)

    def direct_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        _, step, weight = self._weights(xs[0])
        total = sum_of(self.window, weight)
        first, once = sum_of(self.window, weight * dots[0]), sum_of(self.window, step * dots[0])
        mean = (2 * first - y * once) / jnp.where(total == 0, 1, total)
        return jnp.where(total == 0, self._first(dots[0]), mean)

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        total = sum_of(self.window, self._weights(xs[0])[2], stored=True)
        sure = between(total, TOTAL_REACH)
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
        high = max_per_window(weight, self.window)

        def terms(weight: Array) -> tuple[Array, Array]:
            part = ratio(weight, high)
            return part, part * part

        total, square = sum_over_taps(self.window, terms, (weight,))
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
            return jnp.where(
                jnp.isinf(high), jnp.isinf(weight).astype(weight.dtype) / infinite, usual
            )

        return weight, slope

    def scaled_linear(self, xs: Any, dots: Any) -> Array:
        alone = max_per_window(self._weights(xs[0])[2], self.window) == 0
        return jnp.where(alone, self._first(dots[0]), super().scaled_linear(xs, dots))

    def scaled_transpose(self, xs: Any, dy: Array) -> tuple[Array, ...]:
        alone = max_per_window(self._weights(xs[0])[2], self.window) == 0
        (dx,) = super().scaled_transpose(xs, jnp.where(alone, 0, dy))
        return (dx + self._first_back(jnp.where(alone, dy, 0)).astype(dx.dtype),)
