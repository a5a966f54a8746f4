"""Running maximum and minimum along an axis, with the position of the selected element, and running logsumexp.

The scan kernels are in `_kernels/scan.py`.
"""

import dataclasses
from typing import Literal

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import scan
from jaxpool._kernels.dtypes import Kind, accumulator_dtype, cast, scalar_like
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Op, Residual, array_problem
from jaxpool._plan.problem import Platform
from jaxpool._plan.scan import plan_scan

FirstOrLast = Literal["first", "last"]


def _make_scan(platform: Platform, x: Array, axis: int, *, reverse: bool) -> scan.Scan:
    """A cumulative operation (scan) over x along `axis`."""
    return scan.Scan(axis, reverse, plan_scan(array_problem(x, platform)))


@dataclasses.dataclass(frozen=True)
class RunningExtremum(Op):
    """Running maximum or minimum along `axis`. Residual: the position of the selected element.

    `reset`, which broadcasts to x, is True at the first element of each episode. Every episode is scanned separately.
    """

    kind: Kind
    ties: FirstOrLast
    axis: int
    reverse: bool

    materialises_inputs = True

    def _scan(self, platform: Platform, x: Array) -> scan.Scan:
        return _make_scan(platform, x, self.axis, reverse=self.reverse)

    def value(self, platform: Platform, x: Array, *reset: Array) -> Array:
        return scan.running_max_or_min(x, self.kind, self._scan(platform, x), *reset)

    def primal(self, platform: Platform, x: Array, *reset: Array) -> tuple[Array, Array]:
        running_scan = self._scan(platform, x)
        return scan.running_select_with_index(x, self.kind, self.ties, running_scan, *reset)

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        return scan.copy_along_runs(x_dot, index, self._scan(platform, x_dot))

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (scan.sum_over_runs(dy, index, self._scan(platform, dy)),)


@dataclasses.dataclass(frozen=True)
class ShiftedExp(Op):
    """`exp(x - m)`, which is its own derivative. m is the argument `largest`, which is treated as constant.

    The cumulative logsumexp does not depend on m: m scales the sum, and adding m to the logarithm undoes the scaling.
    """

    has_differentiable_residual = True
    saves_arguments = True

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        return (y,)

    def value(self, platform: Platform, x: Array, largest: Array) -> Array:
        return lax.exp(scan.subtract_equal_infinities(x, largest))

    def linear(self, platform: Platform, residual: tuple[Array], x_dot: Array) -> Array:
        return jnp.where(lax.eq(residual[0], scalar_like(residual[0], 0)), 0, residual[0] * x_dot)

    def transpose(self, platform: Platform, residual: tuple[Array], dy: Array) -> tuple[Array]:
        return (self.linear(platform, residual, dy),)


@dataclasses.dataclass(frozen=True)
class DecayedSum(Op):
    """`y[i] = sum over j <= i of x[j] * exp(m[j] - m[i])` along an axis, for a nondecreasing m."""

    axis: int

    linear_in_x = True

    def linear(self, platform: Platform, extra_args: tuple[Array], x: Array) -> Array:
        forward_scan = _make_scan(platform, x, self.axis, reverse=False)
        return scan.exponentially_decayed_sums(x, extra_args[0], forward_scan)

    def transpose(self, platform: Platform, extra_args: tuple[Array], dy: Array) -> tuple[Array]:
        m = lax.neg(extra_args[0])  # -m is nondecreasing in reverse
        reverse_scan = _make_scan(platform, dy, self.axis, reverse=True)
        return (scan.exponentially_decayed_sums(dy, m, reverse_scan),)


def running_logsumexp(x: Array, axis: int) -> Array:
    """`log(sum over j <= i of exp(x[j]))` along an axis.

    Every sum is relative to the largest element so far, so all terms are at most 1 and do not overflow.
    """
    wide_x = cast(x, accumulator_dtype(x.dtype))
    largest = apply(RunningExtremum("max", "first", axis, False), lax.stop_gradient(wide_x))
    shifted_exps = apply(ShiftedExp(), wide_x, largest)
    sums = apply(DecayedSum(axis), shifted_exps, largest)
    return cast(largest + lax.log(sums), x.dtype)
