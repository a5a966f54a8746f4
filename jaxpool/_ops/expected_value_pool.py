"""The expected value of a stochastic pool: the mean of each window with the weights max(x, 0)."""

import dataclasses

import jax
from jax import Array, lax

from jaxpool._geometry.window import replace_sizes
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import is_inf, scalar_like, where
from jaxpool._ops.op import Arrays
from jaxpool._ops.range_status import (
    ALL_ZERO,
    is_medium,
    log2_within,
    range_status,
    ratio,
    scale_dy,
)
from jaxpool._ops.ranged import Pair, RangeCheckedOp, Slope, amend_unless, widen_elements
from jaxpool._plan.problem import Platform

# log2 of the largest total weight that `ExpectedValuePool` evaluates directly. The squared total is in range too.
MAX_LOG2_WEIGHT = 44


@dataclasses.dataclass(frozen=True)
class ExpectedValuePool(RangeCheckedOp):
    """The mean of each window with the weights w = max(x, 0), or its first element if all weights are 0.

    The weighted mean is `sum(w^2) / sum(w)`, the expected value of a stochastic pool.
    """

    def _weights(self, x: Array) -> tuple[Array, Array, Array]:
        """Return x, the derivative (1 or 0) of the weight max(x, 0), and the weight."""
        wide_x = widen_elements(x, self.window)
        return wide_x, (wide_x > 0).astype(wide_x.dtype), lax.max(wide_x, scalar_like(wide_x, 0))

    def direct_y(self, x: Array) -> tuple[Array, Array]:
        weight = self._weights(x)[2]
        total = self.sum_over(weight, stores_result=True)
        y = self.sum_over(weight * weight) / total
        return y, range_status(log2_within(total, MAX_LOG2_WEIGHT), total == 0)

    def fallback_y(self, platform: Platform, status: Array, y: Array, x: Array) -> Array:
        """Replace y = 0 / 0 by the first element in windows of zero weights, or use the scaled evaluation."""

        def replace_nan() -> Array:
            return where(y == y, y, self._first_elements(widen_elements(x, self.window)))

        return lax.cond(status == ALL_ZERO, replace_nan, lambda: self.scaled_in_chunks(platform, x))

    def _first_elements(self, x: Array) -> Array:
        """The first element of each window that is not padding, as a linear function of x."""
        for dim in self.window.dims:
            # Windows that begin in the padding have the first element of x as their first element.
            num_early = min(dim.out, -(-dim.low // dim.stride))
            begin, num_rest = num_early * dim.stride - dim.low, dim.out - num_early
            parts = []
            if num_early:
                edge = lax.slice_in_dim(x, 0, 1, axis=dim.axis)
                shape = replace_sizes(x.shape, [dim.axis], [num_early])
                parts.append(lax.broadcast_in_dim(edge, shape, range(x.ndim)))
            if num_rest:
                parts.append(slices.strided_slice(x, [dim.axis], [begin], [num_rest], [dim.stride]))
            x = slices.concatenate(parts, dim.axis)
        return x

    def _first_elements_transpose(self, dy: Array) -> Array:
        """The transpose of `_first_elements`."""
        like = slices.zeros_like_with_sizes(dy, self.window.axes, self.window.input_shape)
        dx: Array = jax.linear_transpose(self._first_elements, like)(dy)[0]
        return dx

    def is_accurate(self, y: Array, x: Array) -> Array:
        return is_medium(self.sum_over(self._weights(x)[2]), MAX_LOG2_WEIGHT)

    def direct_linear(self, xs: Arrays, y: Array, tangents: Arrays) -> Array:
        _, step, weight = self._weights(xs[0])
        (x_dot,) = tangents
        total = self.sum_over(weight)
        weight_sum = self.sum_over(weight * x_dot)
        step_sum = self.sum_over(step * x_dot)
        mean = (2 * weight_sum - y * step_sum) / where(total == 0, 1, total)
        return where(total == 0, self._first_elements(x_dot), mean)

    def dy_shares(self, xs: Arrays, y: Array, dy: Array) -> tuple[Pair, Array]:
        total = self.sum_over(self._weights(xs[0])[2], stores_result=True)
        in_range = log2_within(total, MAX_LOG2_WEIGHT)
        part, statuses = scale_dy(dy, 1 / where(in_range, total, 1), in_range, total == 0)
        return (part, part * y), statuses

    def direct_transpose(self, xs: Arrays, y: Array, dy: Array, shares: Pair) -> tuple[Array, ...]:
        _, step, weight = self._weights(xs[0])
        spread_share = self.spread_over(shares[0], stores_result=True)
        dx = 2 * weight * spread_share - step * self.spread_over(shares[1])
        return (dx.astype(xs[0].dtype),)

    def complete_cotangents(
        self, platform: Platform, status: Array, dy: Array, shares: Pair, dxs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """If all weights of a window are 0, its first element receives the whole cotangent."""

        def add_first_elements(dx: Array) -> Array:
            zero_window_dy = where(shares[0] == 0, dy.astype(shares[0].dtype), 0)
            return dx + self._first_elements_transpose(zero_window_dy).astype(dx.dtype)

        return (amend_unless(platform, status != ALL_ZERO, add_first_elements, dxs[0]),)

    def _scaled_sums(self, weight: Array) -> tuple[Array, Array, Array]:
        """The largest weight m of each window, the total weight divided by m, and the weighted mean divided by m."""
        maximum = self.loops.max_per_window(weight, self.window)

        def terms(weight: Array) -> tuple[Array, Array]:
            part = ratio(weight, maximum)
            return part, part * part

        total, square = self.loops.sum_over_taps(self.window, terms, (weight,))
        total = where(total == 0, 1, total)
        return maximum, total, square / total

    def scaled_y(self, x: Array) -> Array:
        wide_x, _, weight = self._weights(x)
        maximum, _, mean = self._scaled_sums(weight)
        y = where(maximum == 0, self._first_elements(wide_x), maximum * mean)
        return where(is_inf(maximum), maximum, y)

    def x_and_slope(self, x: Array) -> tuple[Array, Slope, tuple[Array, ...]]:
        """The weights and the slope function. Infinite elements share the cotangent of their window equally."""
        weight = self._weights(x)[2]
        maximum, total, mean = self._scaled_sums(weight)
        num_inf = self.sum_over(is_inf(weight).astype(weight.dtype))
        num_inf = lax.max(num_inf, scalar_like(num_inf, 1))

        def slope(
            weight: Array, maximum: Array, total: Array, mean: Array, num_inf: Array
        ) -> Array:
            slopes = where(weight > 0, (2 * ratio(weight, maximum) - mean) / total, 0)
            return where(is_inf(maximum), is_inf(weight).astype(weight.dtype) / num_inf, slopes)

        return weight, slope, (maximum, total, mean, num_inf)

    def scaled_linear(self, xs: Arrays, tangents: Arrays) -> Array:
        is_zero = self.loops.max_per_window(self._weights(xs[0])[2], self.window) == 0
        first_dot = self._first_elements(tangents[0])
        return where(is_zero, first_dot, super().scaled_linear(xs, tangents))

    def scaled_transpose(self, xs: Arrays, dy: Array) -> tuple[Array, ...]:
        is_zero = self.loops.max_per_window(self._weights(xs[0])[2], self.window) == 0
        (dx,) = super().scaled_transpose(xs, where(is_zero, 0, dy))
        return (dx + self._first_elements_transpose(where(is_zero, dy, 0)).astype(dx.dtype),)
