"""Plans of rank and median pools: comparator networks or counting, and the passes of the derivative."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from jaxpool._geometry.window import Window
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.max_pool import MaxPlan, Pass, Widen, plan_max, plan_ties
from jaxpool._plan.problem import Platform, Problem, row
from jaxpool._plan.tuning import LIMITS, TUNING

Rank = int | Literal["higher", "lower"]  # a position, or the upper or lower median
# Two places, and whether the minimum and the maximum of their elements are needed.
Comparator = tuple[int, int, bool, bool]


def reduced(window: Window) -> bool:
    """Whether one window of many taps covers its axes, so that reductions count its elements."""
    return window.size > LIMITS.whole_taps and all(dim.whole for dim in window.dims)


def by_network(count: int, platform: Platform) -> bool:
    """Whether `count` taps of sliding windows are ranked by comparators; otherwise a loop counts smaller keys."""
    return count <= TUNING[platform].network_taps


def unrolled(window: Window) -> bool:
    """Whether the selected elements are found with one term per tap; otherwise by a loop over the taps.

    It is the same on every platform, because it also determines the residual.
    """
    return window.size <= LIMITS.masked_taps


def walked_back(window: Window) -> bool:
    """Whether a loop over the taps scatters the cotangents: for large overlapping windows."""
    return window.overlapping and not unrolled(window)


def rows_joined(problem: Problem) -> bool:
    """Whether short contiguous rows are merged with the minor pooled axis for a loop over the taps.

    Axes of an array with a sharding in its type cannot be merged.
    """
    return (
        not problem.sharded
        and 1 < row(problem.shape, problem.window.axes) < problem.tuning.walked_row
    )


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    """Comparators of Batcher's merge exchange sort of `count` elements; Knuth 5.2.2, algorithm M."""
    top = p = 1 << max(0, (count - 1).bit_length() - 1)
    while p and count > 1:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


@functools.lru_cache(maxsize=256)
def network(count: int, ranks: tuple[int, ...]) -> tuple[Comparator, ...]:
    """The comparators that move the elements of `ranks` among `count` to their places, without unneeded comparators."""
    needed, network_reversed = set(ranks), []
    for low, high in reversed([*_merge_exchange(count)]):
        if low in needed or high in needed:
            network_reversed.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return tuple(reversed(network_reversed))


def place_of(rank: Rank, count: Any) -> Any:
    """The position of `rank` among `count` sorted elements, an int or an array of ints."""
    if isinstance(rank, str):
        return (count - int(rank == "lower")) // 2
    return rank % count


def places(window: Window, rank: Rank) -> tuple[int, ...]:
    """The positions of `rank` among all sorted taps of a window. A median has several if window sizes differ.

    Padding sorts after all elements, or before them for a negative rank.
    """
    if not isinstance(rank, str):
        return (place_of(rank, window.size),)
    along = [np.unique(dim.num_taps_inside(dim.kinds())) for dim in window.dims]
    sizes = functools.reduce(np.multiply.outer, along)
    return tuple(np.unique(place_of(rank, sizes)).tolist())


@functools.lru_cache(maxsize=4096)
def plan_rank(problem: Problem) -> MaxPlan:
    """The passes of the derivative: those of a maximum, but a single step if windows overlap.

    Two overlapping windows may select different elements of a shared piece, so a piece has no index of its own.
    """
    plan, one = plan_max(problem), plan_ties(problem)
    if not problem.window.overlapping:
        return plan
    tangent = (Pass(one.step, in_one_region(one.step.phases)),)
    if len(plan.backward) == 1:
        return dataclasses.replace(plan, tangent=tangent)
    wide: Widen = "apart" if problem.tuning.widened_apart else "fused"
    widen: Widen = wide if problem.low_precision else "never"
    return dataclasses.replace(plan, backward=(one,), tangent=tangent, widen=widen)
