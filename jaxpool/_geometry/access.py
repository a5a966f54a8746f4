"""Which elements meet at a position along an axis, and regions of positions. NumPy, no jax.

A window that slides over an axis reads elements at fixed offsets from `stride * position`:

    stride 2, offsets -1 0 1     elements        0 1 2 3 4 5 6
                                 position 0   [. 0 1]            one element does not exist
                                 position 1        [1 2 3]
                                 position 2            [3 4 5]

Seen from the elements, the same drawing says which windows cover an element. With strides that
differs from element to element, but repeats: elements 0, 2, 4, ... lie in one window, elements 1,
3, 5, ... in two. These are the phases of the transpose, and each is an access of its own, that of
elements to windows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxpool._geometry.window import Axis


@dataclasses.dataclass(frozen=True)
class Access:
    """Along an axis of `size`, position p of `out` reads the elements at `stride * p + offset` that exist.

    `taps` names each offset: the flat row-major tap of the window at which the pair of element and
    window stands, as far as this axis decides it.
    """

    offsets: tuple[int, ...]
    taps: tuple[int, ...]
    stride: int
    size: int
    out: int

    def inside(self, offset: int, first: int, stop: int) -> tuple[int, int]:
        """The positions from `first` to before `stop` at which the element at `offset` exists."""
        last = (self.size - 1 - offset) // self.stride
        return max(first, -(offset // self.stride)), min(stop, last + 1)

    @property
    def complete(self) -> tuple[int, int]:
        """The positions at which every element exists, from the first to before the second."""
        ends = [self.inside(offset, 0, self.out) for offset in self.offsets]
        return max([0, *[first for first, _ in ends]]), min([self.out, *[stop for _, stop in ends]])

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Each offset and its tap."""
        return zip(self.offsets, self.taps, strict=True)

    def of_elements(self, begin: int, end: int) -> Access:
        """The same of an array that holds the elements from `begin` to before `end`."""
        offsets = tuple(offset - begin for offset in self.offsets)
        return dataclasses.replace(self, offsets=offsets, size=end - begin)

    def transposed(self) -> Phases:
        """Which positions read each element: element `stride * p + phase` is read by those at `p + offset`."""
        found = []
        for phase in range(max(1, min(self.stride, self.size))):
            ours = [pair for pair in self.pairs if pair[0] % self.stride == phase]
            offsets = tuple((phase - offset) // self.stride for offset, _ in ours)
            out = len(range(phase, self.size, self.stride))
            found.append(Access(offsets, tuple(tap for _, tap in ours), 1, self.out, out))
        return tuple(found)


Phases = tuple[Access, ...]  # position p of phase q is position `p * len(phases) + q` of the result


def windows_to_elements(dim: Axis, unit: int = 1) -> Access:
    """What each window of an axis reads; neighbouring taps are `unit` apart in the flat order of taps."""
    offsets = tuple(tap * dim.dilation - dim.low for tap in range(dim.window))
    return Access(offsets, tuple(range(0, dim.window * unit, unit)), dim.stride, dim.size, dim.out)


def elements_to_windows(dim: Axis, unit: int = 1) -> Phases:
    """The windows that cover each element of an axis."""
    return windows_to_elements(dim, unit).transposed()


def terms(phases: Phases) -> int:
    """How many elements a position of any phase reads, at most."""
    return max(len(access.offsets) for access in phases)


def length(phases: Phases) -> int:
    """How many positions all phases have together."""
    return sum(access.out for access in phases)


Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # of elements, their taps, whether they exist


def tables(phases: Phases) -> list[Table]:
    """What each position of all phases reads, in turn: vectors of elements, of their taps, and of whether they exist.

    There are as many entries as the most that a position reads. In place of an element that does not
    exist stands the nearest that does.
    """
    found, count = [], length(phases)
    for which in range(max(1, terms(phases))):
        elements, taps = np.zeros(count, np.int32), np.zeros(count, np.int64)
        exist = np.zeros(count, np.bool_)
        for phase, access in enumerate(phases):
            for offset, tap in sorted(access.pairs)[which : which + 1]:
                places = np.arange(access.out) * access.stride + offset
                elements[phase :: len(phases)] = places.clip(0, access.size - 1)
                taps[phase :: len(phases)] = tap
                exist[phase :: len(phases)] = (places >= 0) & (places < access.size)
        found.append((elements, taps, exist))
    return found


class Cut(NamedTuple):
    """A region along an axis: positions `first` to before `stop` of the first `phases` phases."""

    first: int
    stop: int
    phases: int


def one_cut(phases: Phases, more: int = 0) -> tuple[Cut, ...]:
    """All positions as one region of full turns, the last of which may reach beyond them, and `more` turns."""
    return (Cut(0, phases[0].out + more, len(phases)),)


def cuts(sources: Sequence[Phases], most: int, shortest: int) -> tuple[Cut, ...]:
    """The regions of an axis, along which all of `sources` have the same positions.

        | ends: up to `most` regions | every element exists | ends | a last turn of some phases |

    With `most` 0 all but the last turn is one region.
    """
    phases = sources[0]
    full = phases[-1].out  # turns of all phases
    starts = {0}
    if most:
        firsts, stops = zip(*[each.complete for source in sources for each in source], strict=True)
        first = min(full, max(firsts))
        stop = max(first, min(full, *stops))
        starts = {*_begins(0, first, most, shortest), first, *_begins(stop, full, most, shortest)}
    edges = [*(sorted(starts - {full}) or [0]), full]
    regions = [Cut(first, stop, len(phases)) for first, stop in itertools.pairwise(edges)]
    if phases[0].out > full:
        regions.append(Cut(full, full + 1, sum(access.out > full for access in phases)))
    return tuple(regions)


def _begins(first: int, stop: int, most: int, shortest: int) -> Iterator[int]:
    """Where up to `most` regions begin that fill the positions from `first` to before `stop`.

    Each is a position longer than the one before, and the first at least `shortest` long:

        |aaaaaaaa|bbbbbbbbb|ccc          20 positions, `shortest` 8

    XLA would compute first, and keep, what two regions of one length pad alike.
    """
    long = max(shortest, -(-(stop - first) // most))
    while first < stop:
        yield first
        first, long = first + long, long + 1
