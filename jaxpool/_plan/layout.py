"""`Layout` of one pass over an array: regions of the output, each computed by its own loop, and how loops read input.

Plans choose a layout and `_kernels/passes.py` executes the layout. `_geometry/access.py` defines regions and phases.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from jaxpool._geometry.access import (
    Phases,
    Region,
    split_into_regions,
    total_positions,
    whole_region,
)
from jaxpool._plan.problem import Problem

_Dim = TypeVar("_Dim")  # any representation of an axis

# "padded": each region pads a copy of its input once, and slices the copy for every window offset.
# "bounded": each region slices and pads the input for every window offset. The loop tests bounds instead of copying.
# "tables": one loop gathers all elements through tables of positions (CPU only).
ReadMode = Literal["padded", "bounded", "tables"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Output regions along each axis, their read mode, and whether phases of the last axis are interleaved last."""

    read_mode: ReadMode
    axis_regions: tuple[tuple[Region, ...], ...] = ()
    minor_axis_last: bool = False

    @property
    def num_regions(self) -> int:
        """Number of regions of the output."""
        return math.prod(map(len, self.axis_regions))


def single_region(
    phases: Sequence[Phases], read_mode: ReadMode = "padded", *, extra_position: bool = False
) -> Layout:
    """A layout of one region. `extra_position` lengthens phases of the first strided axis by 1, to be cropped later."""
    strided_axes = [which for which, each in enumerate(phases) if len(each) > 1][:1]
    extra_positions = [extra_position and which in strided_axes for which in range(len(phases))]
    return Layout(read_mode, tuple(map(whole_region, phases, extra_positions)))


def multi_region(
    sources: Sequence[Sequence[Phases]], read_mode: ReadMode, *, separate_ends: bool = True
) -> Layout:
    """A layout cut where shorter phases end and, with `separate_ends`, where windows begin to overlap the padding."""
    axis_regions = [
        split_into_regions(phases, separate_ends=separate_ends)
        for phases in zip(*sources, strict=True)
    ]
    return Layout(read_mode, tuple(axis_regions))


def fits_tables(problem: Problem, phases: Iterable[Phases]) -> bool:
    """Whether elements may be gathered through tables: sizes are known and fit, and the array's type has no sharding.

    If an array is sharded along automatic mesh axes, the gather replicates the pooled axes.
    """
    if None in problem.shape or problem.is_sharded:
        return False
    return all(0 < total_positions(each) <= problem.tuning.max_table_positions for each in phases)


def group_axes(
    dims: Iterable[_Dim], fits_group: Callable[[tuple[_Dim, ...]], bool]
) -> list[tuple[_Dim, ...]]:
    """Split axes into groups of consecutive axes. An axis joins the previous group if `fits_group` allows it."""
    groups: list[tuple[_Dim, ...]] = []
    for dim in dims:
        if groups and fits_group((*groups[-1], dim)):
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return groups
