"""The inverse of a max pool that names positions: the op of `max_unpool`."""

from __future__ import annotations

import dataclasses
import math

from jax import Array

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.positions import add_at, checked_position, put, put_last, read_at
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.op import Op
from jaxpool._plan.others import own_windows
from jaxpool._plan.problem import Platform


@dataclasses.dataclass(frozen=True)
class Unpool(Op):
    """Elements put at their positions along `axes`, of `sizes` after; keeps the positions.

    The linear map adds where positions collide, though of the values the last one stays: so its
    transpose reads, for every element, the cotangent at its position.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    def primal(self, on: Platform, y: Array, indices: Array) -> tuple[Array, Array]:
        position = checked_position(indices, math.prod(self.sizes))
        return put(put_last, y, position, self.axes, self.sizes, self._own(on, y)), position

    def linear(self, on: Platform, position: Array, y_dot: Array) -> Array:
        return put(add_at, y_dot, position, self.axes, self.sizes, self._own(on, y_dot))

    def transpose(self, on: Platform, position: Array, dx: Array) -> tuple[Array]:
        return (read_at(dx, position, self.axes),)

    def _own(self, on: Platform, y: Array) -> Window | None:
        shape = [int(size) if is_int(size) else None for size in y.shape]
        return own_windows(shape, self.axes, self.sizes, on, is_sharded(y))
