"""p-norm pools, with the direct and the scaled evaluation of `RangedOp`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.predicates import all_of
from jaxpool._ops.apply import apply
from jaxpool._ops.moves import POLYNOMIAL, State, power, ratio, size, size_to
from jaxpool._ops.ranged import ALL_ZERO, RangedOp, Shares, between, share, with_status
from jaxpool._ops.scaled import (
    Stages,
    in_stages,
    largest,
    spread_of,
    sum_of,
    widened,
    within,
)
from jaxpool._ops.select_pool import SelectPool
from jaxpool._plan.problem import Platform


def _reach(p: float) -> float:
    """Largest |log2| of a total in range. It is lower for powers by logarithms, which lose digits."""
    return 58.0 if p == int(p) <= POLYNOMIAL else 30.0


def _root(total: Array, p: float) -> Array:
    return lax.sqrt(total) if p == 2 else lax.exp(lax.log(total) / p)


def to(y: Array, p: float) -> Array:
    """y^p for positive y."""
    whole = p == int(p) and abs(p) <= POLYNOMIAL
    return lax.integer_pow(y, int(p)) if whole else lax.exp(p * lax.log(y))


def _slope(x: Array, p: float) -> Array:
    """The derivative of `|x|^p / p`; 0 at 0."""
    if p == int(p) and p % 2 == 0 and p <= POLYNOMIAL:
        return lax.integer_pow(x, int(p) - 1)
    return lax.sign(x) * size_to(x, p - 1)


def _norm_slopes(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
    """Scale sums of tangents by the derivative of `|r|^p / p` at `r = low / high`; low may be negative."""
    return tuple(_slope(ratio(low, high), p) * each for each in sums)


def _still(x: Array) -> Array:
    """Mask of the elements with derivative 0 for any window: zeros and infinities."""
    return jnp.logical_or(jnp.isinf(x), x == 0)


def _where_beyond(y: Array, more: Callable[[Array], Array], value: Array) -> Array:
    """`more(value)` if a norm is infinite, else `value`."""
    checked: Array = lax.cond(
        all_of(jnp.logical_not(jnp.isinf(y))), lambda value: value, more, value
    )
    return checked


@dataclasses.dataclass(frozen=True)
class NormPool(RangedOp):
    """`(sum of |x|^p)^(1/p)`; for p = inf the maximum of |x|."""

    window: Window
    p: float

    def has_direct_evaluation(self, *extra_args: Array) -> bool:
        return self.p not in (1, math.inf)

    def _taken(self, x: Array) -> tuple[Array, float]:
        wide = widened(x, self.window)
        return wide, within(self.p, wide.dtype)

    def direct(self, x: Array) -> tuple[Array, Array]:
        wide, p = self._taken(x)
        y = _root(sum_of(self.window, size_to(wide, p)), p)
        return y, with_status(self._near(y, p), y == 0)

    def _near(self, y: Array, p: float) -> Array:
        return between(y, min(_reach(p) / p, 100.0))

    def outside(self, platform: Platform, status: Array, y: Array, x: Array) -> Array:
        """y, if it is 0 only for windows of zeros; the scaled evaluation, if powers underflow or overflow."""
        wide, p = self._taken(x)
        usual = jnp.logical_or(wide == 0, lax.abs(wide) > 2.0 ** -(100 / max(p, 1)))
        right = jnp.logical_and(status == ALL_ZERO, all_of(usual))
        result: Array = lax.cond(
            right, lambda y, x: y, lambda y, x: self.scaled_in_chunks(platform, x), y, x
        )
        return result

    def right(self, y: Array, x: Array) -> Array:
        return jnp.logical_or(self._steady(y), lax.stop_gradient(y) == 0)

    def _steady(self, y: Array) -> Array:
        p = within(self.p, y.dtype)
        slope = to(lax.stop_gradient(jnp.where(y == 0, 1, y)), 1 - p)
        return jnp.logical_and(self._near(y, p), between(slope, 60))

    def _descent(self, y: Array, p: float) -> Array:
        """`y^(1 - p)`; 1 if y is 0, whose elements have slope 0."""
        return to(jnp.where(y == 0, 1, y), 1 - p)

    def direct_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide, p = self._taken(xs[0])
        return sum_of(self.window, _slope(wide, p) * dots[0]) * self._descent(y, p)

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        sure = self._steady(y)
        slope = self._descent(jnp.where(sure, y, 1), within(self.p, y.dtype))
        return share(dy, slope, sure, y == 0)

    def direct_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        wide, p = self._taken(xs[0])
        return ((_slope(wide, p) * spread_of(self.window, *shares)).astype(xs[0].dtype),)

    def scaled(self, x: Array) -> Array:
        if self.p == math.inf:
            wide = size(widened(x, self.window))
            return apply(SelectPool(self.window, "max", "first"), "jvp", wide)
        wide, p = self._taken(x)
        if self.p == 1:
            return sum_of(self.window, size(wide))
        stages = self._stages(wide, p)

        def powers(sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
            return tuple(size_to(ratio(low, high), p) * each for each in sums)

        (total,) = stages.gather((1.0,), power, first=powers)
        high = stages.high
        usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
        y = high * _root(jnp.where(usual, total, 1), p)
        return jnp.where(usual, y, high)

    def _stages(self, wide: Array, p: float) -> Stages:
        return in_stages(wide, self.window, p, 0, largest(0), lax.abs(wide))

    def scaled_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        if not self.has_direct_evaluation():
            return super().scaled_linear(xs, y, dots)
        wide, p = self._taken(xs[0])
        dot = jnp.where(_still(wide), 0, dots[0])

        def more(value: Array) -> Array:
            return jnp.where(jnp.isinf(y), self._moved(*self._smaller(wide), p, dot), value)

        return _where_beyond(y, more, self._moved(wide, y, p, dot))

    def scaled_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        if not self.has_direct_evaluation():
            return super().scaled_transpose(xs, y, dy)
        wide, p = self._taken(xs[0])

        def more(dx: Array) -> Array:
            return dx + self._sent(*self._smaller(wide), p, jnp.where(jnp.isinf(y), dy, 0))

        dx = _where_beyond(y, more, self._sent(wide, y, p, dy))
        return (jnp.where(_still(wide), 0, dx).astype(xs[0].dtype),)

    def _moved(self, wide: Array, y: Array, p: float, dot: Array) -> Array:
        (y_dot,) = self._relative(wide, y, p).gather((dot,), self._later, first=_norm_slopes)
        return jnp.where(self._flat(y), 0, y_dot)

    def _sent(self, wide: Array, y: Array, p: float, dy: Array) -> Array:
        steep = jnp.where(self._flat(y), 0, dy)
        (dx,) = self._relative(wide, y, p).spread((steep,), self._later, first=_norm_slopes)
        return dx

    def _smaller(self, wide: Array) -> tuple[Array, Array]:
        """Inputs and norms, scaled down so that norms of finite numbers are finite. Derivatives do not change."""
        small = wide * 2.0**-32
        return small, self.scaled(small)

    def _flat(self, y: Array) -> Array:
        return jnp.logical_or(y == 0, jnp.isinf(y))

    def _relative(self, wide: Array, y: Array, p: float) -> Stages:
        """The stages of tangents and cotangents, whose total weight is `(|x| / y)^(p - 1)`."""
        return self._stages(wide, p).ending(y)

    def _later(self, sums: Sequence[Array], low: Array, high: Array, p: Any) -> State:
        weight = size_to(ratio(low, high), p - 1)
        return tuple(weight * each for each in sums)
