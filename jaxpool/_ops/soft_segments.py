"""Softmax and logsumexp over the rows of each segment."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.compare import to_comparison_dtype
from jaxpool._kernels.dtypes import accumulator_dtype, cast, reduction_identity
from jaxpool._kernels.predicates import all_true_across_vmap
from jaxpool._kernels.segments import (
    fill_where_masked,
    gather_value_of_segment,
    gather_value_or_zero,
    gather_value_unchecked,
    reduce_segments,
    sum_segments,
)
from jaxpool._kernels.slices import is_empty
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.op import Op
from jaxpool._ops.ranged import (
    ALL_ZERO,
    IN_RANGE,
    amended,
    least_of,
    moderate,
    one_of,
    share,
    with_status,
)
from jaxpool._ops.soft_pool import REACH
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import tuning


@dataclasses.dataclass(frozen=True)
class Segments:
    """The number of segments, and whether ids are sorted."""

    count: int
    is_sorted: bool

    def total(self, platform: Platform, x: Array, ids: Array) -> Array:
        """The sum of each segment."""
        return sum_segments(
            x, ids, self.count, self.is_sorted, scatters_in_order=tuning(platform).ordered_scatters
        )

    def powers(self, x: Array, temperature: float, ids: Array, *mask: Array) -> tuple[Array, Array]:
        """`exp((x - m) / T)`, and the maximum m of each segment."""
        wide = to_comparison_dtype(x)
        counts = fill_where_masked(wide, -jnp.inf, *mask)
        largest = reduce_segments(jax.ops.segment_max, counts, ids, self.count, self.is_sorted)
        return _powers(wide, largest, temperature, ids, *mask), largest


def _powers(wide: Array, largest: Array, temperature: float, ids: Array, *mask: Array) -> Array:
    """`exp((x - m) / T)`, with the maximum m of the segment of each row; 0 where the mask is False."""
    if temperature * 2**8 > float(jnp.finfo(wide.dtype).max):
        # x - m may overflow although its exponential is not 0. Half of it does not.
        wide, largest, temperature = wide * 0.5, largest * 0.5, temperature * 0.5
    above = gather_value_unchecked(largest, ids)
    # The difference of equal infinities would be NaN.
    far = jnp.where(lax.eq(wide, above), 0, lax.sub(wide, above))
    return fill_where_masked(lax.exp(far / jnp.asarray(temperature, wide.dtype)), 0, *mask)


def _known(ids: Array, count: int, ndim: int) -> Array:
    """Mask of the rows that are in a segment, expanded to rank `ndim`."""
    return lax.expand_dims((ids >= 0) & (ids < count), range(1, ndim))


def _weighed(weights: Array, x: Array) -> Array:
    """The products, with 0 for weights of 0, even if x is NaN."""
    return jnp.where(lax.eq(weights, lax.full_like(weights, 0)), 0, weights * x)


@dataclasses.dataclass(frozen=True)
class SegmentSoftmax(Op):
    """The softmax of each element over its segment, for ids and an optional mask.

    The residual is the output and the ids. The mask is not needed, because the output is 0 where it is False.
    """

    segments: Segments
    temperature: float

    differentiable_residual = True

    def saved(self, y: Any, *args: Any) -> Any:
        return y, args[1]  # and the ids

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        powers, _ = self.segments.powers(x, self.temperature, ids, *mask)
        sums = self.segments.total(platform, powers, ids)
        # The maximum adds 1 to its sum, so a sum below 1 has no elements.
        row_sums = gather_value_unchecked(lax.max(sums, lax.full_like(sums, 1)), ids)
        known = _known(ids, self.segments.count, x.ndim)
        return fill_where_masked(powers / row_sums, 0, known).astype(x.dtype)

    def linear(self, platform: Platform, residual: tuple[Array, Array], x_dot: Array) -> Array:
        shares, ids = residual
        dtype = accumulator_dtype(shares.dtype)
        weights, moves = cast(shares, dtype), cast(x_dot, dtype)
        mean = self.segments.total(platform, _weighed(weights, moves), ids)
        moved = _weighed(weights, moves - gather_value_unchecked(mean, ids))
        return cast(moved / jnp.asarray(self.temperature, dtype), x_dot.dtype)

    def transpose(
        self, platform: Platform, residual: tuple[Array, Array], dy: Array
    ) -> tuple[Array]:
        return (self.linear(platform, residual, dy),)  # the Jacobian is symmetric


@dataclasses.dataclass(frozen=True)
class SegmentLogSumExp(Op):
    """`T * log(sum of exp(x / T))` over each segment, in the dtype of sums; -inf for a segment without elements.

    The arguments are x, the ids and an optional mask. If the logarithms of all sums are near 0, exponentials are summed
    without the maximum and its gather. Otherwise they are relative to the maximum of their segment. The choice is made
    at run time, also in the derivative.
    """

    segments: Segments
    temperature: float

    differentiable_residual = True

    def saved(self, y: Any, *args: Any) -> Any:
        return args, y

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        sums = self.segments.total(platform, self._weights(platform, x, *mask), ids)
        y = jnp.asarray(self.temperature, sums.dtype) * lax.log(sums)  # -inf for no elements
        if is_empty(y):
            return y
        status = self._status(with_status(*self._near(y)), ids, *mask)
        return amended(
            platform, status == IN_RANGE, lambda y: self._scaled(platform, x, ids, *mask), y
        )

    def _weights(self, platform: Platform, x: Array, *mask: Array) -> Array:
        """`exp(x / T)`, 0 where the mask is False."""
        wide = fill_where_masked(cast(x, accumulator_dtype(x.dtype)), -jnp.inf, *mask)
        steps = wide / jnp.asarray(self.temperature, wide.dtype)
        # jax differentiates the portable form, whose weights are multiplied by 0 and must be finite.
        if platform == "portable":
            steps = jnp.where(steps < REACH, steps, REACH)
        return lax.exp(steps)

    def _near(self, y: Array) -> tuple[Array, Array]:
        """Masks of the sums that are in range, and of the sums that are 0."""
        steps = lax.stop_gradient(y) / jnp.asarray(self.temperature, y.dtype)
        near = lax.abs(steps) < REACH * math.log(2)
        return near, lax.eq(steps, lax.full_like(steps, -jnp.inf))

    def _status(self, statuses: Array, ids: Array, *mask: Array) -> Array:
        """The minimum range status of the segments. Segments without elements count as IN_RANGE."""
        status = least_of(statuses)

        def status_of_rows(statuses: Array, ids: Array, *mask: Array) -> Array:
            """A sum of 0 has no elements, or only elements that are -inf or far below 0."""
            attained = self._attained(ids, statuses.ndim, *mask)
            return least_of(
                jnp.where((statuses == ALL_ZERO) & ~attained, np.int8(IN_RANGE), statuses)
            )

        return lax.cond(status == ALL_ZERO, status_of_rows, lambda *_: status, statuses, ids, *mask)

    def _attained(self, ids: Array, ndim: int, *mask: Array) -> Array:
        """Mask of the segments with at least one row that takes part."""
        ones = lax.full(ids.shape, 1, np.int32)
        if mask:
            ones = jnp.broadcast_to(mask[0], (*ids.shape, *mask[0].shape[1:])).astype(np.int32)
        segments = self.segments
        rows = reduce_segments(jax.ops.segment_sum, ones, ids, segments.count, segments.is_sorted)
        return lax.expand_dims(rows > 0, range(rows.ndim, ndim))

    def _scaled(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        powers, largest = self.segments.powers(x, self.temperature, ids, *mask)
        sums = self.segments.total(platform, powers, ids)
        empty = lax.eq(sums, lax.full_like(sums, 0))
        y = largest + jnp.asarray(self.temperature, sums.dtype) * lax.log(jnp.where(empty, 1, sums))
        return jnp.where(empty, -jnp.inf, y)

    def _shares(self, x: Array, ids: Array, *mask: Array) -> Array:
        """The derivative with respect to each element, for any range."""
        softmax = SegmentSoftmax(self.segments, self.temperature)
        return apply_with_extra_args(softmax, to_comparison_dtype(x), ids, *mask)[0]

    def _slope(self, y: Array) -> Array:
        """`exp(-y / T)`, the factor from exponentials to softmax; 0 for a segment without elements."""
        steps = y / jnp.asarray(self.temperature, y.dtype)
        empty = lax.eq(y, lax.full_like(y, -jnp.inf))
        return jnp.where(empty, 0, lax.exp(-jnp.where(empty, 0, steps)))

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        (x, ids, *mask), y = residual
        moves = cast(x_dot, y.dtype)

        def direct(
            weights: Array, moves: Array, ids: Array, x: Array, y: Array, *_: Array
        ) -> Array:
            return self.segments.total(platform, weights * moves, ids) * self._slope(y)

        def scaled(_: Array, moves: Array, ids: Array, x: Array, y: Array, *mask: Array) -> Array:
            return self.segments.total(platform, _weighed(self._shares(x, ids, *mask), moves), ids)

        args = (self._weights(platform, x, *mask), moves, ids, x, y, *mask)
        if is_empty(y):
            return direct(*args)
        status = self._status(with_status(*self._near(y)), ids, *mask)
        y_dot: Array = lax.cond(
            (status == IN_RANGE) & all_true_across_vmap(moderate(moves)), direct, scaled, *args
        )
        return y_dot

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        (x, ids, *mask), y = residual
        dy = cast(dy, y.dtype)
        (shares,), statuses = share(dy, self._slope(y), *self._near(y))

        def direct() -> Array:
            mine = (
                gather_value_or_zero(shares, ids)
                if tuning(platform).stored_shares
                else gather_value_of_segment(shares, ids, 0)
            )
            return _weighed(mine, self._weights(platform, x, *mask)).astype(x.dtype)

        def scaled() -> Array:
            weights = self._shares(x, ids, *mask)
            return _weighed(weights, gather_value_unchecked(dy, ids)).astype(x.dtype)

        if is_empty(y):
            return (direct(),)
        right = self._status(statuses, ids, *mask) == IN_RANGE
        return (one_of(platform, right, direct, scaled),)


def log_of_sums(
    segments: Segments, temperature: float, x: Array, ids: Array, *mask: Array
) -> Array:
    """`T * log(sum of exp(x / T))` over each segment. A segment without elements has the identity of a maximum."""
    y = apply_with_extra_args(SegmentLogSumExp(segments, temperature), x, ids, *mask)[0]
    identity = reduction_identity(x.dtype, "max")
    if float(identity) == -math.inf:
        return cast(y, x.dtype)
    return jnp.where(lax.eq(y, lax.full_like(y, -jnp.inf)), jnp.asarray(identity), cast(y, x.dtype))
