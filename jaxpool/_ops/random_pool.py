"""Stochastic pools: one random element per window, drawn with a probability proportional to max(x, 0).

`drawn` applies the op, or without random numbers the expected value (`ExpectedPool`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import from_comparison_dtype, to_comparison_dtype
from jaxpool._kernels.dtypes import (
    DType,
    accumulator_dtype,
    as_float,
    cast,
    index_dtype,
    mean_dtype,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.rolled import State
from jaxpool._kernels.select import first_taps_inside
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.chosen import TapPool, fold, pick
from jaxpool._ops.power_pool import ExpectedPool
from jaxpool._ops.ranged import ranged
from jaxpool._plan.problem import Platform, barrier_on


def chance_dtype(dtype: DType) -> DType:
    """The dtype of the random numbers for a pool of `dtype`."""
    return jnp.dtype(np.float64 if dtype == np.float64 else np.float32)


def weight_dtype(dtype: DType) -> DType:
    """The dtype of the weights of elements of `dtype`."""
    return accumulator_dtype(mean_dtype(dtype))


def _weight(x: Array) -> Array:
    return lax.max(x, lax.full_like(x, 0))


@dataclasses.dataclass(frozen=True)
class StochasticPool(TapPool):
    """One element per window, drawn with the weight max(x, 0). Residual: its tap.

    `chance` has one number in [0, 1) per window. The tap whose interval of the cumulative weights contains `chance`
    times the total weight is drawn:

        weights 1 0 3 2, chance 0.5    0[1][  3  ][ 2 ]6    the third tap covers 1 to 4
    """

    window: Window

    def primal(self, platform: Platform, x: Array, chance: Array) -> tuple[Array, Array]:
        index = self._drawn(platform, cast(x, chance.dtype), chance)
        return from_comparison_dtype(
            pick(self.window, to_comparison_dtype(x), index, platform), x.dtype
        ), index

    def _drawn(self, platform: Platform, x: Array, chance: Array) -> Array:
        """The drawn tap of each window; if all weights are 0, the first tap inside the array."""
        window, dtype = self.window, index_dtype(self.window.size)
        # Scaled by `small`, the weights of a window have a finite sum.
        small = np.asarray(0.5 ** window.size.bit_length(), x.dtype)
        most = lax.full_like(chance, jnp.finfo(x.dtype).max)

        def weigh(state: State, _: Any, elements: Sequence[Array], *own: Array) -> State:
            # The max follows the scaling, because XLA would replace a sum of scaled terms by a scaled sum.
            return state[0] + _weight(elements[0]), state[1] + _weight(elements[0] * small)

        def measured(x: Array, chance: Array) -> tuple[Array, Array]:
            nothing = lax.full_like(chance, 0)
            total, part = fold(window, platform, weigh, [nothing, nothing], [x], [0])
            # finfo.max draws the first infinite weight (later weights begin at infinity), infinity the first NaN.
            share = chance * jnp.where(jnp.isinf(total), part, total)
            share = jnp.where(jnp.isinf(part), most, jnp.where(jnp.isnan(part), np.inf, share))
            return share, jnp.where(jnp.isinf(total), small, 1)

        def cover(state: State, tap: Any, elements: Sequence[Array], *own: Array) -> State:
            (before, drawn), (share, scale, first) = state, own
            weight = _weight(elements[0] * scale)
            here = lax.bitwise_and(lax.bitwise_not(weight <= 0), before <= share)
            number = slices.broadcast_like(tap.astype(dtype), drawn)
            here = lax.bitwise_or(here, first == number)
            return before + weight, lax.select(here, number, drawn)

        share, scale = materialise(barrier_on(platform), measured, x, chance)
        first = slices.broadcast_like(first_taps_inside(window, x.ndim), chance)
        start = [lax.full_like(chance, 0), lax.full_like(chance, 0, dtype)]
        return fold(window, platform, cover, start, [x], [0], share, scale, first)[1]


def drawn(op: StochasticPool, x: Array, *chance: Array) -> Array:
    """The elements that `chance` draws, or without it their expected values."""
    if chance:
        return apply_with_extra_args(op, x, *chance)[0]
    return ranged(ExpectedPool(op.window), as_float(x))
