"""The extreme of all elements up to each one along an axis."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jax import Array

from jaxpool._arguments.sizes import is_int
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.scan import run_copies, run_sums, running, running_select
from jaxpool._ops.op import Op
from jaxpool._plan.others import plan_scan
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, Stage

Which = Literal["first", "last"]


@dataclasses.dataclass(frozen=True)
class Running(Op):
    """The extreme of all elements up to each one; keeps that element's position.

    Given a mask that broadcasts to x and is as long along the axis, an episode begins at each element that is True, and
    each episode has a run of its own.
    """

    kind: Kind
    ties: Which
    axis: int
    reverse: bool

    def plan(self, on: Platform, x: Any, *reset: Any) -> OpPlan:
        chosen, size = plan_scan(on), x.shape[self.axis]
        reaches = [*chosen.passes(size)] if is_int(size) else []
        note = (
            f"{len(reaches)} times, each {chosen.ways} times as far"
            if reaches
            else "as far as the axis is long"
        )
        scan = (Stage((self.axis,), chosen.ways, "running", stored=True, note=note, read=chosen),)
        value = (*scan * len(reset), *scan)  # one for where each episode begins
        return OpPlan((*value, *scan), scan, scan, value)

    def value(self, on: Platform, x: Array, *reset: Array) -> Array:
        return running(x, self.axis, self.kind, self.reverse, plan_scan(on), *reset)

    def primal(self, on: Platform, x: Array, *reset: Array) -> tuple[Array, Array]:
        plan = plan_scan(on)
        return running_select(x, self.axis, self.kind, self.ties, self.reverse, plan, *reset)

    def linear(self, on: Platform, index: Array, x_dot: Array) -> Array:
        return run_copies(x_dot, index, self.axis, self.reverse, plan_scan(on))

    def transpose(self, on: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (run_sums(dy, index, self.axis, self.reverse, plan_scan(on)),)
