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
    complete_positions,
    elements_to_windows,
    length,
    windows_to_elements,
)
from jaxpool._geometry.window import Axis
from jaxpool._plan.layout import Layout, in_one_region, in_regions
from jaxpool._plan.max_pool import Keep, fits_tables, keep_on
from jaxpool._plan.problem import Problem


@dataclasses.dataclass(frozen=True)
class SumPass:
    """What one pass adds up along `axes`: elements of what the pass before gave, and of what that one read."""

    axes: tuple[int, ...]
    phases: tuple[Phases, ...]
    layout: Layout
    rest: tuple[Phases, ...] = ()  # of the array that the pass before has read


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """First axes that one window covers (`whole`) or whose windows do not meet (`separate`), then passes."""

    transposed: bool
    whole: tuple[Axis, ...]
    separate: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    keep: Keep


@functools.lru_cache(maxsize=4096)
def plan_sum(problem: Problem, *, transposed: bool = False) -> SumPlan:
    """The plan of a sum pool over the array of `problem`, or of the transpose, which reads the pool's result."""
    used = [dim for dim in problem.window.dims if not dim.idle]
    used.sort(key=operator.attrgetter("axis"))
    whole = tuple(dim for dim in used if dim.whole)
    apart = [dim for dim in used if dim.window <= dim.stride and dim.dilation == 1]
    separate = tuple(dim for dim in apart if transposed and dim not in whole)
    rest = [dim for dim in used if dim not in (*whole, *separate)]
    passes = tuple(_Passes(problem, transposed, (*whole, *separate)).over(rest))
    return SumPlan(transposed, whole, separate, passes, keep_on(problem.platform))


