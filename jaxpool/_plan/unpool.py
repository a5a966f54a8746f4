"""The plan of unpooling: put there densely where elements may lie in windows of their own, else scattered."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.max_pool import MaxPlan, plan_max
from jaxpool._plan.problem import Platform, Problem


@dataclasses.dataclass(frozen=True)
class UnpoolPlan:
    """Windows that do not meet, one an element, as large as the result allows, and how those are routed; or None."""

    window: Window | None
    route: MaxPlan | None
    why: tuple[str, ...] = dataclasses.field(default=(), compare=False)


@functools.lru_cache(maxsize=1024)
def plan_unpool(
    shape: tuple[int | None, ...],
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    dtype: str,
    platform: Platform,
    sharded: bool,
) -> UnpoolPlan:
    """The plan for elements of `shape` that are put in `sizes` along `axes`."""
    window = None if sharded else _own_windows(shape, axes, sizes)
    if window:
        whole = window.unpooled(shape)
        problem = Problem(window, whole, dtype, platform)
        if window.size <= problem.tuning.unpool_taps:
            why = "dense if all indices lie in windows of their own, tested where the program runs"
            return UnpoolPlan(window, plan_max(problem), (f"unpool: {why}",))
    return UnpoolPlan(
        None, None, ("unpool: the number of the last element that wants a position is scattered",)
    )


def _own_windows(
    shape: Sequence[int | None], axes: Sequence[int], sizes: Sequence[int]
) -> Window | None:
    outs = [shape[axis] for axis in axes]
    dims = []
    for axis, out, size in zip(axes, outs, sizes, strict=True):
        if None in shape or not out or out > size:
            return None
        width = size // out
        dims.append(Axis(axis, size, width, width, 1, 0, 0, out))
    return Window(tuple(dims))
