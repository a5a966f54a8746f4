"""The plan of adaptive pools whose windows are not of one length, or long: on a grid, window after window."""

from __future__ import annotations

import dataclasses
import functools

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.max_pool import Keep, MaxPlan, how_kept, plan_max
from jaxpool._plan.problem import Platform, Problem
from jaxpool._plan.tuning import LIMITS


@dataclasses.dataclass(frozen=True)
class AdaptivePlan:
    """How maxima over the windows of a grid are found, and elements of it brought back."""

    max: MaxPlan | None  # None: windows are blocks that are reduced
    one_by_one: tuple[
        bool, ...
    ]  # for each ragged axis, whether the places of an element are read one by one
    keep: Keep
    why: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def ragged(window: Window) -> list[RaggedAxis]:
    """The axes whose windows are not of one length."""
    return [dim for dim in window.dims if isinstance(dim, RaggedAxis)]


def _long(window: Window) -> bool:
    return max(window.window_shape) > LIMITS.long_adaptive_window


def needs_no_grid(window: Window) -> bool:
    """Whether the windows are those of an ordinary pool, and short enough to take tap by tap."""
    return not ragged(window) and not _long(window)


def front(window: Window, ndim: int) -> list[int]:
    """The axes of an array as its grid has them, ragged ones first: so gathers are written fastest."""
    first = [dim.axis for dim in ragged(window)]
    return first + [axis for axis in range(ndim) if axis not in first]


def grid_window(window: Window, ndim: int) -> Window:
    """The windows as they lie on the grid of an array of rank `ndim`."""
    order = front(window, ndim)
    return Window(
        tuple(dataclasses.replace(dim, axis=order.index(dim.axis)) for dim in window.dims)
    )


@functools.lru_cache(maxsize=1024)
def plan_adaptive(
    window: Window, shape: tuple[int | None, ...], dtype: str, platform: Platform, sharded: bool
) -> AdaptivePlan:
    """The plan for an array of `shape`, not yet on the grid."""
    placed = grid_window(window, len(shape))
    on_grid = placed.unpooled([shape[axis] for axis in front(window, len(shape))])
    problem = Problem(placed, on_grid, dtype, platform, sharded)
    counts = [len(dim.places) for dim in ragged(window)]
    long = _long(window)
    why = [f"{len(counts)} ragged axes on a grid of {placed.input_shape}, window after window"]
    why.append("windows reduced as blocks" if long else "windows taken tap by tap")
    return AdaptivePlan(
        None if long else plan_max(problem),
        tuple(count <= LIMITS.adaptive_places for count in counts),
        how_kept(problem),
        tuple(why),
    )
