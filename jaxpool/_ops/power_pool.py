"""Pools of powers: p-norms and generalised means."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.fold import State, window_max, window_unfold
from jaxpool._ops.op import Composite, apply
from jaxpool._ops.scaled import (
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


@dataclasses.dataclass(frozen=True)
class NormPool(Composite):
    """`(sum of |x|^p)^(1/p)`; for p = inf the maximum of |x|."""

    window: Window
    p: float

    def value(self, x: Array) -> Array:
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
        return y.astype(x.dtype)

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


@dataclasses.dataclass(frozen=True)
class MeanPool(Composite):
    """`mean(max(x, eps)^p)^(1/p)`; `p` is None if an array comes with x."""

    window: Window
    p: float | None
    eps: float

    def value(self, x: Array, *given: Array) -> Array:
        wide = widened(x, self.window)
        least = max(self.eps, float(jnp.finfo(wide.dtype).tiny))
        exponent = within(given[0] if given else self.p, wide.dtype)
        wide = lax.max(wide, lax.full_like(wide, least))
        wide, window, p, real = lay_out(wide, self.window, exponent)
        up = p > 0  # a mean of negative power is that of the inverses, inverted
        height = lax.stop_gradient(jnp.where(real, jnp.where(up, wide, 1 / wide), 0))
        powers = jnp.where(real, lax.exp(departure(lax.log(wide)) * p), 0)
        highest, total = scaled_sums(height, (powers,), window, power(abs(p)), 0)
        total = lax.reshape(total, self.window.pooled(x.shape))
        counts = element_counts(self.window, "real", total)
        scale = lax.reshape(jnp.where(up, highest, 1 / highest), total.shape)
        endless = jnp.isinf(scale)
        mean = jnp.where(endless, 1, total / counts)
        y = jnp.where(endless, 1, scale) * lax.exp(lax.log(mean) / exponent)
        return jnp.where(endless, np.inf, y).astype(x.dtype)
