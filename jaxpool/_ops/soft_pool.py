"""Pools of exponentials: logsumexp and softmax."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.fold import State
from jaxpool._ops.op import apply
from jaxpool._ops.ranged import RangedOp, between, greatest, spread_of
from jaxpool._ops.scaled import departure, exponential, lay_out, scaled_sums, widened, within
from jaxpool._ops.sum_pool import SumPool


@dataclasses.dataclass(frozen=True)
class SoftPool(RangedOp):
    """What the exponentials of each window make; `temperature` is None if an array comes with x."""

    window: Window
    temperature: float | None

    @property
    def inputs(self) -> int:  # type: ignore[override]
        """x, and the temperature if it is an array."""
        return 1 if self.temperature is not None else 2

    def is_plain(self, *given: Array) -> bool:
        return not given or all(given[0].shape[axis] == 1 for axis in self.window.axes)

    def careful(self, x: Array, *given: Array) -> Array:
        wide, heat = self._taken(x, *given)
        wide, window, heat, real = lay_out(wide, self.window, heat)
        return lax.reshape(self.soft(wide, window, heat, real), self.window.pooled(x.shape))

    def _taken(self, x: Array, *given: Array) -> tuple[Array, Any]:
        wide = widened(x, self.window)
        return wide, within(given[0] if given else self.temperature, wide.dtype)

    def sum(self, x: Array) -> Array:
        """The sum of each window, linear in x."""
        return apply(SumPool(self.window), "jvp", x)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        """The output, given x in the type to compute in, and which of its elements are real."""
        raise TypeError(f"{type(self).__name__} describes no value")


REACH = 58  # powers of 2 that a total may be away from 1: with a cotangent as far, all is normal
GRID = 32.0  # what exponents are relative to is a multiple of it, 0 for most arrays: then nothing is rounded


def _base(x: Array, heat: Any) -> Array:
    """What x is relative to, for each temperature: near its largest element, a constant to AD."""
    step = GRID * lax.stop_gradient(heat)
    return lax.stop_gradient(jnp.round(greatest(x) / step) * step)


def _exponentials(x: Array, window: Window, heat: Any, real: Any, *, moment: bool = False) -> State:
    """The maximum m of each window, the sum of `e = exp((x - m) / heat)`, and of `e * (x - m)`."""
    rise = departure(x)
    total = jnp.where(real, lax.exp(rise / heat), 0)
    sums = (total, rise * total) if moment else (total,)
    highest = jnp.where(real, x, -np.inf)
    return scaled_sums(highest, sums, window, exponential(1 / heat), -np.inf)


class LogSumExpPool(SoftPool):
    """`heat * log(sum of exp(x / heat))`."""

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, heat = self._taken(x, *given)
        base = _base(wide, heat)
        total = self.sum(lax.exp((wide - base) / heat))
        return base + heat * lax.log(total), between(total, REACH)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        wide, heat = self._taken(x, *given)
        base = _base(wide, heat)
        return lax.abs(lax.stop_gradient((y - base) / heat)) < REACH * math.log(2)

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        if len(xs) == 2:
            return super().plain_linear(xs, y, dots)
        wide, heat = self._taken(*xs)
        base = _base(wide, heat)
        weighed = lax.exp((wide - base) / heat) * dots[0].astype(wide.dtype)
        return self.sum(weighed) * lax.exp((base - y) / heat)

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        if len(xs) == 2:
            return super().plain_transpose(xs, y, dy)
        wide, heat = self._taken(*xs)
        base = _base(wide, heat)
        spread = spread_of(self.window, dy * lax.exp((base - y) / heat))
        return ((lax.exp((wide - base) / heat) * spread).astype(xs[0].dtype),)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total = _exponentials(x, window, heat, real)
        return highest + heat * lax.log(total)


class SoftmaxPool(SoftPool):
    """The mean of x, weighted by `exp(x / heat)`."""

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, heat = self._taken(x, *given)
        rise = wide - greatest(wide)
        weight = lax.exp(rise / heat)
        total = self.sum(weight)
        y = greatest(wide) + self.sum(rise * weight) / total
        # An infinity in x makes y NaN.
        return y, jnp.logical_and(between(total, REACH), y == y)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        """Where no element of x is far from the largest."""
        wide, heat = self._taken(x, *given)
        return lax.abs(lax.stop_gradient((greatest(wide) - wide) / heat)) < REACH * math.log(2)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total, rest = _exponentials(x, window, heat, real, moment=True)
        return highest + rest / total
