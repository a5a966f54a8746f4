"""Scatter elements to their positions, as the inverse of a max pool with indices: the op of `max_unpool`."""

import dataclasses
import math
from typing import Any

from jax import Array

from jaxpool._geometry.window import Window, replace_sizes
from jaxpool._kernels import positions
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.scatter import scatters_in_order


@dataclasses.dataclass(frozen=True)
class Unpool(Op):
    """Scatter elements to their positions along `axes`, which have the lengths `sizes` in the output.

    Residual: the position of each element. If elements share a position, the last element is written.
    Overwritten elements have a residual out of bounds, and cotangent 0. All residuals in bounds are distinct.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    def value(self, platform: Platform, y: Array, indices: Array) -> Array:
        return self._scatter(
            platform, y, positions.indices_to_positions(indices, math.prod(self.sizes))
        )

    def primal(self, platform: Platform, y: Array, indices: Array) -> tuple[Array, Array]:
        position = positions.indices_to_positions(indices, math.prod(self.sizes))
        residual = positions.drop_overwritten_positions(
            position, self.axes, self.sizes, writes_in_order=self._is_ordered(platform, y)
        )
        return self._scatter(platform, y, position), residual

    def linear(self, platform: Platform, position: Array, y_dot: Array) -> Array:
        is_ordered = self._is_ordered(platform, y_dot)
        put = positions.scatter_in_order if is_ordered else positions.scatter_add_at_position
        return put(y_dot, position, self.axes, self.sizes)

    def transpose(self, platform: Platform, position: Array, dx: Array) -> tuple[Array]:
        is_ordered = self._is_ordered(platform, dx)
        gather = positions.gather_in_order if is_ordered else positions.gather_at_position
        return (gather(dx, position, self.axes),)

    def _scatter(self, platform: Platform, y: Array, position: Array) -> Array:
        put = (
            positions.scatter_in_order
            if self._is_ordered(platform, y)
            else positions.scatter_last_wins
        )
        return put(y, position, self.axes, self.sizes)

    def _is_ordered(self, platform: Platform, y: Any) -> bool:
        problem = problem_of(Window(()), y, platform)
        output_shape = replace_sizes(problem.shape, self.axes, self.sizes)
        return scatters_in_order(platform, output_shape, problem.is_sharded)
