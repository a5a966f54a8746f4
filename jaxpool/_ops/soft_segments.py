"""The softmax and the logsumexp of the rows of each segment."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import accumulator, cast, losing
from jaxpool._kernels.segments import beside_rows, masked, of_rows, scattered, total
from jaxpool._ops.apply import apply_given
from jaxpool._ops.linear_map import value
from jaxpool._ops.op import Op
from jaxpool._ops.segments import SegmentSelect, summed
from jaxpool._plan.others import adds_in_order
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along, linear_plan


@dataclasses.dataclass(frozen=True)
class Segments:
    """How many segments there are, and whether ids never fall."""

    count: int
    is_sorted: bool

    def total(self, on: Platform, x: Array, ids: Array) -> Array:
        """The sum of each segment."""
        return total(x, ids, self.count, self.is_sorted, one_by_one=adds_in_order(on))


def _powers(x: Array, largest: Array, temperature: float, ids: Array, *mask: Array) -> Array:
    """`exp((x - m) / T)`, m the largest of the segment of each row; 0 where the mask is False."""
    wide = cast(x, accumulator(x.dtype))
    if temperature * 2**8 > float(jnp.finfo(wide.dtype).max):
        # A difference may overflow of which the exponential is not 0. Its half does not.
        wide, largest, temperature = wide * 0.5, largest * 0.5, temperature * 0.5
    above = beside_rows(largest, ids)
    # Of infinities that are level the difference is NaN.
    far = jnp.where(lax.eq(wide, above), 0, lax.sub(wide, above))
    return masked(lax.exp(far / jnp.asarray(temperature, wide.dtype)), 0, *mask)


def _known(ids: Array, count: int, ndim: int) -> Array:
    """Whether a row is of a segment, of rank `ndim`."""
    return lax.expand_dims((ids >= 0) & (ids < count), range(1, ndim))


def _weighed(weights: Array, x: Array) -> Array:
    """The products; what weighs nothing takes nothing, though it were NaN."""
    return jnp.where(lax.eq(weights, lax.full_like(weights, 0)), 0, weights * x)


@dataclasses.dataclass(frozen=True)
class SegmentSoftmax(Op):
    """The share of each element in the sum of the exponentials of its segment.

    Given the segment of each row and perhaps a mask. Of these the ids are kept: where the mask is False the share is 0.
    """

    segments: Segments
    temperature: float

    differentiable_given = True
    keeps_value = True
    given_kept = 1

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        scattered, gathered = along([0], "scattered"), along([0], "gathered")
        back = (*summed(on), *gathered)
        return OpPlan((*scattered, *gathered, *back), back, back)

    def value(self, on: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        counts = masked(cast(x, accumulator(x.dtype)), -jnp.inf, *mask)
        is_sorted = self.segments.is_sorted
        largest = scattered(jax.ops.segment_max, counts, ids, self.segments.count, is_sorted)
        powers = _powers(x, largest, self.temperature, ids, *mask)
        sums = self.segments.total(on, powers, ids)
        # The largest element adds 1 to its sum, so a sum below 1 is of nothing.
        beside = beside_rows(lax.max(sums, lax.full_like(sums, 1)), ids)
        known = _known(ids, self.segments.count, x.ndim)
        return masked(powers / beside, 0, known).astype(x.dtype)

    def linear(self, on: Platform, kept: tuple[Array, Array], x_dot: Array) -> Array:
        shares, ids = kept
        dtype = accumulator(shares.dtype)
        weights, moves = cast(shares, dtype), cast(x_dot, dtype)
        mean = self.segments.total(on, _weighed(weights, moves), ids)
        moved = _weighed(weights, moves - beside_rows(mean, ids))
        return cast(moved / jnp.asarray(self.temperature, dtype), x_dot.dtype)

    def transpose(self, on: Platform, kept: tuple[Array, Array], dy: Array) -> tuple[Array]:
        return (self.linear(on, kept, dy),)  # its own transpose


@dataclasses.dataclass(frozen=True)
class SegmentPowers(Op):
    """`exp((x - m) / T)` with m of the segment of each row, whose derivative is itself over T.

    Given are m, the ids and perhaps a mask. A sum over these does not change with m but for a factor, which the
    logarithm takes out again: m is constant.
    """

    temperature: float

    differentiable_given = True
    keeps_value = True

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        moved = along([0], "elementwise")
        return OpPlan(along([0], "gathered"), moved, moved)

    def value(self, on: Platform, x: Array, largest: Array, ids: Array, *mask: Array) -> Array:
        powers = _powers(x, largest, self.temperature, ids, *mask)
        return masked(powers, 0, _known(ids, largest.shape[0], x.ndim))

    def linear(self, on: Platform, kept: tuple[Array], x_dot: Array) -> Array:
        return _weighed(kept[0], x_dot) / jnp.asarray(self.temperature, kept[0].dtype)

    def transpose(self, on: Platform, kept: tuple[Array], dy: Array) -> tuple[Array]:
        return (self.linear(on, kept, dy),)


@dataclasses.dataclass(frozen=True)
class SegmentSum(Op):
    """The sum of the rows of each segment, given the segment of each row."""

    segments: Segments

    linear_in_x = True

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        return linear_plan(summed(on), along([0], "gathered"))

    def linear(self, on: Platform, given: tuple[Array], x: Array) -> Array:
        return self.segments.total(on, x, given[0])

    def transpose(self, on: Platform, given: tuple[Array], dy: Array) -> tuple[Array]:
        return (of_rows(dy, given[0], 0),)


def log_of_sums(
    segments: Segments, temperature: float, x: Array, ids: Array, *mask: Array
) -> Array:
    """`T * log(sum of exp(x / T))` over each segment; of none the identity of a maximum."""
    wide = cast(x, accumulator(x.dtype))
    most = SegmentSelect("max", "first", segments.count, segments.is_sorted)
    largest = value(most, lax.stop_gradient(wide), ids, *mask)
    powers = apply_given(SegmentPowers(temperature), wide, largest, ids, *mask)[0]
    sums = apply_given(SegmentSum(segments), powers, ids)[0]
    empty = lax.eq(sums, lax.full_like(sums, 0))
    y = largest + jnp.asarray(temperature, sums.dtype) * lax.log(jnp.where(empty, 1, sums))
    return jnp.where(empty, jnp.asarray(losing(x.dtype, "max"), x.dtype), cast(y, x.dtype))
