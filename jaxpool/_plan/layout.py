"""`Layout` of one pass over an array: regions of output positions with a loop each, and how they read.

The plans choose it and `_kernels/passes.py` carries it out. `_geometry/access.py` defines regions and phases.
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

# "padded": a region pads a copy of its input once, and every term is a slice of the copy.
# "bounded": every term is a slice of the existing elements, padded to the region: no copy, but bound tests in the loop.
# "tables": one loop whose terms are gathered through tables of positions (CPU only).
ReadMode = Literal["padded", "bounded", "tables"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Regions along each axis, how they read, and whether the phases of the minor axis are interleaved last."""

    read_mode: ReadMode
    axis_regions: tuple[tuple[Region, ...], ...] = ()
    minor_axis_last: bool = False

    @property
    def num_regions(self) -> int:
        """Number of regions of the result."""
        return math.prod(map(len, self.axis_regions))


def single_region(
    phases: Sequence[Phases], read_mode: ReadMode = "padded", *, extra_position: bool = False
) -> Layout:
    """One region. `extra_position` adds a position to each phase of the first strided axis, which is cropped later."""
    strided_axes = [which for which, each in enumerate(phases) if len(each) > 1][:1]
    extra_positions = [extra_position and which in strided_axes for which in range(len(phases))]
    return Layout(read_mode, tuple(map(whole_region, phases, extra_positions)))


def multi_region(
    sources: Sequence[Sequence[Phases]], read_mode: ReadMode, *, separate_ends: bool = True
) -> Layout:
    """A pass cut where some phases end, and with `separate_ends` also where windows begin to overlap the padding."""
    axis_regions = [
        split_into_regions(phases, separate_ends=separate_ends)
        for phases in zip(*sources, strict=True)
    ]
    return Layout(read_mode, tuple(axis_regions))


def fits_tables(problem: Problem, phases: Iterable[Phases]) -> bool:
    """Whether elements may be gathered through tables: sizes are known, and the array's type has no sharding.

    With automatic mesh axes, the gather replicates sharded pooled axes.
    """
    if None in problem.shape or problem.is_sharded:
        return False
    return all(0 < total_positions(each) <= problem.tuning.max_table_positions for each in phases)


def group_axes(
    dims: Iterable[_Dim], fits_group: Callable[[tuple[_Dim, ...]], bool]
) -> list[tuple[_Dim, ...]]:
    """Consecutive axes in groups. An axis joins the previous group if they may be `fits_group`."""
    groups: list[tuple[_Dim, ...]] = []
    for dim in dims:
        if groups and fits_group((*groups[-1], dim)):
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return groups
