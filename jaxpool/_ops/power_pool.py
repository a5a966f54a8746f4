"""Pools of powers: p-norms and generalised means."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import accumulator
from jaxpool._kernels.fold import State, window_max, window_unfold
from jaxpool._ops.op import apply
from jaxpool._ops.ranged import RangedOp, between, spread_of
from jaxpool._ops.scaled import (
    POLYNOMIAL,
    departure,
    keep,
    lay_out,
    power,
    scaled_sums,
    size,
    size_to,
    widened,
    within,
)
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool, element_counts


def _smaller(a: State, b: State) -> State:
    return (lax.min(a[0], b[0]),)


def _reach(p: float) -> float:
    """Powers of 2 that a total may be away from 1: less where logarithms of it lose digits."""
    return 58.0 if p == int(p) <= POLYNOMIAL else 30.0


def _root(total: Array, p: float) -> Array:
    return lax.sqrt(total) if p == 2 else lax.exp(lax.log(total) / p)


def _to(y: Array, p: float) -> Array:
    """y^p of numbers above 0."""
    whole = p == int(p) and abs(p) <= POLYNOMIAL
    return lax.integer_pow(y, int(p)) if whole else lax.exp(p * lax.log(y))


def _slope(x: Array, p: float) -> Array:
    """The derivative of `|x|^p / p`; 0 at 0."""
    if p == int(p) and p % 2 == 0 and p <= POLYNOMIAL:
        return lax.integer_pow(x, int(p) - 1)
    return lax.sign(x) * size_to(x, p - 1)


@dataclasses.dataclass(frozen=True)
class NormPool(RangedOp):
    """`(sum of |x|^p)^(1/p)`; for p = inf the maximum of |x|."""

    window: Window
    p: float

    def is_plain(self, *given: Array) -> bool:
        return self.p not in (1, math.inf)

    def plain(self, x: Array) -> tuple[Array, Array]:
        wide = widened(x, self.window)
        p = within(self.p, wide.dtype)
        total = apply(SumPool(self.window), "jvp", size_to(wide, p))
        return _root(total, p), between(total, _reach(p))

    def right(self, y: Array, x: Array) -> Array:
        p = within(self.p, y.dtype)
        near = between(y, min(_reach(p) / p, 100.0))
        return jnp.logical_and(near, between(_to(y, 1 - p), 60))

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        wide = widened(xs[0], self.window)
        p = within(self.p, wide.dtype)
        weighed = _slope(wide, p) * dots[0].astype(wide.dtype)
        return apply(SumPool(self.window), "jvp", weighed) * _to(y, 1 - p)

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        wide = widened(xs[0], self.window)
        p = within(self.p, wide.dtype)
        spread = spread_of(self.window, dy * _to(y, 1 - p))
        return ((_slope(wide, p) * spread).astype(xs[0].dtype),)

    def careful(self, x: Array) -> Array:
        x = x.astype(accumulator(x.dtype))
        if self.p == math.inf:
            return apply(SelectPool(self.window, "max", "first"), "jvp", size(x))
        return apply(SumPool(self.window), "jvp", size(x)) if self.p == 1 else self._norm(x)

    def _norm(self, x: Array) -> Array:
        wide = widened(x, self.window)
        p, sizes = within(self.p, wide.dtype), lax.stop_gradient(size(wide))
        (largest,) = keep((window_max(sizes, self.window, 0),))
        endless = jnp.isinf(largest)
        wide = jnp.where(jnp.isinf(sizes), 0, wide)
        scale = self._scale(jnp.where(jnp.isinf(sizes), 0, sizes), largest)
        total, scale = self._total(size_to(wide / scale, p), scale, largest, p)
        usual = jnp.logical_not(jnp.logical_or(total == 0, endless))
        total = jnp.where(usual, total, 1)
        root = lax.sqrt(total) if p == 2 else lax.exp(lax.log(total) / p)
        y = jnp.where(usual, scale * root, jnp.where(endless, np.inf, 0))
        return y

    def _scale(self, sizes: Array, largest: Array) -> Array:
        """What to divide each element by: the least maximum of its windows, so that none exceeds 1.

        Windows of nothing but zeros, or with an infinity or a NaN, do not take part.
        """
        usual = jnp.logical_and(largest > 0, largest < np.inf)
        candidates = jnp.where(usual, largest, np.inf)
        (least,) = window_unfold((candidates,), (np.inf,), self.window, _smaller)
        alone = lax.max(sizes, lax.full_like(sizes, 1))
        scale = jnp.where(jnp.isinf(least), alone, lax.max(least, _floor(least)))
        return keep((scale,))[0]

    def _total(self, powers: Array, scale: Array, largest: Array, p: float) -> tuple[Array, Array]:
        """The sum of each window, and the scale at which it is written."""
        if self.window.overlapping:
            highest, total = scaled_sums(scale, (powers,), self.window, power(p), 0)
            return total, highest
        return apply(SumPool(self.window), "jvp", powers), lax.max(largest, _floor(largest))


def _floor(x: Array) -> Array:
    """The least scale: so large that its inverse can be squared."""
    return lax.full_like(x, math.sqrt(jnp.finfo(x.dtype).tiny))


def _power(x: Array, p: Any) -> Array:
    """x^p of numbers above 0."""
    return _to(x, p) if isinstance(p, float) else lax.exp(p * lax.log(x))


@dataclasses.dataclass(frozen=True)
class MeanPool(RangedOp):
    """`mean(max(x, eps)^p)^(1/p)`; `p` is None if an array comes with x."""

    window: Window
    p: float | None
    eps: float

    @property
    def inputs(self) -> int:
        """x, and the power if it is an array."""
        return 1 if self.p is not None else 2

    def is_plain(self, *given: Array) -> bool:
        return not given or all(given[0].shape[axis] == 1 for axis in self.window.axes)

    def _taken(self, x: Array, *given: Array) -> tuple[Array, Any]:
        wide = widened(x, self.window)
        least = max(self.eps, float(jnp.finfo(wide.dtype).tiny))
        p = within(given[0] if given else self.p, wide.dtype)
        return lax.max(wide, lax.full_like(wide, least)), p

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, p = self._taken(x, *given)
        total = apply(SumPool(self.window), "jvp", _power(wide, p))
        mean = total / element_counts(self.window, "real", total)
        return lax.exp(lax.log(mean) / p), self._right(mean, p)

    def _right(self, mean: Array, p: Any) -> Array:
        fits = between(mean, 66)
        return jnp.logical_and(fits, lax.abs(lax.stop_gradient(jnp.asarray(p))) > 2.0**-10)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        p = within(given[0] if given else self.p, y.dtype)
        low = jnp.logical_and(between(y, 60), y > 0)
        slope = _power(jnp.where(low, y, 1), 1 - p)
        low = jnp.logical_and(low, between(slope, 60))
        return jnp.logical_and(low, self._right(_power(jnp.where(low, y, 1), p), p))

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        if len(xs) == 2:
            return super().plain_linear(xs, y, dots)
        slope, p = self._slope(xs[0])
        counts = element_counts(self.window, "real", y)
        total = apply(SumPool(self.window), "jvp", slope * dots[0].astype(y.dtype))
        return total * (_to(y, 1 - p) / counts)

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        if len(xs) == 2:
            return super().plain_transpose(xs, y, dy)
        slope, p = self._slope(xs[0])
        counts = element_counts(self.window, "real", y)
        spread = spread_of(self.window, dy * (_to(y, 1 - p) / counts))
        return ((slope * spread).astype(xs[0].dtype),)

    def _slope(self, x: Array) -> tuple[Array, float]:
        """The derivative of `max(x, eps)^p / p`: half of it at eps, 0 below; and p."""
        wide, p = self._taken(x)
        least = max(self.eps, float(jnp.finfo(wide.dtype).tiny))
        raw = x.astype(wide.dtype)
        share = jnp.where(raw > least, 1, jnp.where(raw == wide, 0.5, 0)).astype(wide.dtype)
        return _to(wide, p - 1) * share, p

    def careful(self, x: Array, *given: Array) -> Array:
        wide = widened(x, self.window)
        least = max(self.eps, float(jnp.finfo(wide.dtype).tiny))
        exponent = within(given[0] if given else self.p, wide.dtype)
        wide = lax.max(wide, lax.full_like(wide, least))
        wide, window, p, real = lay_out(wide, self.window, exponent)
        # The inverse of the largest number is no normal number, 4 times that is one.
        unit = 4 if self.eps > 4 * float(jnp.finfo(wide.dtype).tiny) else 1
        up = p > 0  # a mean of negative power is that of the inverses, inverted
        height = lax.stop_gradient(jnp.where(real, jnp.where(up, wide, unit / wide), 0))
        powers = jnp.where(real, lax.exp(departure(lax.log(wide)) * p), 0)
        highest, total = scaled_sums(height, (powers,), window, power(abs(p)), 0)
        total = lax.reshape(total, self.window.pooled(x.shape))
        counts = element_counts(self.window, "real", total)
        scale = lax.reshape(jnp.where(up, highest, unit / highest), total.shape)
        endless = jnp.isinf(scale)
        mean = jnp.where(endless, 1, total / counts)
        y = jnp.where(endless, 1, scale) * lax.exp(lax.log(mean) / exponent)
        return jnp.where(endless, np.inf, y)
