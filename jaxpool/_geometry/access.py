"""The elements that windows read along one axis, the transpose of this relation, and regions of output positions.

Plans and windowed kernels are built on these. NumPy, no jax. A window that slides over an axis reads elements at fixed
offsets from `stride * position`:

    stride 2, offsets -1 0 1     elements        0 1 2 3 4 5 6
                                 position 0   [. 0 1]            one element does not exist
                                 position 1        [1 2 3]
                                 position 2            [3 4 5]

The transpose lists the windows that cover each element. With strides, the number of windows repeats
with a period of the stride: here elements 0, 2, 4, ... are in one window and 1, 3, 5, ... in two.
Each residue is a phase of the transpose, with an access of its own from elements to windows.
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

    `pairs` holds each offset with its tap, the contribution of this axis to the flat row-major tap of the window.
    The taps of a 3x3 window are 0, 3, 6 along the first axis and 0, 1, 2 along the second.
    """

    pairs: tuple[tuple[int, int], ...]
    stride: int
    size: int
    out: int

    def inside(self, offset: int, first: int, stop: int) -> tuple[int, int]:
        """The range of positions in [first, stop) whose element at `offset` exists."""
        last = (self.size - 1 - offset) // self.stride
        return max(first, -(offset // self.stride)), min(stop, last + 1)

    @property
    def complete(self) -> tuple[int, int]:
        """The range (start, stop) of positions whose elements all exist."""
        ends = [self.inside(offset, 0, self.out) for offset, _ in self.pairs]
        return max([0, *[first for first, _ in ends]]), min([self.out, *[stop for _, stop in ends]])

    def of_elements(self, begin: int, end: int) -> "Access":
        """The access to the slice of the elements from `begin` to before `end`."""
        pairs = tuple((offset - begin, tap) for offset, tap in self.pairs)
        return dataclasses.replace(self, pairs=pairs, size=end - begin)

    def transposed(self) -> "Phases":
        """The positions that read each element: position `p + offset` reads element `stride * p + phase`."""
        phases = []
        for phase in range(max(1, min(self.stride, self.size))):
            steps = [(phase - offset, tap) for offset, tap in self.pairs]
            pairs = tuple((by // self.stride, tap) for by, tap in steps if by % self.stride == 0)
            phases.append(Access(pairs, 1, self.out, len(range(phase, self.size, self.stride))))
        return tuple(phases)


Phases = tuple[Access, ...]  # position p of phase q is position `p * len(phases) + q` of the result


def windows_to_elements(dim: Axis, unit: int = 1) -> Access:
    """The access of the windows of an axis. The flat numbers of neighbouring taps differ by `unit`."""
    pairs = tuple((tap * dim.dilation - dim.low, tap * unit) for tap in range(dim.window))
    return Access(pairs, dim.stride, dim.size, dim.out)


def terms(phases: Phases) -> int:
    """Maximum number of elements that a position reads, over all phases."""
    return max(len(access.pairs) for access in phases)


def length(phases: Phases) -> int:
    """Total number of positions of all phases."""
    return sum(access.out for access in phases)


Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # elements, their taps, whether they exist


def tables(phases: Phases) -> list[Table]:
    """Tables of the elements that each position reads, with phases interleaved: elements, taps and existence.

    There is one table for each of the `terms(phases)` elements. The nearest existing element replaces one that does not
    exist.
    """
    shape = max(1, terms(phases)), length(phases)
    elements, taps, exist = (np.zeros(shape, dtype) for dtype in (np.int32, np.int64, np.bool_))
    for phase, access in enumerate(phases):
        for which, (offset, tap) in enumerate(sorted(access.pairs)):
            positions = np.arange(access.out) * access.stride + offset
            at = which, slice(phase, None, len(phases))
            elements[at], taps[at] = positions.clip(0, access.size - 1), tap
            exist[at] = (positions >= 0) & (positions < access.size)
    return list(zip(elements, taps, exist, strict=True))


class Cut(NamedTuple):
    """A region along an axis: positions in [first, stop) of the first `phases` phases."""

    first: int
    stop: int
    phases: int


def one_cut(phases: Phases, more: int = 0) -> tuple[Cut, ...]:
    """All positions as one region. Each phase has the length of the longest phase, plus `more` positions."""
    return (Cut(0, phases[0].out + more, len(phases)),)


def cuts(sources: Sequence[Phases], *, at_ends: bool) -> tuple[Cut, ...]:
    """The regions of an axis. All `sources` have the same positions.

        | an end | every element exists | an end | last position of the longer phases |

    Without `at_ends`, the first three are one region.
    """
    phases = sources[0]
    full = phases[-1].out  # positions of every phase
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
    """Whether a simple test shows that every element of an axis is in a window."""
    return dim.dilation == 1 and dim.window >= dim.stride and dim.tail >= 0


def reached(dim: Axis) -> np.ndarray | None:
    """Mask of the elements of an axis that are in some window; None if all are."""
    if reaches_all(dim):
        return None
    covered = np.zeros(dim.size, bool)
    for tap in range(dim.window):
        start = tap * dim.dilation - dim.low
        stop = max(0, start + (dim.out - 1) * dim.stride + 1)
        covered[start % dim.stride if start < 0 else start : stop : dim.stride] = True
    return None if covered.all() else covered
