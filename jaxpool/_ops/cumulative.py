"""Running maximum and minimum along an axis, with the position of the selected element.

The kernels are in `_kernels/scan.py`; `scan_stages` describes their plan for `plan_of`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jax import Array

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.scan import run_copies, run_sums, running, running_select
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.others import ScanPlan, plan_scan
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, Stage, Stages

Which = Literal["first", "last"]


def scan_of(platform: Platform, x: Any) -> ScanPlan:
    """The plan of a scan of x."""
    problem = problem_of(Window(()), x, platform)
    return plan_scan(platform, problem.shape, problem.sharded)


def scan_stages(chosen: ScanPlan, axis: int, size: Any) -> Stages:
    """The passes of a scan along an axis of `size` elements, and of the scans of its block ends."""
    if not is_int(size):
        note = "as far as the axis is long"
        return (Stage((axis,), chosen.ways, "running", stored=True, note=note, read=chosen),)

    def scan(size: int, of: str) -> Stages:
        block = chosen.block(size)
        times = len(chosen.passes(block or size))
        note = f"{of}{times} times, each {chosen.ways} times as far"
        first = Stage((axis,), chosen.ways, "running", stored=True, note=note, read=chosen)
        if block is None:
            return (first,)
        last = "what all blocks before have seen is joined to each element"
        ends = scan(-(-size // block), f"of the ends of blocks of {block}, ")
        return first, *ends, Stage((axis,), 2, "running", stored=True, note=last, read=chosen)

    return scan(size, "")


@dataclasses.dataclass(frozen=True)
class Running(Op):
    """Running maximum or minimum along `axis`. Residual: the position of the selected element.

    `reset`, which broadcasts to x, is True at the first element of each episode. The scan does not cross episodes.
    """

    kind: Kind
    ties: Which
    axis: int
    reverse: bool

    stores_inputs = True

    def plan(self, platform: Platform, x: Any, *reset: Any) -> OpPlan:
        scan = scan_stages(scan_of(platform, x), self.axis, x.shape[self.axis])
        value = (*scan * len(reset), *scan)  # with `reset`, another scan finds the episodes
        return OpPlan((*value, *scan), scan, scan, value)

    def value(self, platform: Platform, x: Array, *reset: Array) -> Array:
        return running(x, self.axis, self.kind, self.reverse, scan_of(platform, x), *reset)

    def primal(self, platform: Platform, x: Array, *reset: Array) -> tuple[Array, Array]:
        plan = scan_of(platform, x)
        return running_select(x, self.axis, self.kind, self.ties, self.reverse, plan, *reset)

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        return run_copies(x_dot, index, self.axis, self.reverse, scan_of(platform, x_dot))

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (run_sums(dy, index, self.axis, self.reverse, scan_of(platform, dy)),)
