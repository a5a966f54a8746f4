"""What a rank pool does: which elements it compares in which order, and how cotangents are sent back."""

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

Rank = int | Literal["higher", "lower"]  # an int, or which of the middle two of an even number
Comparator = tuple[
    int, int, bool, bool
]  # two places, and whether the less and the greater are needed


def reduced(window: Window) -> bool:
    """Whether one window covers its axes and has many taps: its elements are counted by reductions."""
    return window.size > LIMITS.whole_taps and all(dim.whole for dim in window.dims)


def by_network(count: int, platform: Platform) -> bool:
    """Whether `count` taps of windows that slide are ranked by comparators; else by a loop that counts."""
    return count <= TUNING[platform].network_taps


def unrolled(window: Window) -> bool:
    """Whether there is a term for each tap where what windows chose is found; else a loop over the taps.

    On every platform alike: it is also what is kept that this decides, and the length of the program.
    """
    return window.size <= LIMITS.masked_taps


def walked_back(window: Window) -> bool:
    """Whether a loop over the taps sends cotangents to what windows chose: long ones that meet."""
    return window.overlapping and not unrolled(window)


def rows_joined(problem: Problem) -> bool:
    """Whether short rows are made one with their axis for a loop over the taps.

    Of what is sharded as its type says, axes cannot be made one.
    """
    return (
        not problem.sharded
        and 1 < row(problem.shape, problem.window.axes) < problem.tuning.walked_row
    )


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's comparators that sort `count` elements; Knuth 5.2.2, algorithm M."""
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
    """Comparators that bring the elements of `ranks` among `count` to their places; no others are made."""
    needed, found = set(ranks), []
    for low, high in reversed([*_merge_exchange(count)]):
        if low in needed or high in needed:
            found.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return tuple(reversed(found))


def place_of(rank: Rank, count: Any) -> Any:
    """The position of `rank` among `count` sorted elements, an int or an array of ints."""
    if isinstance(rank, str):
        return (count - int(rank == "lower")) // 2
    return rank % count


def places(window: Window, rank: Rank) -> tuple[int, ...]:
    """The positions that `rank` may have once all taps of a window are sorted; medians may have several.

    Padding stands after all elements, or before them where a negative rank counts from the end.
    """
    if not isinstance(rank, str):
        return (place_of(rank, window.size),)
    along = [np.unique(dim.real(dim.kinds())) for dim in window.dims]
    sizes = functools.reduce(np.multiply.outer, along)
    return tuple(np.unique(place_of(rank, sizes)).tolist())


@functools.lru_cache(maxsize=4096)
def plan_rank(problem: Problem) -> MaxPlan:
    """How tangents and cotangents go: by the plan of a maximum, but windows that meet in one step.

    Of two windows that share a part each may choose another element of it, so no part has an index.
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