class _Passes:
    """The passes over axes of an array whose shape is followed from pass to pass."""

    def __init__(self, problem: Problem, transposed: bool, done: Sequence[Axis]) -> None:
        self.problem, self.tuning, self.transposed = problem, problem.tuning, transposed
        window, shape = problem.window, problem.shape
        self.shape = list(window.pooled(shape) if transposed else shape)
        for dim in done:
            self.shape[dim.axis] = dim.size if transposed else dim.out
        self.bits = problem.bits

    def over(self, dims: Sequence[Axis]) -> list[SumPass]:
        """Passes over `dims`, the minor ones first."""
        groups: list[tuple[Axis, ...]] = []
        for dim in reversed(dims):
            if groups and self._fits_one_pass((dim, *groups[-1])):
                groups[-1] = (dim, *groups[-1])
            else:
                groups.append((dim,))
        passes = []
        for group in groups:
            if len(group) > 1:
                passes.append(self._pass([dim.axis for dim in group], self._phases(group)))
            else:
                passes += self._along(*group)
        return passes

    def _phases(self, dims: Sequence[Axis]) -> tuple[Phases, ...]:
        if self.transposed:
            return tuple(elements_to_windows(dim) for dim in dims)
        return tuple((windows_to_elements(dim),) for dim in dims)

    def _fits_one_pass(self, dims: Sequence[Axis]) -> bool:
        """Whether one pass over all of `dims` is faster than one for each."""
        tuning = self.tuning
        longest = max(dim.window for dim in dims)
        size = math.prod(dim.window for dim in dims)
        strides = math.prod(dim.stride for dim in dims)
        if len(dims) > 2:
            through_tables = self._tables_pay([dim.axis for dim in dims], self._phases(dims))
            return through_tables or (not self.transposed and size <= strides)
        few = tuning.sum_taps_an_element
        if self.transposed and strides > 1:
            if self.problem.low_precision:
                return longest <= tuning.short_spread_of_16_bits and strides <= tuning.sum_taps
            few = tuning.spread_taps_an_element
        if size > tuning.sum_taps or (self.transposed and strides > tuning.sum_taps):
            return False
        inner = self.problem.inner([dims[-1].axis])
        return size <= few * strides or (longest <= tuning.short_window and inner > 1)

    def _pass(
        self, axes: Sequence[int], phases: tuple[Phases, ...], rest: tuple[Phases, ...] = ()
    ) -> SumPass:
        layout = self._layout(axes, phases, rest)
        self._done(axes, [length(each) for each in phases])
        return SumPass(tuple(axes), phases, layout, rest)

    def _done(self, axes: Sequence[int], sizes: Sequence[int]) -> None:
        for axis, size in zip(axes, sizes, strict=True):
            self.shape[axis] = size
        self.bits = self.problem.sum_bits

    def _layout(
        self, axes: Sequence[int], phases: tuple[Phases, ...], rest: tuple[Phases, ...]
    ) -> Layout:
        """In regions, if loops are faster with regions of their own at the ends of the axes; or through tables."""
        if not self.tuning.in_place:
            return in_one_region(axes, phases)
        sources = [phases, rest] if rest else [phases]
        cut = self._worth_cutting(axes, sources)
        if (cut or len(axes) == 1) and not rest and self._tables_pay(axes, phases):
            return Layout("tables")
        most = 0 if not cut else self.tuning.regions_at_ends if len(axes) == 1 else 1
        return in_regions(axes, sources, "bounded", most, self.tuning)

    def _worth_cutting(self, axes: Sequence[int], sources: Sequence[Sequence[Phases]]) -> bool:
        """Along one axis a loop over few taps tests bounds as fast, unless it is wide and interleaves phases."""
        nbytes = self.problem.nbytes(tuple(self.shape), self.bits)  # infinite where not known
        if nbytes < self.tuning.sum_region_bytes or len(axes) > 1:
            return nbytes >= self.tuning.sum_region_bytes
        taps = sum(len(access.offsets) for phases in sources for access in phases[0])
        wide = self.problem.inner(axes, tuple(self.shape)) >= self.tuning.vector
        return taps > self.tuning.tested_taps or (len(sources[0][0]) > 1 and wide)

    def _tables_pay(self, axes: Sequence[int], phases: tuple[Phases, ...]) -> bool:
        """Whether sums can be read through tables, and are as fast so as in regions and phases."""
        tuning = self.tuning
        row = self.problem.inner(axes, tuple(self.shape))
        if not fits_tables(self.problem, phases):
            return False
        if len(axes) == 1:
            few = max(len(access.offsets) for access in phases[0]) <= tuning.table_taps_of_axis
            return few and len(phases[0]) > tuning.table_phases
        if row < tuning.table_row:
            return False
        inner, outs = complete_positions([each[0] for each in phases])
        if inner == outs and all(len(each) == 1 for each in phases):
            return False
        strides = math.prod(each[0].stride for each in phases)
        most = math.prod(max(len(access.offsets) for access in each) for each in phases)
        return most <= max(tuning.table_taps, tuning.table_taps_an_element * strides)

    def _along(self, dim: Axis) -> list[SumPass]:
        """Passes over one axis: all taps at once, or part sums and sums of those; transposed, in reverse.

        Taps that no part covers are read as they are. Without strides the transpose is a sum too.
        """
        turned = self.transposed and dim.stride > 1
        if self.transposed and not turned:
            low = dim.span - 1 - dim.low
            dim = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)

        def read(access: Access) -> tuple[Phases, ...]:
            return (access.transposed() if turned else (access,),)

        every = read(windows_to_elements(dim))
        if dim.window <= self.tuning.longest_sum or self._tables_pay([dim.axis], every):
            return [self._pass([dim.axis], every)]
        first, last, done = _of_blocks(dim, self.tuning.longest_sum) or _of_neighbours(dim)
        over = [tap * dim.dilation - dim.low for tap in range(done, dim.window)]
        if turned and over and first.stride != dim.stride:  # phases that do not take turns together
            return [self._pass([dim.axis], every)]
        rest = read(_plain(over, dim.stride, dim.size, dim.out)) if over else ()
        before, after = (last, first) if turned else (first, last)
        return [self._pass([dim.axis], read(before)), self._pass([dim.axis], read(after), rest)]


Parts = tuple[Access, Access, int]  # of part sums, of sums of those, and how many taps they cover


def _of_blocks(dim: Axis, longest: int) -> Parts | None:
    """Blocks that do not meet, of a length up to `longest` that divides the stride: the fewest blocks a window.

    None where there is no such length, or most of a block would lie in no window.
    """
    if dim.stride > 2 * dim.window or dim.dilation > 1:
        return None
    lengths = [n for n in range(2, longest + 1) if dim.stride % n == 0]
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
