"""Softmax and logsumexp over the rows that have the same segment id."""

import dataclasses
import math

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import (
    accumulator_dtype,
    all_true_across_vmap,
    cast,
    reduction_identity,
    scalar_like,
    to_comparison_dtype,
)
from jaxpool._kernels.segments import (
    Segments,
    fill_where_masked,
    gather_value_or_zero,
    gather_value_unchecked,
)
from jaxpool._kernels.slices import is_empty
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Op, Residual
from jaxpool._ops.range_status import (
    ALL_ZERO,
    IN_RANGE,
    is_medium,
    min_status,
    range_status,
    scale_dy,
)
from jaxpool._ops.ranged import amend_unless, direct_if
from jaxpool._ops.segments import segment_totals
from jaxpool._ops.soft_pool import MAX_LOG2
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import tuning_of


def _shifted_exps(
    segments: Segments, x: Array, temperature: float, ids: Array, *mask: Array
) -> tuple[Array, Array]:
    """`exp((x - m) / temperature)`, or 0 where the mask is False, and the maximum m of each segment."""
    x = to_comparison_dtype(x)
    masked_x = fill_where_masked(x, -jnp.inf, *mask)
    maximum = largest = segments.reduce(jax.ops.segment_max, masked_x, ids)
    if temperature * 2**8 > float(jnp.finfo(x.dtype).max):
        # `x - m` may overflow although its exponential is not 0. `x / 2 - m / 2` does not overflow.
        x, largest, temperature = x * 0.5, largest * 0.5, temperature * 0.5
    row_max = gather_value_unchecked(largest, ids)
    # The difference of equal infinities would be NaN.
    difference = jnp.where(lax.eq(x, row_max), 0, lax.sub(x, row_max))
    exps = lax.exp(difference / jnp.asarray(temperature, x.dtype))
    return fill_where_masked(exps, 0, *mask), maximum


def _weigh(weights: Array, x: Array) -> Array:
    """`weights * x`, with 0 for weights of 0, even if x is NaN."""
    return jnp.where(lax.eq(weights, scalar_like(weights, 0)), 0, weights * x)


@dataclasses.dataclass(frozen=True)
class SegmentSoftmax(Op):
    """The softmax of each element over its segment. Extra arguments: segment ids and an optional mask.

    The residual is the output and the ids. The mask is not saved, because the output is 0 where the mask is False.
    """

    segments: Segments
    temperature: float
    has_differentiable_residual = True
    saves_arguments = True

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        return y, args[1]  # output and ids

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        shifted_exps, _ = _shifted_exps(self.segments, x, self.temperature, ids, *mask)
        sums = segment_totals(platform, shifted_exps, ids, self.segments)
        # The maximum of a segment adds 1 to the sum, so a sum below 1 has no elements.
        row_sums = gather_value_unchecked(lax.max(sums, scalar_like(sums, 1)), ids)
        is_in_segment = (ids >= 0) & (ids < self.segments.count)
        is_in_segment = lax.expand_dims(is_in_segment, range(1, x.ndim))
        y = fill_where_masked(shifted_exps / row_sums, 0, is_in_segment)
        return fill_where_masked(y, 0, *mask).astype(x.dtype)

    def linear(self, platform: Platform, residual: tuple[Array, Array], x_dot: Array) -> Array:
        softmax, ids = residual
        dtype = accumulator_dtype(softmax.dtype)
        weights, wide_dot = cast(softmax, dtype), cast(x_dot, dtype)
        mean = segment_totals(platform, _weigh(weights, wide_dot), ids, self.segments)
        weighted_dot = _weigh(weights, wide_dot - gather_value_unchecked(mean, ids))
        return cast(weighted_dot / jnp.asarray(self.temperature, dtype), x_dot.dtype)

    def transpose(
        self, platform: Platform, residual: tuple[Array, Array], dy: Array
    ) -> tuple[Array]:
        return (self.linear(platform, residual, dy),)  # the Jacobian is symmetric


