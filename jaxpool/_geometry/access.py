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
import math
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
        firsts, stops = zip(*ends, strict=True) if ends else ((0,), (self.out,))
        return max(firsts), min(stops)

    def moved(self, first: int, begin: int, size: int, out: int) -> Access:
        """The `out` positions from `first` on, of the `size` elements from `begin` on."""
        offsets = tuple(self.stride * first + offset - begin for offset in self.offsets)
        return Access(offsets, self.taps, self.stride, size, out)

    def transposed(self) -> Phases:
        """Which positions read each element: element `stride * p + phase` is read by those at `p + offset`."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(min(self.stride, self.size))]
        for offset, tap in zip(self.offsets, self.taps, strict=True):
            phase = offset % self.stride
            if phase < len(found):
                found[phase].append(((phase - offset) // self.stride, tap))
        return tuple(
            Access(
                tuple(offset for offset, _ in pairs),
                tuple(tap for _, tap in pairs),
                1,
                self.out,
                len(range(phase, self.size, self.stride)),
            )
            for phase, pairs in enumerate(found)
        )


Phases = tuple[Access, ...]  # position p of phase q is position `p * len(phases) + q` of the result


def windows_to_elements(dim: Axis, unit: int = 1) -> Access:
    """What each window of an axis reads; neighbouring taps are `unit` apart in the flat order of taps."""
    offsets = tuple(tap * dim.dilation - dim.low for tap in range(dim.window))
    return Access(offsets, tuple(range(0, dim.window * unit, unit)), dim.stride, dim.size, dim.out)


def elements_to_windows(dim: Axis, unit: int = 1) -> Phases:
    """The windows that cover each element of an axis."""
    return windows_to_elements(dim, unit).transposed()


def covering(dim: Axis) -> int:
    """How many windows cover an element of an axis, at most."""
    return max(1, *[len(phase.offsets) for phase in elements_to_windows(dim)])


def complete_positions(accesses: Sequence[Access]) -> tuple[int, int]:
    """At how many positions of all axes every element exists, and how many positions there are."""
    ends = [access.complete for access in accesses]
    inner = math.prod(max(0, stop - first) for first, stop in ends)
    return inner, math.prod(access.out for access in accesses)


def length(phases: Phases) -> int:
    """How many positions all phases have together."""
    return sum(access.out for access in phases)


def tables(phases: Phases) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What each position of all phases reads, in turn: vectors of elements, of their taps, and of whether they exist.

    There are as many entries as the most that a position reads. In place of an element that does not
    exist stands the nearest that does.
    """
    found = []
    for which in range(max(1, *[len(access.offsets) for access in phases])):
        elements, taps = np.zeros(length(phases), np.int32), np.zeros(length(phases), np.int64)
        exist = np.zeros(length(phases), np.bool_)
        for phase, access in enumerate(phases):
            pairs = sorted(zip(access.offsets, access.taps, strict=True))[which : which + 1]
            for offset, tap in pairs:
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


def _edges(first: int, stop: int, most: int, shortest: int) -> Iterator[int]:
    """Where up to `most` regions of at least `shortest` positions begin, each a position longer than the one before.

    Of regions of one length XLA computes first, and keeps, what both of them pad alike.
    """
    long = max(shortest, -(-(stop - first) // most))
    while first < stop:
        yield first
        first, long = first + long, long + 1


def cuts(sources: Sequence[Phases], most: int, shortest: int) -> tuple[Cut, ...]:
    """The regions of an axis: where all elements exist, up to `most` before and after, a last turn of some phases.

    All of `sources` have the same positions. With `most` 0 all full turns are one region.
    """
    phases = sources[0]
    if not phases:  # an axis without positions
        return one_cut(phases)
    full, longest = phases[-1].out, phases[0].out
    starts = [0]
    if most:
        ends = [access.complete for source in sources for access in source]
        first = min(full, max(first for first, _ in ends))
        stop = max(first, min(full, *[stop for _, stop in ends]))
        starts = sorted(
            {*_edges(0, first, most, shortest), first, *_edges(stop, full, most, shortest)} - {full}
        )
    pairs = zip(starts, [*starts[1:], full], strict=True)
    regions = [Cut(first, stop, len(phases)) for first, stop in pairs]
    if longest > full:
        regions.append(Cut(full, longest, sum(access.out == longest for access in phases)))
    return tuple(regions)


def one_cut(phases: Phases, more: int = 0) -> tuple[Cut, ...]:
    """All positions as one region of full turns, the last of which may reach beyond them, and `more` turns."""
    turns = max((access.out for access in phases), default=0)
    return (Cut(0, turns + more, len(phases)),)
