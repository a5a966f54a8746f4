"""The plan of a windowed sum, or of its transpose: which axes a pass adds over, and how it reads."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence

from jaxpool._geometry.access import (
    Access,
    Phases,
    elements_to_windows,
    length,
    terms,
    windows_to_elements,
)
from jaxpool._geometry.window import Axis
from jaxpool._plan.layout import Layout, fits_tables, grouped, in_one_region, in_regions
from jaxpool._plan.problem import Keep, Problem, keep_on, nbytes, resized, row

Reads = tuple[Phases, ...]  # what a pass reads of an array, along each axis


@dataclasses.dataclass(frozen=True)
class SumPass:
    """What one pass adds up along `axes`: elements of what the pass before gave, and of what that one read."""

    axes: tuple[int, ...]
    sources: tuple[Reads, ...]  # one or two
    layout: Layout


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """First axes that one window covers (`whole`) or whose windows do not meet (`separate`), then passes.

    Or, in place of these two, groups of axes that XLA's own instruction reduces, one after another (`reduced`).
    """

    transposed: bool
    whole: tuple[Axis, ...]
    separate: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    keep: Keep
    reduced: tuple[tuple[Axis, ...], ...] = ()


@functools.lru_cache(maxsize=4096)
def plan_sum(problem: Problem, *, transposed: bool = False) -> SumPlan:
    """The plan of a sum pool over the array of `problem`, or of the transpose, which reads the pool's result."""
    used = [dim for dim in problem.window.dims if not dim.idle]
    used.sort(key=operator.attrgetter("axis"))
    whole = tuple(dim for dim in used if dim.whole)
    rest = tuple(dim for dim in used if dim not in whole)
    apart = [dim for dim in rest if dim.window <= dim.stride and dim.dilation == 1]
    separate = tuple(apart if transposed else ())
    passes = _Passes(problem, transposed)
    done = (*whole, *separate)
    sizes = [dim.size if transposed else dim.out for dim in done]
    passes.shape = resized(passes.shape, [dim.axis for dim in done], sizes)
    passes.add_over([dim for dim in rest if dim not in separate])
    keep = keep_on(problem.platform, problem.thresholds)
    if len(passes.made) + bool(separate) <= problem.tuning.sum_passes:
        return SumPlan(transposed, whole, separate, tuple(passes.made), keep)
    at_once = math.prod(dim.window for dim in rest) <= problem.tuning.reduced_at_once
    groups = [rest] if at_once else [(dim,) for dim in rest]
    return SumPlan(transposed, whole, (), (), keep, tuple(groups))