@dataclasses.dataclass(frozen=True)
class SegmentLogSumExp(Op):
    """`T * log(sum of exp(x / T))` over each segment, in the accumulator dtype; -inf for a segment without elements.

    The arguments are x, the segment ids and an optional mask. If all sums are in range, exponentials are summed
    directly, without the segment maxima and their gather. Otherwise exponentials are relative to the maximum of their
    segment. The choice is made at run time, also in the derivative.
    """

    segments: Segments
    temperature: float
    has_differentiable_residual = True
    saves_arguments = True

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        return args, y

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        sums = segment_totals(platform, self._direct_exps(platform, x, *mask), ids, self.segments)
        y = jnp.asarray(self.temperature, sums.dtype) * lax.log(sums)  # -inf for no elements
        if is_empty(y):
            return y
        status = self._min_status(range_status(*self._range_masks(y)), ids, *mask)

        def scaled(_: Array) -> Array:
            shifted_exps, largest = _shifted_exps(self.segments, x, self.temperature, ids, *mask)
            sums = segment_totals(platform, shifted_exps, ids, self.segments)
            empty = lax.eq(sums, scalar_like(sums, 0))
            logs = lax.log(jnp.where(empty, 1, sums))
            y = largest + jnp.asarray(self.temperature, sums.dtype) * logs
            return jnp.where(empty, -jnp.inf, y)

        return amend_unless(platform, status == IN_RANGE, scaled, y)

    def _direct_exps(self, platform: Platform, x: Array, *mask: Array) -> Array:
        """`exp(x / temperature)`, with 0 where the mask is False."""
        wide_x = fill_where_masked(cast(x, accumulator_dtype(x.dtype)), -jnp.inf, *mask)
        exponents = wide_x / jnp.asarray(self.temperature, wide_x.dtype)
        # JAX differentiates the portable kernel, where exponentials out of range are multiplied by 0: keep them finite.
        if platform == "portable":
            exponents = jnp.where(exponents < MAX_LOG2, exponents, MAX_LOG2)
        return lax.exp(exponents)

    def _range_masks(self, y: Array) -> tuple[Array, Array]:
        """Masks of the segments whose sum is in range, and of the segments whose sum is 0."""
        exponents = lax.stop_gradient(y) / jnp.asarray(self.temperature, y.dtype)
        in_range = lax.abs(exponents) < MAX_LOG2 * math.log(2)
        return in_range, lax.eq(exponents, scalar_like(exponents, -jnp.inf))

    def _min_status(self, statuses: Array, ids: Array, *mask: Array) -> Array:
        """The minimum range status of the segments. Segments without unmasked rows count as IN_RANGE."""
        status = min_status(statuses)

        def status_of_rows() -> Array:
            ones = lax.full(ids.shape, 1, np.int32)
            if mask:
                shape = (*ids.shape, *mask[0].shape[1:])
                ones = jnp.broadcast_to(mask[0], shape).astype(np.int32)
            rows = self.segments.reduce(jax.ops.segment_sum, ones, ids)
            has_rows = lax.expand_dims(rows > 0, range(rows.ndim, statuses.ndim))
            is_empty_segment = (statuses == ALL_ZERO) & ~has_rows
            return min_status(jnp.where(is_empty_segment, np.int8(IN_RANGE), statuses))

        return lax.cond(status == ALL_ZERO, status_of_rows, lambda: status)

    def _softmax(self, x: Array, ids: Array, *mask: Array) -> Array:
        """The derivative of the output with respect to each element, accurate for any range."""
        softmax = SegmentSoftmax(self.segments, self.temperature)
        return apply(softmax, to_comparison_dtype(x), ids, *mask)

    def _y_factor(self, y: Array) -> Array:
        """`exp(-y / T)`, which scales exponentials to the softmax; 0 for a segment without elements."""
        exponents = y / jnp.asarray(self.temperature, y.dtype)
        empty = lax.eq(y, scalar_like(y, -jnp.inf))
        return jnp.where(empty, 0, lax.exp(-jnp.where(empty, 0, exponents)))

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        (x, ids, *mask), y = residual
        wide_dot = cast(x_dot, y.dtype)
        weights = self._direct_exps(platform, x, *mask)

        def direct() -> Array:
            return segment_totals(
                platform, weights * wide_dot, ids, self.segments
            ) * self._y_factor(y)

        def scaled() -> Array:
            weighted_dot = _weigh(self._softmax(x, ids, *mask), wide_dot)
            return segment_totals(platform, weighted_dot, ids, self.segments)

        if is_empty(y):
            return direct()
        status = self._min_status(range_status(*self._range_masks(y)), ids, *mask)
        is_accurate = (status == IN_RANGE) & all_true_across_vmap(is_medium(wide_dot))
        return lax.cond(is_accurate, direct, scaled)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        (x, ids, *mask), y = residual
        dy = cast(dy, y.dtype)
        shares, statuses = scale_dy(dy, self._y_factor(y), *self._range_masks(y))

        def direct() -> Array:
            stores_copy = tuning_of(platform).stores_segment_shares
            row_share = gather_value_or_zero(shares, ids, stores_copy=stores_copy)
            return _weigh(row_share, self._direct_exps(platform, x, *mask)).astype(x.dtype)

        def scaled() -> Array:
            weights = self._softmax(x, ids, *mask)
            return _weigh(weights, gather_value_unchecked(dy, ids)).astype(x.dtype)

        if is_empty(y):
            return (direct(),)
        is_accurate = self._min_status(statuses, ids, *mask) == IN_RANGE
        return (direct_if(platform, is_accurate, direct, scaled),)


def apply_logsumexp(
    segments: Segments, temperature: float, x: Array, ids: Array, *mask: Array
) -> Array:
    """`T * log(sum of exp(x / T))` over each segment. An empty segment gives the identity of a maximum (-inf)."""
    y = apply(SegmentLogSumExp(segments, temperature), x, ids, *mask)
    identity = reduction_identity(x.dtype, "max")
    if float(identity) == -math.inf:
        return cast(y, x.dtype)
    return jnp.where(lax.eq(y, scalar_like(y, -jnp.inf)), jnp.asarray(identity), cast(y, x.dtype))
