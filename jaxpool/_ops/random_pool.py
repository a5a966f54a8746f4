"""Stochastic pools: one random element per window, drawn with a probability proportional to max(x, 0)."""

import dataclasses

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.dtypes import DType
from jaxpool._kernels.rolled import State
from jaxpool._kernels.select import edge_taps_inside
from jaxpool._ops.chosen import TapResidualPool, fold_taps, pick_selected
from jaxpool._plan.problem import Platform, barrier_of


def uniform_dtype(dtype: DType) -> DType:
    """The dtype of the random numbers for a pool of an array of `dtype`."""
    return jnp.dtype(np.float64 if dtype == np.float64 else np.float32)


def _relu(x: Array) -> Array:
    return lax.max(x, dtypes.scalar_like(x, 0))


@dataclasses.dataclass(frozen=True)
class StochasticPool(TapResidualPool):
    """One element per window, drawn with the weight max(x, 0). Residual: the tap (window index) of the drawn element.

    `random_numbers` has one number in [0, 1) per window. A tap is drawn if its interval of the cumulative weights
    contains the random number times the total weight:

        weights 1 0 3 2, random number 0.5    0[1][  3  ][ 2 ]6    the third tap covers 1 to 4
    """

    window: Window

    def primal(self, platform: Platform, x: Array, random_numbers: Array) -> tuple[Array, Array]:
        index = self._draw_taps(platform, dtypes.cast(x, random_numbers.dtype), random_numbers)
        y = pick_selected(self.window, dtypes.to_comparison_dtype(x), index, platform)
        return dtypes.from_comparison_dtype(y, x.dtype), index

    def _draw_taps(self, platform: Platform, x: Array, random_numbers: Array) -> Array:
        """The tap (window index) drawn in each window; if all weights are 0, the first tap that is not padding."""
        window, dtype = self.window, dtypes.index_dtype(self.window.size)
        # Scaled by `weight_scale`, the weights of a window have a finite sum.
        weight_scale = np.asarray(0.5 ** window.size.bit_length(), x.dtype)
        limit = dtypes.full_like(random_numbers, jnp.finfo(x.dtype).max)

        def add_weight(state: State, tap: Array, elements: Array) -> State:
            # Scale before the max: XLA would replace a sum of scaled terms by a scaled sum, which may overflow.
            return state[0] + _relu(elements), state[1] + _relu(elements * weight_scale)

        def draw_target(x: Array, random_numbers: Array) -> tuple[Array, Array]:
            zeros = dtypes.full_like(random_numbers, 0)
            total, part = fold_taps(window, platform, add_weight, [zeros, zeros], x)
            # The last tap with `weight_before <= target` is drawn: for finfo.max the first inf, for inf the first NaN.
            target = random_numbers * jnp.where(jnp.isinf(total), part, total)
            target = jnp.where(jnp.isinf(part), limit, jnp.where(jnp.isnan(part), np.inf, target))
            return target, jnp.where(jnp.isinf(total), weight_scale, 1)

        def select_tap(
            state: State, tap: Array, elements: Array, target: Array, scale: Array, first_tap: Array
        ) -> State:
            weight_before, drawn_tap = state
            weight = _relu(elements * scale)
            is_drawn = lax.bitwise_and(lax.bitwise_not(weight <= 0), weight_before <= target)
            tap_index = slices.broadcast_like(tap.astype(dtype), drawn_tap)
            is_drawn = lax.bitwise_or(is_drawn, first_tap == tap_index)
            return weight_before + weight, lax.select(is_drawn, tap_index, drawn_tap)

        target, scale = slices.materialise(barrier_of(platform), draw_target, x, random_numbers)
        first_tap = edge_taps_inside(window, x.ndim, take_last=False)
        first_tap = slices.broadcast_like(first_tap, random_numbers)
        start = [dtypes.full_like(random_numbers, 0), dtypes.full_like(random_numbers, 0, dtype)]
        return fold_taps(window, platform, select_tap, start, x, target, scale, first_tap)[1]
