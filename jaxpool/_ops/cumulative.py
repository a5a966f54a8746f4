"""The extreme of all elements up to each one along an axis."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jax import Array

from jaxpool._kernels.scan import run_copies, run_sums, running, running_select
from jaxpool._kernels.select import Kind
from jaxpool._ops.op import Op

Which = Literal["first", "last"]


@dataclasses.dataclass(frozen=True)
class Running(Op):
    """The extreme of all elements up to each one; keeps that element's position."""

    kind: Kind
    ties: Which
    axis: int
    reverse: bool

    keeps = False  # the kernels keep their steps

    def value(self, x: Array) -> Array:
        return running(x, self.axis, self.kind, self.reverse)

    def primal(self, x: Array) -> tuple[Array, Array]:
        return running_select(x, self.axis, self.kind, self.ties, self.reverse)

    def linear(self, index: Array, x_dot: Array) -> Array:
        return run_copies(x_dot, index, self.axis, self.reverse)

    def transpose(self, index: Array, dy: Array) -> tuple[Array]:
        return (run_sums(dy, index, self.axis, self.reverse),)
