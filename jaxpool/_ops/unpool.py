"""The inverse of a max pool that names positions: the op of `max_unpool`."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from jax import Array

from jaxpool._geometry.window import Window, resized
from jaxpool._kernels.positions import add_at, checked_position, put_in_order, put_last, read_at
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.others import puts_in_order
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along


@dataclasses.dataclass(frozen=True)
class Unpool(Op):
    """Elements put at their positions along `axes`, of `sizes` after; keeps the positions.

    The linear map adds where positions collide, though of the values the last one stays: so its
    transpose reads, for every element, the cotangent at its position.
    """

    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    def plan(self, on: Platform, y: Any, *indices: Any) -> OpPlan:
        scattered, gathered = along(self.axes, "scattered"), along(self.axes, "gathered")
        value = scattered if self._in_order(on, y) else (*scattered, *gathered)
        return OpPlan(value, scattered, gathered)

    def primal(self, on: Platform, y: Array, indices: Array) -> tuple[Array, Array]:
        position = checked_position(indices, math.prod(self.sizes))
        put = put_in_order if self._in_order(on, y) else put_last
        return put(y, position, self.axes, self.sizes), position

    def linear(self, on: Platform, position: Array, y_dot: Array) -> Array:
        in_order = self._in_order(on, y_dot)
        add = functools.partial(put_in_order, adds=True) if in_order else add_at
        return add(y_dot, position, self.axes, self.sizes)

    def transpose(self, on: Platform, position: Array, dx: Array) -> tuple[Array]:
        return (read_at(dx, position, self.axes),)

    def _in_order(self, on: Platform, y: Any) -> bool:
        known = problem_of(Window(()), y, on)
        return puts_in_order(on, resized(known.shape, self.axes, self.sizes), known.sharded)
