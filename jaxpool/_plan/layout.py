"""How one pass over an array is carried out: in which regions, how each reads, how phases are interleaved."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from jaxpool._geometry.access import Cut, Phases, cuts, length, one_cut
from jaxpool._plan.problem import Problem

_Dim = TypeVar("_Dim")  # an axis, as an `Axis` or however the caller tells it

# "padded": what a region lacks is padded once, then every term is a plain slice.
# "bounded": every term is a slice of what exists, and padded itself: no copy, but a bound to test in the loop.
# "tables": one loop in which each term is looked up through a table of positions (CPU).
Reading = Literal["padded", "bounded", "tables"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Regions along each axis of a pass, how they read, and whether phases of the minor axis are interleaved last."""

    reading: Reading
    cuts: tuple[tuple[Cut, ...], ...] = ()
    minor_last: bool = False

    @property
    def regions(self) -> int:
        """How many regions the result is put together from."""
        return math.prod(map(len, self.cuts))


def in_one_region(
    phases: Sequence[Phases],
    reading: Reading = "padded",
    *,
    spare_turn: bool = False,
) -> Layout:
    """A pass without cuts; with `spare_turn` over a turn of phases too many of the first axis that has some."""
    strided = [which for which, each in enumerate(phases) if len(each) > 1][:1]
    more = [spare_turn and which in strided for which in range(len(phases))]
    return Layout(reading, tuple(map(one_cut, phases, more)))


def in_regions(
    sources: Sequence[Sequence[Phases]], reading: Reading, *, at_ends: bool = True
) -> Layout:
    """A pass that is cut where elements begin to be missing, if `at_ends`, and where phases do."""
    columns = [cuts(column, at_ends=at_ends) for column in zip(*sources, strict=True)]
    return Layout(reading, tuple(columns))


def fits_tables(problem: Problem, phases: Iterable[Phases]) -> bool:
    """Whether elements may be read through tables: not of an array whose type says how it is sharded.

    Where XLA alone knows, a gather collects pooled axes that are sharded, and what it gives is not sharded.
    """
    if None in problem.shape or problem.sharded:
        return False
    return all(0 < length(each) <= problem.tuning.longest_table for each in phases)


def grouped(
    dims: Iterable[_Dim], together: Callable[[tuple[_Dim, ...]], bool]
) -> list[tuple[_Dim, ...]]:
    """The axes in order, each in the group of the one before it where they may be `together`."""
    groups: list[tuple[_Dim, ...]] = []
    for dim in dims:
        if groups and together((*groups[-1], dim)):
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return groups
