"""Max and min pools: the ops by what becomes of ties, and which of them a window gets."""

from __future__ import annotations

import dataclasses

from jax import Array

from jaxpool._geometry.window import Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.select import Kind, Order, Ties, select, select_value
from jaxpool._kernels.ties import Words, pick_level, pick_tied, route_level, route_tied, tie_masks
from jaxpool._ops.op import Op
from jaxpool._ops.reduction import Reduction
from jaxpool._plan.steps import FLAT_TAPS

MASKED_TAPS = 128  # windows of more taps keep x and y for `ties="split"`: a program of one mask a tap grows too large


@dataclasses.dataclass(frozen=True)
class SelectPool(Op):
    """A max or min pool whose cotangent goes to one element; keeps that element's tap, one integer an output."""

    window: Window
    kind: Kind
    ties: Order

    def value(self, x: Array) -> Array:
        return select_value(x, self.window, self.kind, self.ties)

    def primal(self, x: Array) -> tuple[Array, Array]:
        return select(x, self.window, self.kind, self.ties)

    def linear(self, index: Array, x_dot: Array) -> Array:
        return pick(x_dot, index, self.window, self.ties)

    def transpose(self, index: Array, dy: Array) -> tuple[Array]:
        return (route(dy, index, self.window, self.ties),)


@dataclasses.dataclass(frozen=True)
class MaskPool(Op):
    """A max or min pool whose cotangent is split among tied elements; keeps one bit a tap."""

    window: Window
    kind: Kind

    def value(self, x: Array) -> Array:
        return select_value(x, self.window, self.kind, "first")

    def primal(self, x: Array) -> tuple[Array, Words]:
        y = self.value(x)
        fill = kernels.losing(x.dtype, self.kind)
        return y, tie_masks(x, y, self.window, fill)

    def linear(self, words: Words, x_dot: Array) -> Array:
        return pick_tied(x_dot, words, self.window)

    def transpose(self, words: Words, dy: Array) -> tuple[Array]:
        return (route_tied(dy, words, self.window),)


@dataclasses.dataclass(frozen=True)
class LevelPool(Op):
    """A max or min pool over large windows whose cotangent is split among tied elements; keeps x and y."""

    window: Window
    kind: Kind

    def value(self, x: Array) -> Array:
        return select_value(x, self.window, self.kind, "first")

    def primal(self, x: Array) -> tuple[Array, tuple[Array, Array]]:
        y = self.value(x)
        return y, (x, y)

    def linear(self, residual: tuple[Array, Array], x_dot: Array) -> Array:
        return pick_level(x_dot, residual[0], self.window, self.kind)

    def transpose(self, residual: tuple[Array, Array], dy: Array) -> tuple[Array]:
        return (route_level(dy, *residual, self.window, self.kind),)


def pool_op(window: Window, kind: Kind, ties: Ties) -> Op:
    """The op of a max or min pool."""
    if window.size > FLAT_TAPS and all(dim.whole for dim in window.dims):
        return Reduction(kind, ties, window.axes, window.input_shape)
    if ties != "split":
        return SelectPool(window, kind, ties)
    return (MaskPool if window.size <= MASKED_TAPS else LevelPool)(window, kind)
