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
from jaxpool._ops.ranged import RangedOp, between, spread_of
from jaxpool._ops.scaled import (
    departure,
    divided,
    exponential,
    lay_out,
    scaled_sums,
    widened,
    within,
)
from jaxpool._ops.sum_pool import SumPool


@dataclasses.dataclass(frozen=True)
class SoftPool(RangedOp):
    """What the exponentials of each window make; `temperature` is None if an array comes with x."""

    window: Window
    temperature: float | None

    @property
    def inputs(self) -> int:
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
        heat = given[0] if given else self.temperature
        return wide, within(heat, wide.dtype, largest=0.25)  # its inverse is normal

    def sum(self, x: Array) -> Array:
        """The sum of each window, linear in x."""
        return apply(SumPool(self.window), "jvp", x)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        """The output, given x in the type to compute in, and which of its elements are real."""
        raise TypeError(f"{type(self).__name__} describes no value")


REACH = 58  # powers of 2 that a total may be away from 1: with a cotangent as far, all is normal


def _exponentials(x: Array, window: Window, heat: Any, real: Any, *, moment: bool = False) -> State:
    """The maximum m of each window, the sum of `e = exp((x - m) / heat)`, and of `e * (x - m)`."""
    rise = departure(x)
    total = jnp.where(real, lax.exp(divided(rise, heat)), 0)
    sums = (total, rise * total) if moment else (total,)
    highest = jnp.where(real, x, -np.inf)
    return scaled_sums(highest, sums, window, exponential(heat), -np.inf)


class LogSumExpPool(SoftPool):
    """`heat * log(sum of exp(x / heat))`."""

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, heat = self._taken(x, *given)
        total = self.sum(lax.exp(divided(wide, heat)))
        return heat * lax.log(total), between(total, REACH)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        heat = self._taken(x, *given)[1]
        return lax.abs(lax.stop_gradient(y / heat)) < REACH * math.log(2)

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        if len(xs) == 2:
            return super().plain_linear(xs, y, dots)
        wide, heat = self._taken(*xs)
        weighed = lax.exp(divided(wide, heat)) * dots[0].astype(wide.dtype)
        return self.sum(weighed) * lax.exp(-divided(y, heat))

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        if len(xs) == 2:
            return super().plain_transpose(xs, y, dy)
        wide, heat = self._taken(*xs)
        spread = spread_of(self.window, dy * lax.exp(-divided(y, heat)))
        return ((lax.exp(divided(wide, heat)) * spread).astype(xs[0].dtype),)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total = _exponentials(x, window, heat, real)
        return highest + heat * lax.log(total)


class SoftmaxPool(SoftPool):
    """The mean of x, weighted by `exp(x / heat)`."""

    def plain(self, x: Array, *given: Array) -> tuple[Array, Array]:
        wide, heat = self._taken(x, *given)
        weight = lax.exp(divided(wide, heat))
        total = self.sum(weight)
        y = self.sum(wide * weight) / total
        # An infinity in x makes y NaN.
        return y, jnp.logical_and(between(total, REACH), y == y)

    def right(self, y: Array, x: Array, *given: Array) -> Array:
        """Where no exponent is far from 0."""
        wide, heat = self._taken(x, *given)
        return lax.abs(lax.stop_gradient(wide / heat)) < REACH * math.log(2)

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        if len(xs) == 2:
            return super().plain_transpose(xs, y, dy)
        wide, heat = self._taken(*xs)
        weight = lax.exp(divided(wide, heat))
        share = dy / self.sum(weight)
        once = spread_of(self.window, share)
        moment = spread_of(self.window, share * (y / heat))
        return ((weight * (once * (1 + wide / heat) - moment)).astype(xs[0].dtype),)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total, rest = _exponentials(x, window, heat, real, moment=True)
        return highest + rest / total
