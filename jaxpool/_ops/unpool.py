"""The inverse of a max pool that names positions: the op of `max_unpool`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.positions import add_at, checked_position, own_taps, put_last, read_at
from jaxpool._kernels.route import route
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.max_pool import plan_max
from jaxpool._plan.others import own_windows
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along, of_steps


def put(
    scatter: Callable[..., Array],
    on: Platform,
    y: Array,
    position: Array,
    axes: Sequence[int],
    sizes: Sequence[int],
    own: Window | None,
) -> Array:
    """Elements scattered; or routed, if all lie in windows of their `own`, as a pool finds them.

    That is tested where the program runs. Mapped positions are not tested together, so `vmap` over
    them computes both.
    """
    if own is None:
        return scatter(y, position, axes, sizes)
    shape, tap = own.unpooled(y.shape), own_taps(position, own)
    plan = plan_max(problem_of(own, y, on, shape))

    # Flat, or XLA gives both branches the transposed layout that the scatter prefers.
    def routed(y: Array, position: Array, tap: Array) -> Array:
        return route(y, tap, plan).ravel()

    def scattered(y: Array, position: Array, tap: Array) -> Array:
        return scatter(y, position, axes, sizes).ravel()

    inside = jnp.all(tap < own.size)
    return lax.reshape(lax.cond(inside, routed, scattered, y, position, tap), shape)


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
        own = self._own(on, y)
        if own is None:
            return OpPlan((*scattered, *gathered), scattered, gathered)
        routed = plan_max(problem_of(own, y, on, own.unpooled(y.shape)))
        sent = of_steps(routed.backward, back=True)
        outside = f"an index lies outside of windows of {own.window_shape} each"
        why = f"or scattered, if {outside}: tested where the program runs"
        return OpPlan(sent, sent, gathered, why=(why,))

    def primal(self, on: Platform, y: Array, indices: Array) -> tuple[Array, Array]:
        position = checked_position(indices, math.prod(self.sizes))
        return self._put(put_last, on, y, position), position

    def linear(self, on: Platform, position: Array, y_dot: Array) -> Array:
        return self._put(add_at, on, y_dot, position)

    def transpose(self, on: Platform, position: Array, dx: Array) -> tuple[Array]:
        return (read_at(dx, position, self.axes),)

    def _put(self, scatter: Callable[..., Array], on: Platform, y: Array, position: Array) -> Array:
        return put(scatter, on, y, position, self.axes, self.sizes, self._own(on, y))

    def _own(self, on: Platform, y: Any) -> Window | None:
        known = problem_of(Window(()), y, on)
        return own_windows(known.shape, self.axes, self.sizes, on, known.sharded)
