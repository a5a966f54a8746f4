"""Which elements meet at a position along an axis, and regions in which few are missing. NumPy, no jax.

A sum over windows and its transpose are the same thing to compute: every position of the result
adds up elements at fixed offsets from it, as far as they exist. With strides the transpose has as
many sets of offsets as a stride has positions, its phases, which take turns along the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxpool._geometry.window import Axis

# The least positions of a region at either end of an axis, if there are as many.
EDGE = 8


class Taps(NamedTuple):
    """Along an axis of `size`, position p of `out` adds up the elements at `stride * p + offset` that exist."""

    offsets: tuple[int, ...]
    stride: int
    size: int
    out: int

    def inside(self, offset: int, first: int, stop: int) -> tuple[int, int]:
        """The positions from `first` to before `stop` at which the element at `offset` exists."""
        last = (self.size - 1 - offset) // self.stride
        return max(first, -(offset // self.stride)), min(stop, last + 1)

    @property
    def complete(self) -> tuple[int, int]:
        """The positions at which every element exists."""
        ends = [self.inside(offset, 0, self.out) for offset in self.offsets]
        firsts, stops = zip(*ends, strict=True) if ends else ((0,), (self.out,))
        return max(firsts), min(stops)


def complete_of_all(taps: Sequence[Taps]) -> tuple[int, int]:
    """At how many positions along all axes every element exists, and how many there are."""
    ends = [each.complete for each in taps]
    inner = math.prod(max(0, stop - first) for first, stop in ends)
    return inner, math.prod(each.out for each in taps)


Phases = tuple[Taps, ...]  # position p of phase q is position `p * len(phases) + q` of the result


class Cut(NamedTuple):
    """Positions `first` to before `stop` of the first `phases` phases."""

    first: int
    stop: int
    phases: int


def of_outputs(dim: Axis) -> Phases:
    """The inputs that a window adds up."""
    offsets = tuple(tap * dim.dilation - dim.low for tap in range(dim.window))
    return (Taps(offsets, dim.stride, dim.size, dim.out),)


def of_inputs(dim: Axis) -> Phases:
    """The windows that an input lies in."""
    found: list[list[int]] = [[] for _ in range(min(dim.stride, dim.size))]
    for tap in range(dim.window):
        place = tap * dim.dilation - dim.low
        phase = place % dim.stride
        if phase < len(found):
            found[phase].append((phase - place) // dim.stride)
    outs = [len(range(phase, dim.size, dim.stride)) for phase in range(len(found))]
    return tuple(
        Taps(tuple(offsets), 1, dim.out, out) for offsets, out in zip(found, outs, strict=True)
    )


def tables(phases: Phases) -> tuple[np.ndarray, np.ndarray]:
    """What the positions of all phases add up, in turn: `(taps, positions)` elements, and whether they exist.

    In place of one that does not exist stands the nearest that does.
    """
    most = max(1, *[len(taps.offsets) for taps in phases])
    shape = most, sum(taps.out for taps in phases)
    elements, exist = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
    for phase, taps in enumerate(phases):
        for tap, offset in enumerate(sorted(taps.offsets)):
            places = np.arange(taps.out) * taps.stride + offset
            elements[tap, phase :: len(phases)] = places.clip(0, taps.size - 1)
            exist[tap, phase :: len(phases)] = (places >= 0) & (places < taps.size)
    return elements, exist


def _regions(first: int, stop: int, most: int) -> Iterator[int]:
    """Where up to `most` regions begin, each a position longer than the one before as far as there are.

    Of regions of one length XLA computes first, and keeps, what both of them pad alike.
    """
    length = max(EDGE, -(-(stop - first) // most))
    while first < stop:
        yield first
        first, length = first + length, length + 1


def cuts(sources: Sequence[Phases], most: int) -> list[Cut]:
    """The regions of an axis: where all elements exist, up to `most` before and after, and a turn of some phases.

    All of `sources` have the same positions. Without regions before and after, all turns are one.
    """
    phases = sources[0]
    full, longest = phases[-1].out, phases[0].out
    starts = [0]
    if most:
        ends = [taps.complete for source in sources for taps in source]
        first = min(full, max(first for first, _ in ends))
        stop = max(first, min(full, *[stop for _, stop in ends]))
        starts = sorted({*_regions(0, first, most), first, *_regions(stop, full, most)} - {full})
    pairs = zip(starts, [*starts[1:], full], strict=True)
    regions = [Cut(first, stop, len(phases)) for first, stop in pairs]
    if longest > full:
        regions.append(Cut(full, longest, sum(taps.out == longest for taps in phases)))
    return regions
