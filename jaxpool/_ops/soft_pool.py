"""Pools of exponentials: logsumexp and softmax."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.fold import State
from jaxpool._ops.op import Composite
from jaxpool._ops.scaled import departure, exponential, lay_out, scaled_sums, widened, within


@dataclasses.dataclass(frozen=True)
class SoftPool(Composite):
    """What the exponentials of each window make; `temperature` is None if an array comes with x."""

    window: Window
    temperature: float | None

    def value(self, x: Array, *given: Array) -> Array:
        wide = widened(x, self.window)
        temperature = within(given[0] if given else self.temperature, wide.dtype)
        wide, window, heat, real = lay_out(wide, self.window, temperature)
        y = self.soft(wide, window, heat, real)
        return lax.reshape(y, self.window.pooled(x.shape)).astype(x.dtype)

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        """The output, given x in the type to compute in, and which of its elements are real."""
        raise TypeError(f"{type(self).__name__} describes no value")


def _exponentials(x: Array, window: Window, heat: Any, real: Any, *, moment: bool = False) -> State:
    """The maximum m of each window, the sum of `e = exp((x - m) / heat)`, and of `e * (x - m)`."""
    rise = departure(x)
    total = jnp.where(real, lax.exp(rise / heat), 0)
    sums = (total, rise * total) if moment else (total,)
    highest = jnp.where(real, x, -np.inf)
    return scaled_sums(highest, sums, window, exponential(1 / heat), -np.inf)


class LogSumExpPool(SoftPool):
    """`heat * log(sum of exp(x / heat))`."""

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total = _exponentials(x, window, heat, real)
        return highest + heat * lax.log(total)


class SoftmaxPool(SoftPool):
    """The mean of x, weighted by `exp(x / heat)`."""

    def soft(self, x: Array, window: Window, heat: Any, real: Any) -> Array:
        highest, total, rest = _exponentials(x, window, heat, real, moment=True)
        return highest + rest / total
