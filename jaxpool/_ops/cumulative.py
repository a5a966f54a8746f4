"""The extreme of all elements up to each one along an axis."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jax import Array

from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.scan import run_copies, run_sums, running, running_select
from jaxpool._ops.op import Op
from jaxpool._plan.others import plan_scan
from jaxpool._plan.problem import Platform

Which = Literal["first", "last"]


@dataclasses.dataclass(frozen=True)
class Running(Op):
    """The extreme of all elements up to each one; keeps that element's position."""

    kind: Kind
    ties: Which
    axis: int
    reverse: bool

    def value(self, on: Platform, x: Array) -> Array:
        return running(x, self.axis, self.kind, self.reverse, plan_scan(on))

    def primal(self, on: Platform, x: Array) -> tuple[Array, Array]:
        return running_select(x, self.axis, self.kind, self.ties, self.reverse, plan_scan(on))

    def linear(self, on: Platform, index: Array, x_dot: Array) -> Array:
        return run_copies(x_dot, index, self.axis, self.reverse, plan_scan(on))

    def transpose(self, on: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (run_sums(dy, index, self.axis, self.reverse, plan_scan(on)),)
