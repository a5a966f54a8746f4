"""Plans of rank and median pools: sorting networks or counting, and the passes of the derivative."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Literal

import numpy as np

from jaxpool._geometry.window import Index, Window
from jaxpool._plan.max_pool import MaxPlan, plan_max, plan_one_pass, tangent_passes, widen_mode
from jaxpool._plan.problem import Platform, Problem, row_size
from jaxpool._plan.tuning import LIMITS, TUNING

Rank = int | Literal["higher", "lower"]  # a position, or the upper or lower median
# Two positions of a sorting network, and whether the minimum and the maximum of the two elements are needed.
Comparator = tuple[int, int, bool, bool]


def uses_sorting_network(num_taps: int, platform: Platform) -> bool:
    """Whether a sorting network ranks windows of `num_taps` elements; otherwise a loop counts smaller sort keys."""
    return num_taps <= TUNING[platform].max_sorting_network_taps


def unrolls_taps(window: Window) -> bool:
    """Whether unrolled code finds the selected elements, else a loop: on all platforms, because residuals differ."""
    return window.size <= LIMITS.max_mask_taps


def uses_backward_loop(window: Window) -> bool:
    """Whether a loop over window offsets scatters the cotangents, which is the case for large overlapping windows."""
    return window.has_overlap and not unrolls_taps(window)


def merges_rows(problem: Problem) -> bool:
    """Whether the axes after the last pooled axis are collapsed into it for a loop over window offsets."""
    row = row_size(problem.shape, problem.window.axes)
    return not problem.is_sharded and 1 < row < problem.tuning.min_tap_loop_row


def scatters_positions(num_selected: int, platform: Platform) -> bool:
    """Whether cotangents of the largest elements are scattered, instead of comparing positions with each of them."""
    return num_selected > TUNING[platform].max_compared_positions


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    """Pairs that Batcher's merge exchange sort of `count` elements compares (Knuth 5.2.2, algorithm M)."""
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
def sorting_network(count: int, ranks: tuple[int, ...]) -> tuple[Comparator, ...]:
    """A sorting network of `count` elements, reduced to the comparators that the sorted positions `ranks` need."""
    needed_positions, network_reversed = set(ranks), []
    for low, high in reversed([*_merge_exchange(count)]):
        if low in needed_positions or high in needed_positions:
            network_reversed.append((low, high, low in needed_positions, high in needed_positions))
            needed_positions |= {low, high}
    return tuple(reversed(network_reversed))


def position_of_rank(rank: Rank, count: Index) -> Index:
    """The position of the element of rank `rank` among `count` sorted elements; `count` is an int or an array."""
    if isinstance(rank, str):
        return (count - int(rank == "lower")) // 2
    return rank % count


def possible_positions(window: Window, rank: Rank) -> tuple[int, ...]:
    """The sorted positions, in any window, of the element of rank `rank`; several for medians of unequal windows."""
    if not isinstance(rank, str):
        return (position_of_rank(rank, window.size),)
    counts = [dim.num_taps_inside(dim.representative_windows()) for dim in window.dims]
    window_sizes = functools.reduce(np.multiply.outer, map(np.unique, counts))
    return tuple(np.unique(position_of_rank(rank, window_sizes)).tolist())


@functools.lru_cache(maxsize=4096)
def plan_rank(problem: Problem) -> MaxPlan:
    """The plan of a maximum, but with one step if windows overlap, because they may select different elements."""
    plan = plan_max(problem)
    if not problem.window.has_overlap:
        return plan
    passes = (plan_one_pass(problem),)
    plan = dataclasses.replace(plan, tangent=tangent_passes(passes))
    if len(plan.backward) == 1:
        return plan
    mode = widen_mode(problem.tuning) if problem.is_low_precision else "never"
    return dataclasses.replace(plan, backward=passes, widen_mode=mode)