class _Passes:
    """The passes over an array whose shape is followed from pass to pass."""

    def __init__(self, problem: Problem, transposed: bool) -> None:
        self.problem, self.tuning, self.transposed = problem, problem.tuning, transposed
        self.shape = problem.window.pooled(problem.shape) if transposed else problem.shape
        self.made: list[SumPass] = []

    def add_over(self, dims: Sequence[Axis]) -> None:
        """Passes over `dims`, the minor ones first."""
        for group in grouped(reversed(dims), self._fits_one_pass):
            if len(group) > 1:
                self._add([dim.axis for dim in group[::-1]], self._reads(group[::-1]))
            else:
                self._add_along(*group)

    def _reads(self, dims: Sequence[Axis]) -> Reads:
        if self.transposed:
            return tuple(elements_to_windows(dim) for dim in dims)
        return tuple((windows_to_elements(dim),) for dim in dims)

    def _fits_one_pass(self, minor_first: Sequence[Axis]) -> bool:
        """Whether one pass over all of these axes is faster than one for each."""
        tuning, dims = self.tuning, minor_first[::-1]
        longest = max(dim.window for dim in dims)
        size = math.prod(dim.window for dim in dims)
        strides = math.prod(dim.stride for dim in dims)
        if len(dims) > 2:
            return size <= strides or self._tables_pay([d.axis for d in dims], self._reads(dims))
        if max(size, strides if self.transposed else 0) > tuning.sum_taps:
            return False
        few = tuning.sum_taps_an_element
        if self.transposed and strides > 1:
            if self.problem.low_precision:
                return longest <= tuning.short_spread_of_16_bits
            few = tuning.spread_taps_an_element
        short = longest <= tuning.short_window and row(self.problem.shape, [dims[-1].axis]) > 1
        return size <= few * strides or short

    def _add(self, axes: Sequence[int], *sources: Reads) -> None:
        self.made.append(SumPass(tuple(axes), sources, self._layout(axes, sources)))
        self.shape = resized(self.shape, axes, map(length, sources[0]))

    def _layout(self, axes: Sequence[int], sources: Sequence[Reads]) -> Layout:
        """In regions, if loops are faster with regions of their own at the ends of the axes; or through tables."""
        if not self.tuning.in_place:
            return in_one_region(sources[0])
        if len(sources) == 1 and self._tables_pay(axes, sources[0]):
            return Layout("tables")
        at_ends = self.tuning.regions_at_ends if len(axes) == 1 else 1
        most = at_ends if self._cuts_pay(axes, sources) else 0
        return in_regions(sources, "bounded", most, self.tuning)

    def _cuts_pay(self, axes: Sequence[int], sources: Sequence[Reads]) -> bool:
        """Along one axis a loop over few taps tests bounds as fast, unless it is wide and interleaves phases."""
        bits = self.problem.sum_bits if self.made else self.problem.bits
        if nbytes(self.shape, bits) < self.tuning.sum_region_bytes:
            return False
        taps = sum(len(access.offsets) for along, *_ in sources for access in along)
        strided_and_wide = len(sources[0][0]) > 1 and row(self.shape, axes) >= self.tuning.vector
        return len(axes) > 1 or taps > self.tuning.tested_taps or strided_and_wide

    def _tables_pay(self, axes: Sequence[int], reads: Reads) -> bool:
        """Whether sums can be read through tables, and are as fast so as in regions and phases."""
        tuning = self.tuning
        if not fits_tables(self.problem, reads):
            return False
        if len(axes) == 1:
            return len(reads[0]) > tuning.table_phases
        whole = all(len(each) == 1 and each[0].complete == (0, each[0].out) for each in reads)
        if whole or row(self.shape, axes) < tuning.table_row:
            return False
        strides = math.prod(each[0].stride for each in reads)
        most = max(tuning.table_taps, tuning.table_taps_an_element * strides)
        return math.prod(map(terms, reads)) <= most

    def _add_along(self, dim: Axis) -> None:
        """Passes over one axis: all taps at once, or part sums and sums of those; transposed, in reverse.

        Taps that no part covers are read as they are. Without strides the transpose is a sum too.
        """
        turned = self.transposed and dim.stride > 1
        if self.transposed and not turned:
            low = dim.span - 1 - dim.low
            dim = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)

        def read(access: Access) -> Reads:
            return (access.transposed() if turned else (access,),)

        every = read(windows_to_elements(dim))
        if dim.window <= self.tuning.longest_sum or self._tables_pay([dim.axis], every):
            return self._add([dim.axis], every)
        first, last, done = _of_blocks(dim, self.tuning.longest_sum) or _of_neighbours(dim)
        over = [tap * dim.dilation - dim.low for tap in range(done, dim.window)]
        if turned and over and first.stride != dim.stride:  # phases that do not take turns together
            return self._add([dim.axis], every)
        rest = [read(_plain(over, dim.stride, dim.size, dim.out))] if over else []
        before, after = (last, first) if turned else (first, last)
        self._add([dim.axis], read(before))
        self._add([dim.axis], read(after), *rest)


Parts = tuple[Access, Access, int]  # of part sums, of sums of those, and how many taps they cover


def _of_blocks(dim: Axis, longest: int) -> Parts | None:
    """Sums of blocks that do not meet, each so long that windows begin where blocks do.

        window 6, stride 4, blocks of 2     [a a][b b][c c]
                                                      [c c][d d][e e]

    The length, up to `longest`, divides the stride and leaves the fewest terms a window. None where
    there is no such length.
    """
    lengths = [n for n in range(2, longest + 1) if dim.stride % n == 0 and dim.dilation == 1]
    if not lengths:
        return None
    block = min(lengths, key=lambda n: dim.window // n + dim.window % n)
    count, apart = dim.window // block, dim.stride // block
    blocks = (dim.out - 1) * apart + count
    first = _plain([tap - dim.low for tap in range(block)], block, dim.size, blocks)
    return first, _plain(range(count), apart, blocks, dim.out), block * count


def _of_neighbours(dim: Axis) -> Parts:
    """Sums of neighbouring taps at every position."""
    each = math.isqrt(dim.window)
    count = dim.window // each
    reach = each * dim.dilation
    begin = max(-dim.low, dim.dilation - reach)
    stop = min((dim.out - 1) * dim.stride + 1 - dim.low + (count - 1) * reach, dim.size)
    first = _plain([begin + tap * dim.dilation for tap in range(each)], 1, dim.size, stop - begin)
    starts = [piece * reach - dim.low - begin for piece in range(count)]
    return first, _plain(starts, dim.stride, stop - begin, dim.out), each * count


def _plain(offsets: Sequence[int], stride: int, size: int, out: int) -> Access:
    """An access whose taps nobody asks for."""
    return Access(tuple(offsets), (0,) * len(offsets), stride, size, out)
