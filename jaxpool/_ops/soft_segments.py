"""The softmax and the logsumexp of the rows of each segment."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import accumulator, cast, losing
from jaxpool._kernels.segments import masked, of_rows, scattered, total
from jaxpool._ops.op import Op
from jaxpool._plan.others import adds_in_order
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along


@dataclasses.dataclass(frozen=True)
class SoftSegments(Op):
    """What the exponentials of each of `count` segments make, given the segment of each row and perhaps a mask.

    Kept are the shares, `exp(x / T)` over its sum in the segment: 0 where the mask is False or a row is in no
    segment, so neither is needed again.
    """

    temperature: float
    count: int
    is_sorted: bool

    differentiable_given = True
    given_kept = 1

    @property
    def keeps_value_of(self) -> Op:
        return SegmentSoftmax(self.temperature, self.count, self.is_sorted)

    def _total(self, on: Platform, x: Array, ids: Array) -> Array:
        return total(x, ids, self.count, self.is_sorted, one_by_one=adds_in_order(on))

    def _parts(self, on: Platform, x: Array, ids: Array, *mask: Array) -> tuple[Array, ...]:
        """The largest of each segment, the exponential of each element's distance to it over T, and their sums."""
        wide = masked(cast(x, accumulator(x.dtype)), -jnp.inf, *mask)
        largest = scattered(jax.ops.segment_max, wide, ids, self.count, self.is_sorted)
        above = of_rows(largest, ids, 0)
        far = lax.sub(wide, above)
        # Of infinities that are level the difference is NaN.
        steps = jnp.where(lax.eq(wide, above), 0, far) / jnp.asarray(self.temperature, wide.dtype)
        powers = masked(lax.exp(steps), 0, *mask)
        return largest, powers, self._total(on, powers, ids)


class SegmentSoftmax(SoftSegments):
    """The share of each element in the sum of the exponentials of its segment."""

    @property
    def keeps_value_of(self) -> Op:
        return self

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        scattered, gathered = along([0], "scattered"), along([0], "gathered")
        summed = along([0], "scattered" if adds_in_order(on) else "sorted")
        back = (*summed, *gathered)
        return OpPlan((*scattered, *gathered, *back), back, back)

    def value(self, on: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        _, powers, sums = self._parts(on, x, ids, *mask)
        # The largest element adds 1 to its sum, so a sum below 1 is of nothing.
        beside = of_rows(lax.max(sums, lax.full_like(sums, 1)), ids, 1)
        known = ((ids >= 0) & (ids < self.count)).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(known, powers / beside, 0).astype(x.dtype)

    def linear(self, on: Platform, kept: tuple[Array, ...], x_dot: Array) -> Array:
        shares, ids = kept[:2]
        wide = shares.astype(accumulator(shares.dtype))
        # What has no share takes nothing, though its cotangent were NaN.
        parts = jnp.where(lax.eq(wide, lax.full_like(wide, 0)), 0, wide * x_dot)
        rest = wide * of_rows(self._total(on, parts, ids), ids, 0)
        return ((parts - rest) / jnp.asarray(self.temperature, wide.dtype)).astype(x_dot.dtype)

    def transpose(self, on: Platform, kept: tuple[Array, ...], dy: Array) -> tuple[Array]:
        return (self.linear(on, kept, dy),)  # its own transpose


class SegmentLogSumExp(SoftSegments):
    """`T * log(sum of exp(x / T))` over each segment; of none the identity of a maximum."""

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        scattered, gathered = along([0], "scattered"), along([0], "gathered")
        summed = along([0], "scattered" if adds_in_order(on) else "sorted")
        return OpPlan((*scattered, *gathered, *summed), summed, gathered)

    def value(self, on: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        largest, _, sums = self._parts(on, x, ids, *mask)
        heat = jnp.asarray(self.temperature, sums.dtype)
        y = (largest + heat * lax.log(sums)).astype(x.dtype)
        empty = lax.eq(sums, lax.full_like(sums, 0))
        return jnp.where(empty, jnp.asarray(losing(x.dtype, "max"), x.dtype), y)

    def linear(self, on: Platform, kept: tuple[Array, ...], x_dot: Array) -> Array:
        shares, ids = kept[:2]
        wide = shares.astype(accumulator(shares.dtype))
        parts = jnp.where(lax.eq(wide, lax.full_like(wide, 0)), 0, wide * x_dot)
        return self._total(on, parts, ids).astype(x_dot.dtype)

    def transpose(self, on: Platform, kept: tuple[Array, ...], dy: Array) -> tuple[Array]:
        shares, ids = kept[:2]
        wide = shares.astype(accumulator(shares.dtype))
        return ((wide * of_rows(dy, ids, 0)).astype(dy.dtype),)
