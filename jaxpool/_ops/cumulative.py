"""Running maximum and minimum along an axis, with the position of the selected element.

The scan kernels are in `_kernels/scan.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jax import Array

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.scan import (
    Scan,
    copy_along_runs,
    running_max_or_min,
    running_select_with_index,
    sum_over_runs,
)
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.scan import plan_scan

FirstOrLast = Literal["first", "last"]


def make_scan(platform: Platform, x: Any, axis: int, *, reverse: bool) -> Scan:
    """A cumulative operation (scan) over x along `axis`."""
    problem = problem_of(Window(()), x, platform)
    return Scan(axis, reverse, plan_scan(platform, problem.shape, problem.is_sharded))


@dataclasses.dataclass(frozen=True)
class RunningExtremum(Op):
    """Running maximum or minimum along `axis`. Residual: the position of the selected element.

    `reset`, which broadcasts to x, is True at the first element of each episode. Every episode is scanned separately.
    """

    kind: Kind
    ties: FirstOrLast
    axis: int
    reverse: bool

    materialises_inputs = True

    def _scan(self, platform: Platform, x: Array) -> Scan:
        return make_scan(platform, x, self.axis, reverse=self.reverse)

    def value(self, platform: Platform, x: Array, *reset: Array) -> Array:
        return running_max_or_min(x, self.kind, self._scan(platform, x), *reset)

    def primal(self, platform: Platform, x: Array, *reset: Array) -> tuple[Array, Array]:
        scan = self._scan(platform, x)
        return running_select_with_index(x, self.kind, self.ties, scan, *reset)

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        return copy_along_runs(x_dot, index, self._scan(platform, x_dot))

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (sum_over_runs(dy, index, self._scan(platform, dy)),)
