"""The inverse of a max pool that names positions: the op of `max_unpool`."""

from __future__ import annotations

import dataclasses
import math

from jax import Array

from jaxpool._kernels.positions import checked_position
from jaxpool._kernels.unpool import add_at, put_last
from jaxpool._ops.op import Op


@dataclasses.dataclass(frozen=True)
class Unpool(Op):
    """Elements put at their positions along `axes`, of `sizes` after; keeps the positions.

    The linear map adds where positions collide, though of the values the last one stays: so its
    transpose reads, for every element, the cotangent at its position.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    keeps = False

    def primal(self, y: Array, indices: Array) -> tuple[Array, Array]:
        position = checked_position(indices, math.prod(self.sizes))
        return put_last(y, position, self.axes, self.sizes), position

    def linear(self, position: Array, y_dot: Array) -> Array:
        return add_at(y_dot, position, self.axes, self.sizes)
