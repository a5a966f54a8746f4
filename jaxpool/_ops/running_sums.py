"""Cumulative logsumexp along an axis."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import accumulator_dtype, cast
from jaxpool._kernels.scan import exponentially_decayed_sums, subtract_equal_infinities
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.cumulative import RunningExtremum, make_scan
from jaxpool._ops.op import Op, value
from jaxpool._plan.problem import Platform


@dataclasses.dataclass(frozen=True)
class ShiftedExp(Op):
    """`exp(x - m)`, which is its own derivative. m is the argument `largest`, which is treated as constant.

    The cumulative logsumexp does not depend on m: m scales the sum, and adding m to the logarithm undoes the scaling.
    """

    has_differentiable_residual = True

    def saved_residual(self, y: Any, *args: Any) -> Any:
        return (y,)

    def value(self, platform: Platform, x: Array, largest: Array) -> Array:
        return lax.exp(subtract_equal_infinities(x, largest))

    def linear(self, platform: Platform, residual: tuple[Array], x_dot: Array) -> Array:
        return jnp.where(lax.eq(residual[0], lax.full_like(residual[0], 0)), 0, residual[0] * x_dot)

    def transpose(self, platform: Platform, residual: tuple[Array], dy: Array) -> tuple[Array]:
        return (self.linear(platform, residual, dy),)


@dataclasses.dataclass(frozen=True)
class DecayedSum(Op):
    """`y[i] = sum over j <= i of x[j] * exp(m[j] - m[i])` along an axis, for a nondecreasing m."""

    axis: int

    linear_in_x = True

    def linear(self, platform: Platform, extra_args: tuple[Array], x: Array) -> Array:
        scan = make_scan(platform, x, self.axis, reverse=False)
        return exponentially_decayed_sums(x, extra_args[0], scan)

    def transpose(self, platform: Platform, extra_args: tuple[Array], dy: Array) -> tuple[Array]:
        m = lax.neg(extra_args[0])  # -m is nondecreasing in reverse
        scan = make_scan(platform, dy, self.axis, reverse=True)
        return (exponentially_decayed_sums(dy, m, scan),)


def running_logsumexp(x: Array, axis: int) -> Array:
    """`log(sum over j <= i of exp(x[j]))` along an axis.

    Every sum is relative to the largest element so far, so all terms are at most 1 and do not overflow.
    """
    wide_x = cast(x, accumulator_dtype(x.dtype))
    largest = value(RunningExtremum("max", "first", axis, False), lax.stop_gradient(wide_x))
    shifted_exps = apply_with_extra_args(ShiftedExp(), wide_x, largest)[0]
    sums = apply_with_extra_args(DecayedSum(axis), shifted_exps, largest)[0]
    return cast(largest + lax.log(sums), x.dtype)
