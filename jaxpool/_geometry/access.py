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

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxpool._geometry.window import Axis


@dataclasses.dataclass(frozen=True)
class Access:
    """Along an axis of `size`, position p of `out` reads the elements at `stride * p + offset` that exist.

    `pairs` holds each offset with the tap that reads there, as this axis counts towards the flat, row-major number of a
    tap in the whole window: along the first axis of a 3x3 window the taps are 0, 3 and 6, along the second 0, 1 and 2.
    """

    pairs: tuple[tuple[int, int], ...]
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
        ends = [self.inside(offset, 0, self.out) for offset, _ in self.pairs]
        return max([0, *[first for first, _ in ends]]), min([self.out, *[stop for _, stop in ends]])

    def of_elements(self, begin: int, end: int) -> "Access":
        """The same of an array that holds the elements from `begin` to before `end`."""
        pairs = tuple((offset - begin, tap) for offset, tap in self.pairs)
        return dataclasses.replace(self, pairs=pairs, size=end - begin)

    def transposed(self) -> "Phases":
        """Which positions read each element: element `stride * p + phase` is read by those at `p + offset`."""
        found = []
        for phase in range(max(1, min(self.stride, self.size))):
            far = [(phase - offset, tap) for offset, tap in self.pairs]
            ours = tuple((by // self.stride, tap) for by, tap in far if by % self.stride == 0)
            found.append(Access(ours, 1, self.out, len(range(phase, self.size, self.stride))))
        return tuple(found)


Phases = tuple[Access, ...]  # position p of phase q is position `p * len(phases) + q` of the result


def windows_to_elements(dim: Axis, unit: int = 1) -> Access:
    """What each window of an axis reads; neighbouring taps are `unit` apart in the flat order of taps."""
    pairs = tuple((tap * dim.dilation - dim.low, tap * unit) for tap in range(dim.window))
    return Access(pairs, dim.stride, dim.size, dim.out)


def terms(phases: Phases) -> int:
    """How many elements a position of any phase reads, at most."""
    return max(len(access.pairs) for access in phases)


def length(phases: Phases) -> int:
    """How many positions all phases have together."""
    return sum(access.out for access in phases)


Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # of elements, their taps, whether they exist


def tables(phases: Phases) -> list[Table]:
    """What each position of all phases reads, in turn: vectors of elements, of their taps, and of whether they exist.

    There are as many entries as the most that a position reads. In place of an element that does not
    exist stands the nearest that does.
    """
    shape = max(1, terms(phases)), length(phases)
    elements, taps, exist = (np.zeros(shape, dtype) for dtype in (np.int32, np.int64, np.bool_))
    for phase, access in enumerate(phases):
        for which, (offset, tap) in enumerate(sorted(access.pairs)):
            places = np.arange(access.out) * access.stride + offset
            at = which, slice(phase, None, len(phases))
            elements[at], taps[at] = places.clip(0, access.size - 1), tap
            exist[at] = (places >= 0) & (places < access.size)
    return list(zip(elements, taps, exist, strict=True))


class Cut(NamedTuple):
    """A region along an axis: positions `first` to before `stop` of the first `phases` phases."""

    first: int
    stop: int
    phases: int


def one_cut(phases: Phases, more: int = 0) -> tuple[Cut, ...]:
    """All positions as one region of full turns, the last of which may reach beyond them, and `more` turns."""
    return (Cut(0, phases[0].out + more, len(phases)),)


def cuts(sources: Sequence[Phases], *, at_ends: bool) -> tuple[Cut, ...]:
    """The regions of an axis, along which all of `sources` have the same positions.

        | an end | every element exists | an end | a last turn of some phases |

    Unless cut `at_ends`, all but the last turn is one region.
    """
    phases = sources[0]
    full = phases[-1].out  # turns of all phases
    starts = {0}
    if at_ends:
        firsts, stops = zip(*[each.complete for source in sources for each in source], strict=True)
        first = min(full, max(firsts))
        starts |= {first, max(first, min(full, *stops))} - {full}
    edges = [*sorted(starts), full]
    regions = [Cut(first, stop, len(phases)) for first, stop in itertools.pairwise(edges)]
    if phases[0].out > full:
        regions.append(Cut(full, full + 1, sum(access.out > full for access in phases)))
    return tuple(regions)


def reaches_all(dim: Axis) -> bool:
    """Whether it is plain that every element of an axis is in a window."""
    return dim.dilation == 1 and dim.window >= dim.stride and dim.tail >= 0


def reached(dim: Axis) -> np.ndarray | None:
    """Which elements of an axis any window has; None if all of them."""
    if reaches_all(dim):
        return None
    found = np.zeros(dim.size, bool)
    for tap in range(dim.window):
        start = tap * dim.dilation - dim.low
        stop = max(0, start + (dim.out - 1) * dim.stride + 1)
        found[start % dim.stride if start < 0 else start : stop : dim.stride] = True
    return None if found.all() else found
