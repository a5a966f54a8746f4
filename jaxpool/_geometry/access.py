"""Reads along a pooled axis and their transpose. Imports no JAX.

An `AxisAccess` has the elements that each window reads, at fixed offsets from `stride * position`:

    stride 2, offsets -1 0 1     elements        0 1 2 3 4 5 6
                                 position 0   [. 0 1]            one element does not exist
                                 position 1        [1 2 3]
                                 position 2            [3 4 5]

The transpose lists the windows that cover each element. Elements with the same remainder modulo the stride are a phase
of the transpose, with its own `AxisAccess`: here elements 0, 2, 4, ... are in one window, 1, 3, 5, ... in two.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxpool._geometry.window import Axis


@dataclasses.dataclass(frozen=True)
class AxisAccess:
    """Reads along an axis: output position p < `out` reads the elements at `stride * p + offset` within 0 to `size`.

    `tap_offsets` has (offset, tap) pairs. A tap is the contribution of this axis to the flat row-major index of a
    window element. The taps of a 3x3 window are 0, 3, 6 along the first axis and 0, 1, 2 along the second axis.
    """

    tap_offsets: tuple[tuple[int, int], ...]
    stride: int
    size: int
    out: int

    def valid_range(self, offset: int, start: int, stop: int) -> tuple[int, int]:
        """The range of output positions within [start, stop) that have an existing element at `offset`."""
        last = (self.size - 1 - offset) // self.stride
        return max(start, -(offset // self.stride)), min(stop, last + 1)

    @property
    def full_range(self) -> tuple[int, int]:
        """The range (start, stop) of output positions for which all elements exist."""
        start, stop = 0, self.out
        for offset, _ in self.tap_offsets:
            first, end = self.valid_range(offset, 0, self.out)
            start, stop = max(start, first), min(stop, end)
        return start, stop

    def slice_elements(self, start: int, stop: int) -> "AxisAccess":
        """This access with offsets relative to the slice `[start:stop]` of the elements."""
        pairs = tuple((offset - start, tap) for offset, tap in self.tap_offsets)
        return dataclasses.replace(self, tap_offsets=pairs, size=stop - start)

    def deinterleaved(self) -> "AxisAccess":
        """The same access to an array that stores its elements in the order 0, stride, ..., 1, stride + 1, ...

        Every element that is read must be in the array.
        """
        length = self.size // self.stride
        pairs = []
        for offset, tap in self.tap_offsets:
            first, part = divmod(offset, self.stride)
            pairs.append((part * length + first, tap))
        return dataclasses.replace(self, tap_offsets=tuple(pairs), stride=1)

    def taps_of_clamped_reads(self, offset: int) -> np.ndarray:
        """Taps of the elements at the positions of `offset` clamped to the axis; -1 for elements of no tap."""
        starts, tap_of_offset = np.arange(self.out) * self.stride, dict(self.tap_offsets)
        offsets = np.clip(starts + offset, 0, self.size - 1) - starts
        unique, inverse = np.unique(offsets, return_inverse=True)
        taps = [tap_of_offset.get(int(each), -1) for each in unique]
        return np.array(taps, np.int32)[inverse]

    def transposed(self) -> "Phases":
        """Output positions that read each element: in a phase, `p + offset` reads element `stride * p + phase`."""
        phases = []
        for phase in range(max(1, min(self.stride, self.size))):
            shifts = [(phase - offset, tap) for offset, tap in self.tap_offsets]
            pairs = tuple((d // self.stride, tap) for d, tap in shifts if d % self.stride == 0)
            phases.append(AxisAccess(pairs, 1, self.out, len(range(phase, self.size, self.stride))))
        return tuple(phases)


# Accesses of interleaved phases: position p of phase q is position `p * len(phases) + q` of the result
Phases = tuple[AxisAccess, ...]


def window_access(dim: Axis, tap_stride: int = 1) -> AxisAccess:
    """The reads of the windows along an axis. Flat indices of adjacent window elements differ by `tap_stride`."""
    pairs = tuple((tap * dim.dilation - dim.low, tap * tap_stride) for tap in range(dim.window))
    return AxisAccess(pairs, dim.stride, dim.size, dim.out)


def max_elements_per_position(phases: Phases) -> int:
    """Maximum number of elements that an output position reads, over all phases."""
    return max(len(access.tap_offsets) for access in phases)


def total_positions(phases: Phases) -> int:
    """Total number of output positions of all phases."""
    return sum(access.out for access in phases)


GatherTable = tuple[np.ndarray, np.ndarray, np.ndarray]  # elements, their taps, whether they exist


def gather_tables(phases: Phases) -> list[GatherTable]:
    """Tables of the elements that each output position reads: indices, clipped to the array, taps, and existence."""
    shape = max(1, max_elements_per_position(phases)), total_positions(phases)
    elements, taps, is_inside = (np.zeros(shape, dtype) for dtype in (np.int32, np.int64, np.bool_))
    for phase, access in enumerate(phases):
        for row, (offset, tap) in enumerate(sorted(access.tap_offsets)):
            positions = np.arange(access.out) * access.stride + offset
            table_index = row, slice(phase, None, len(phases))
            elements[table_index], taps[table_index] = positions.clip(0, access.size - 1), tap
            is_inside[table_index] = (positions >= 0) & (positions < access.size)
    return list(zip(elements, taps, is_inside, strict=True))


class Region(NamedTuple):
    """A region along an output axis: positions [start, stop) of each of the first `num_phases` phases."""

    start: int
    stop: int
    num_phases: int


def whole_region(phases: Phases, extra_positions: int = 0) -> tuple[Region, ...]:
    """One region of all output positions. Phases are extended to the longest phase, plus `extra_positions`."""
    return (Region(0, phases[0].out + extra_positions, len(phases)),)


def split_into_regions(
    accesses_by_operand: Sequence[Phases], *, separate_ends: bool
) -> tuple[Region, ...]:
    """The regions of an output axis. All entries of `accesses_by_operand` have the same output positions.

        | an end | every element exists | an end | last position of the longer phases |

    Without `separate_ends`, the first three of these regions are a single region.
    """
    phases = accesses_by_operand[0]
    common_length = phases[-1].out  # number of positions that every phase has
    starts = {0}
    if separate_ends:
        full_ranges = [each.full_range for source in accesses_by_operand for each in source]
        first = min(common_length, max(start for start, _ in full_ranges))
        last = max(first, min(common_length, *[stop for _, stop in full_ranges]))
        starts |= {first, last} - {common_length}
    boundaries = [*sorted(starts), common_length]
    regions = [Region(first, stop, len(phases)) for first, stop in itertools.pairwise(boundaries)]
    if phases[0].out > common_length:
        num_longer = sum(access.out > common_length for access in phases)
        regions.append(Region(common_length, common_length + 1, num_longer))
    return tuple(regions)


def covers_all_elements(dim: Axis) -> bool:
    """Whether a cheap sufficient test shows that every element along an axis is in a window."""
    return dim.dilation == 1 and dim.window >= dim.stride and dim.low >= 0 and dim.used_high >= 0


def covered_elements_mask(dim: Axis) -> np.ndarray | None:
    """Mask of the elements along an axis that are in at least one window; None if all elements are."""
    if covers_all_elements(dim):
        return None
    covered = np.zeros(dim.size, bool)
    for tap in range(dim.window):
        start = tap * dim.dilation - dim.low
        stop = max(0, start + (dim.out - 1) * dim.stride + 1)
        covered[start % dim.stride if start < 0 else start : stop : dim.stride] = True
    return None if covered.all() else covered
