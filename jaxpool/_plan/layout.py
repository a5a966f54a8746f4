"""How one pass over an array is carried out: in which regions, how it reads, in which order phases are interleaved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from jaxpool._geometry.access import Cut, Phases, cuts, one_cut

# "padded": what a region lacks is padded once, then every term is a plain slice.
# "bounded": every term is a slice of what exists, and padded itself: no copy, but a bound to test in the loop.
# "tables": one loop in which each term is looked up through a table of positions (CPU).
# "folded": by halves, term by term, for windows too long to be written down in one expression.
Reading = Literal["padded", "bounded", "tables", "folded"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Regions along each axis of a pass, and how each is read."""

    reading: Reading
    cuts: tuple[tuple[Cut, ...], ...] = ()
    order: tuple[int, ...] = ()  # in which the axes of the pass are interleaved
    nested: bool = (
        False  # sums of sums, the minor axis first, in place of all terms in one expression
    )

    @property
    def regions(self) -> int:
        """How many regions the result is put together from."""
        count = 1
        for column in self.cuts:
            count *= len(column)
        return count


def minor_first(axes: Sequence[int]) -> tuple[int, ...]:
    """The places of `axes`, that of the last axis of the array first."""
    return tuple(sorted(range(len(axes)), key=lambda which: axes[which], reverse=True))


def in_one_region(
    axes: Sequence[int], phases: Sequence[Phases], reading: Reading = "padded"
) -> Layout:
    """A pass without regions."""
    return Layout(reading, tuple(one_cut(each) for each in phases), minor_first(axes))


def in_regions(
    axes: Sequence[int], sources: Sequence[Sequence[Phases]], reading: Reading, most: int
) -> Layout:
    """A pass that is cut where elements begin to be missing, into up to `most` regions at each end of an axis."""
    columns = zip(*sources, strict=True)
    return Layout(reading, tuple(cuts(column, most) for column in columns), minor_first(axes))


def said(layout: Layout) -> str:
    """A layout in words."""
    how = {
        "padded": "from a padded copy",
        "bounded": "where it is, bounds tested",
        "tables": "through tables",
        "folded": "folded by halves",
    }[layout.reading]
    many = layout.regions
    return f"{how}, {many} regions" if many > 1 else how
