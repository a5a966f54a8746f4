"""How one pass over an array is carried out: in which regions, how each reads, how phases are interleaved."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from jaxpool._geometry.access import Cut, Phases, cuts, one_cut
from jaxpool._plan.tuning import Tuning

_WORDS = {
    "padded": "from a padded copy",
    "bounded": "where it is, bounds tested",
    "tables": "through tables",
}
# "padded": what a region lacks is padded once, then every term is a plain slice.
# "bounded": every term is a slice of what exists, and padded itself: no copy, but a bound to test in the loop.
# "tables": one loop in which each term is looked up through a table of positions (CPU).
Reading = Literal["padded", "bounded", "tables"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Regions along each axis of a pass, how they read, and in which order the axes are interleaved."""

    reading: Reading
    cuts: tuple[tuple[Cut, ...], ...] = ()
    order: tuple[int, ...] = ()

    def __str__(self) -> str:
        return _WORDS[self.reading] + (f", {self.regions} regions" if self.regions > 1 else "")

    @property
    def regions(self) -> int:
        """How many regions the result is put together from."""
        return math.prod(map(len, self.cuts))


def minor_first(axes: Sequence[int]) -> tuple[int, ...]:
    """The places of `axes`, that of the last axis of the array first."""
    return tuple(sorted(range(len(axes)), key=lambda which: axes[which], reverse=True))


def in_one_region(axes: Sequence[int], phases: Sequence[Phases], *, more: int = 0) -> Layout:
    """A pass over a padded copy, `more` turns of the first strided axis included that are cut off."""
    strided = [which for which, each in enumerate(phases) if len(each) > 1][:1]
    columns = [one_cut(each, more * (which in strided)) for which, each in enumerate(phases)]
    return Layout("padded", tuple(columns), minor_first(axes))


def in_regions(
    axes: Sequence[int],
    sources: Sequence[Sequence[Phases]],
    reading: Reading,
    most: int,
    tuning: Tuning,
) -> Layout:
    """A pass that is cut where elements begin to be missing, into up to `most` regions at each end of an axis."""
    columns = zip(*sources, strict=True)
    return Layout(
        reading,
        tuple(cuts(column, most, tuning.shortest_region) for column in columns),
        minor_first(axes),
    )
