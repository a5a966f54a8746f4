"""Adaptive pools: ops over windows of unequal sizes, on a grid where they are equal."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import adaptive, slices
from jaxpool._kernels.compare import Order, Ties
from jaxpool._kernels.dtypes import DType, accumulator, least
from jaxpool._kernels.keep import keep
from jaxpool._kernels.reduce import pack, unpack
from jaxpool._ops.op import Op
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._ops.sum_pool import SumPool, element_counts
from jaxpool._plan.adaptive_pool import needs_no_grid
from jaxpool._plan.problem import Platform, keep_on
from jaxpool._plan.tuning import TUNING


class OnGrid(Op):
    """An op over the windows of a grid that describes its transpose alone.

    The other direction is left to jax: it scatters, each element to places of its own; the transpose
    never does.
    """

    window: Window

    def linear(self, on: Platform, residual: Any, x_dot: Array) -> Any:
        y = slices.zeros_like(x_dot, self.window.axes, self.window.output_shape)
        back = functools.partial(self.transpose, on, residual)
        return jax.linear_transpose(back, y)((x_dot,))[0]

    def on_grid(self, ndim: int) -> Window:
        """The windows on the grid of an array of rank `ndim`."""
        return adaptive.grid_window(self.window, ndim)

    def sent(self, share: Array, dtype: DType, won: Array | None = None) -> tuple[Array]:
        """The cotangent of x if each window's share goes to all of its elements, or those that won."""
        grid = adaptive.spread(share, self.on_grid(share.ndim))
        if won is not None:
            grid = lax.select(won, grid, lax.full_like(grid, 0))
        return (adaptive.from_grid(grid, self.window).astype(dtype),)

    def share(self, dy: Array) -> Array:
        """The cotangent of each window as the grid has it, in the type in which it is added up."""
        return adaptive.to_front(dy.astype(accumulator(dy.dtype)), self.window)

    def found(self, on: Platform, x: Array) -> tuple[Array, Array, Window]:
        """The grid of x, the maximum of each window, both kept, and the windows on it."""
        placed, by = self.on_grid(x.ndim), keep_on(on)
        fill = least(x.dtype)
        grid = keep(by, functools.partial(adaptive.to_grid, window=self.window, fill=fill), x)
        y = keep(
            by,
            functools.partial(
                adaptive.extreme_value, window=placed, loses_nan=TUNING[on].loses_nan
            ),
            grid,
        )
        return grid, y, placed


@dataclasses.dataclass(frozen=True)
class AdaptiveSelect(OnGrid):
    """An adaptive max pool whose cotangent goes to one element; keeps its tap."""

    window: Window
    ties: Order

    def value(self, on: Platform, x: Array) -> Array:
        grid = adaptive.to_grid(x, self.window, least(x.dtype))
        return adaptive.from_front(
            adaptive.extreme_value(grid, self.on_grid(x.ndim), loses_nan=TUNING[on].loses_nan),
            self.window,
        )

    def primal(self, on: Platform, x: Array) -> tuple[Array, Array]:
        grid, y, placed = self.found(on, x)
        find = functools.partial(adaptive.extreme, window=placed, ties=self.ties)
        return adaptive.from_front(y, self.window), keep(keep_on(on), find, grid, y)

    def transpose(self, on: Platform, tap: Array, dy: Array) -> tuple[Array]:
        won = adaptive.stands_at(tap, self.on_grid(dy.ndim))
        return self.sent(self.share(dy), dy.dtype, won)


@dataclasses.dataclass(frozen=True)
class AdaptiveSplit(OnGrid):
    """An adaptive max pool whose cotangent is split among tied elements; keeps one bit a tap."""

    window: Window

    def value(self, on: Platform, x: Array) -> Array:
        return AdaptiveSelect(self.window, "first").value(on, x)

    def primal(self, on: Platform, x: Array) -> tuple[Array, Array]:
        grid, y, placed = self.found(on, x)
        won = adaptive.attained(grid, y, placed)
        return adaptive.from_front(y, self.window), pack(won, _longest(placed).axis)

    def transpose(self, on: Platform, bits: Array, dy: Array) -> tuple[Array]:
        placed, share = self.on_grid(dy.ndim), self.share(dy)
        won = unpack(bits, _longest(placed).size, _longest(placed).axis)
        count = adaptive.block_sum(won.astype(np.int32), placed)
        return self.sent(share / count.astype(share.dtype), dy.dtype, won)


@dataclasses.dataclass(frozen=True)
class AdaptiveMean(OnGrid):
    """An adaptive average pool; keeps nothing."""

    window: Window

    linear_in_x = True

    def linear(self, on: Platform, residual: tuple[()], x: Array) -> Array:
        wide = x.astype(accumulator(x.dtype))
        total = adaptive.block_sum(adaptive.to_grid(wide, self.window, 0), self.on_grid(x.ndim))
        return adaptive.from_front(self._divided(total), self.window).astype(x.dtype)

    def transpose(self, on: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        return self.sent(self._divided(self.share(dy)), dy.dtype)

    def _divided(self, y: Array) -> Array:
        return y / jnp.asarray(element_counts(self.on_grid(y.ndim), "real", y))


def _longest(window: Window) -> Axis:
    """The axis of the grid along which bits are packed."""
    return max(window.dims, key=lambda dim: dim.size)


def adaptive_max_op(window: Window, ties: Ties | Order) -> Op:
    """The op of an adaptive max pool."""
    ordinary = needs_no_grid(window)
    if ties == "split":
        return pool_op(window, "max", ties) if ordinary else AdaptiveSplit(window)
    if not ordinary:
        return AdaptiveSelect(window, ties)
    # The residual of these is the chosen tap: with "last" that of a whole window would be counted from the end.
    return pool_op(window, "max", ties) if ties == "first" else SelectPool(window, "max", ties)


def adaptive_avg_op(window: Window) -> Op:
    """The op of an adaptive average pool."""
    return SumPool(window, "counted") if needs_no_grid(window) else AdaptiveMean(window)
