"""Plans of rank and median pools: comparator networks or counting, and the passes of the derivative."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from jaxpool._geometry.window import Window
from jaxpool._plan.layout import single_region
from jaxpool._plan.max_pool import MaxPass, MaxPlan, WidenMode, plan_max, plan_one_pass
from jaxpool._plan.problem import Platform, Problem, row_size
from jaxpool._plan.tuning import LIMITS, TUNING

Rank = int | Literal["higher", "lower"]  # a position, or the upper or lower median
# Two places, and whether the minimum and the maximum of their elements are needed.
Comparator = tuple[int, int, bool, bool]


def is_global_reduction(window: Window) -> bool:
    """Whether one window of many taps covers its axes, so that reductions count its elements."""
    return window.size > LIMITS.max_sliding_taps and all(dim.is_global for dim in window.dims)


def uses_sorting_network(num_taps: int, platform: Platform) -> bool:
    """Whether `num_taps` taps of sliding windows are ranked by comparators; otherwise a loop counts smaller keys."""
    return num_taps <= TUNING[platform].max_sorting_network_taps


def unrolls_taps(window: Window) -> bool:
    """Whether the selected elements are found with one term per tap; otherwise by a loop over the taps.

    It is the same on every platform, because it also determines the residual.
    """
    return window.size <= LIMITS.max_mask_taps


def uses_backward_loop(window: Window) -> bool:
    """Whether a loop over the taps scatters the cotangents: for large overlapping windows."""
    return window.has_overlap and not unrolls_taps(window)


def merges_rows(problem: Problem) -> bool:
    """Whether short contiguous rows are merged with the minor pooled axis for a loop over the taps.

    Axes of an array with a sharding in its type cannot be merged.
    """
    return (
        not problem.is_sharded
        and 1 < row_size(problem.shape, problem.window.axes) < problem.tuning.min_tap_loop_row
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
def sorting_network(count: int, ranks: tuple[int, ...]) -> tuple[Comparator, ...]:
    """The comparators that move the elements of `ranks` among `count` to their places, without unneeded comparators."""
    needed_positions, network_reversed = set(ranks), []
    for low, high in reversed([*_merge_exchange(count)]):
        if low in needed_positions or high in needed_positions:
            network_reversed.append((low, high, low in needed_positions, high in needed_positions))
            needed_positions |= {low, high}
    return tuple(reversed(network_reversed))


def position_of_rank(rank: Rank, count: Any) -> Any:
    """The position of `rank` among `count` sorted elements, an int or an array of ints."""
    if isinstance(rank, str):
        return (count - int(rank == "lower")) // 2
    return rank % count


def possible_positions(window: Window, rank: Rank) -> tuple[int, ...]:
    """The positions of `rank` among all sorted taps of a window. A median has several if window sizes differ.

    Padding sorts after all elements, or before them for a negative rank.
    """
    if not isinstance(rank, str):
        return (position_of_rank(rank, window.size),)
    counts_per_axis = [
        np.unique(dim.num_taps_inside(dim.representative_windows())) for dim in window.dims
    ]
    window_sizes = functools.reduce(np.multiply.outer, counts_per_axis)
    return tuple(np.unique(position_of_rank(rank, window_sizes)).tolist())


@functools.lru_cache(maxsize=4096)
def plan_rank(problem: Problem) -> MaxPlan:
    """The passes of the derivative: those of a maximum, but a single step if windows overlap.

    Two overlapping windows may select different elements of a shared piece, so a piece has no index of its own.
    """
    plan, one_pass = plan_max(problem), plan_one_pass(problem)
    if not problem.window.has_overlap:
        return plan
    tangent = (MaxPass(one_pass.step, single_region(one_pass.step.phases)),)
    if len(plan.backward) == 1:
        return dataclasses.replace(plan, tangent=tangent)
    float_mode: WidenMode = "apart" if problem.tuning.widens_in_own_pass else "fused"
    widen_mode: WidenMode = float_mode if problem.is_low_precision else "never"
    return dataclasses.replace(plan, backward=(one_pass,), tangent=tangent, widen_mode=widen_mode)
