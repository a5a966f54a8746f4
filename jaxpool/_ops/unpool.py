"""Scatter elements to their positions, as the inverse of a max pool with indices: the op of `max_unpool`."""

import dataclasses
import math
from collections.abc import Callable

from jax import Array

from jaxpool._geometry.window import replace_sizes
from jaxpool._kernels import positions
from jaxpool._ops.op import Op, array_problem
from jaxpool._plan.problem import Platform
from jaxpool._plan.scatter import flattens_scatter, scatters_in_order


@dataclasses.dataclass(frozen=True)
class Unpool(Op):
    """Scatter elements to their positions along `axes`, which have the lengths `sizes` in the output.

    Residual: the position of each element. If elements share a position, the last element is written.
    Overwritten elements have a residual out of bounds, and cotangent 0. All residuals in bounds are distinct.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    def value(self, platform: Platform, y: Array, indices: Array) -> Array:
        scatter, _, _ = self._functions(platform, y)
        position = positions.indices_to_positions(indices, math.prod(self.sizes))
        return scatter(y, position, self.axes, self.sizes)

    def primal(self, platform: Platform, y: Array, indices: Array) -> tuple[Array, Array]:
        position = positions.indices_to_positions(indices, math.prod(self.sizes))
        scatter, _, gather = self._functions(platform, y)
        residual = positions.drop_overwritten_positions(
            position, self.axes, self.sizes, scatter, gather
        )
        return scatter(y, position, self.axes, self.sizes), residual

    def linear(self, platform: Platform, position: Array, y_dot: Array) -> Array:
        _, scatter_distinct, _ = self._functions(platform, y_dot)
        return scatter_distinct(y_dot, position, self.axes, self.sizes)

    def transpose(self, platform: Platform, position: Array, dx: Array) -> tuple[Array]:
        _, _, gather = self._functions(platform, dx)
        return (gather(dx, position, self.axes),)

    def _functions(self, platform: Platform, y: Array) -> tuple[Callable[..., Array], ...]:
        """Functions that scatter to any positions, scatter to distinct positions, and gather, for y or dx."""
        problem = array_problem(y, platform)
        output_shape = replace_sizes(problem.shape, self.axes, self.sizes)
        # With distinct positions, the order in which `scatter_in_order` writes does not matter.
        if scatters_in_order(platform, output_shape, problem.is_sharded):
            return positions.scatter_in_order, positions.scatter_in_order, positions.gather_in_order
        if flattens_scatter(problem, output_shape):
            scatter = positions.scatter_last_wins_flat
            return scatter, positions.scatter_in_order, positions.gather_in_order
        scatter_distinct = positions.scatter_add_at_position
        return positions.scatter_last_wins, scatter_distinct, positions.gather_at_position
