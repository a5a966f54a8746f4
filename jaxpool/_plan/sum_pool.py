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
from jaxpool._plan.layout import Layout, in_one_region, in_regions, said
from jaxpool._plan.max_pool import Keep, fits_tables, keep_on
from jaxpool._plan.problem import Problem

Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class SumPass:
    """What one pass adds up along `axes`: elements of the result of the pass before, and of the array before that."""

    axes: tuple[int, ...]
    phases: tuple[Phases, ...]
    layout: Layout
    rest: tuple[Phases, ...] = ()  # of the array that the pass before has read
    fold: Axis | None = None  # the windows that are folded, transposed if the plan is


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """First what one window covers (`whole`) or windows that do not meet (`separate`), then passes."""

    transposed: bool
    whole: tuple[Axis, ...]
    separate: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    keep: Keep
    why: tuple[str, ...] = dataclasses.field(default=(), compare=False)


@functools.lru_cache(maxsize=4096)
def plan_sum(problem: Problem, *, transposed: bool = False) -> SumPlan:
    """The plan of a sum pool over the array of `problem`, or of the transpose, which reads the pool's result."""
    used = sorted(
        (dim for dim in problem.window.dims if not dim.idle), key=operator.attrgetter("axis")
    )
    whole = tuple(dim for dim in used if dim.whole)
    separate = tuple(
        dim
        for dim in used
        if transposed and not dim.whole and dim.window <= dim.stride and dim.dilation == 1
    )
    rest = [dim for dim in used if dim not in whole and dim not in separate]
    passes = tuple(_Passes(problem, transposed, (*whole, *separate)).over(rest))
    why = [f"axis {dim.axis}: one window, reduced or repeated" for dim in whole]
    why += [f"axis {dim.axis}: windows do not meet, each element is repeated" for dim in separate]
    why += [f"sum over axes {p.axes}: {said(p.layout)}" for p in passes]
    return SumPlan(transposed, whole, separate, passes, keep_on(problem.platform), tuple(why))


class _Passes:
    """The passes over axes of an array whose shape is followed from pass to pass."""

    def __init__(self, problem: Problem, transposed: bool, done: Sequence[Axis]) -> None:
        self.problem, self.tuning = problem, problem.tuning
        self.transposed = transposed
        window, shape = problem.window, problem.shape
        self.shape: list[int | None] = list(window.pooled(shape) if transposed else shape)
        self.bits = problem.bits
        for dim in done:
            self.shape[dim.axis] = dim.size if transposed else dim.out

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
            elif self.transposed:
                passes += self._spread_along(*group)
            else:
                passes += self._sum_along(*group)
        return passes

    def _phases(self, dims: Sequence[Axis]) -> tuple[Phases, ...]:
        if self.transposed:
            return tuple(elements_to_windows(dim) for dim in dims)
        return tuple((windows_to_elements(dim),) for dim in dims)

    def _fits_one_pass(self, dims: Sequence[Axis]) -> bool:
        """Whether one pass over all of `dims` is faster than one for each."""
        tuning, phases = self.tuning, self._phases(dims)
        longest = max(dim.window for dim in dims)
        size = math.prod(dim.window for dim in dims)
        strides = math.prod(dim.stride for dim in dims)
        volume = len(dims) > 2
        if volume and self._nbytes() < tuning.sum_region_bytes_of_volumes:
            return False
        many_phases = self.transposed and strides > tuning.sum_pass_taps
        if many_phases or size * 3 ** len(dims) > tuning.sum_terms:
            return False
        tables = self._tables_pay([dim.axis for dim in dims], phases)
        if volume and tuning.in_place and _long_ends(phases) and not tables:
            return False
        if self.transposed and strides > 1:
            if self.problem.low_precision:
                return longest <= tuning.short_window and (not volume or tables)
            few = tuning.spread_taps_an_element
        else:
            channels_last = dims[-1].axis < len(self.shape) - 1
            short = longest <= tuning.short_window_of_two_axes
            if len(dims) == 2 and channels_last and short:
                return True
            few = tuning.sum_taps_an_element
        short = longest <= tuning.short_window
        return size <= tuning.sum_pass_taps and (size <= few * strides or short)

    def _nbytes(self) -> float:
        return self.problem.nbytes(self.shape, self.bits)

    def _done(self, axes: Sequence[int], phases: Sequence[Phases]) -> None:
        for axis, each in zip(axes, phases, strict=True):
            self.shape[axis] = length(each)
        self.bits = 32 if self.problem.low_precision else self.bits

    def _pass(
        self, axes: Sequence[int], phases: tuple[Phases, ...], rest: tuple[Phases, ...] = ()
    ) -> SumPass:
        """One pass, in regions if loops are faster with regions of their own at the ends of the axes."""
        layout = self._layout(tuple(axes), phases, rest)
        self._done(axes, phases)
        return SumPass(tuple(axes), phases, layout, rest)

    def _layout(
        self, axes: tuple[int, ...], phases: tuple[Phases, ...], rest: tuple[Phases, ...]
    ) -> Layout:
        if not self.tuning.in_place:
            return in_one_region(axes, phases)
        sources = [phases, rest] if rest else [phases]
        cut = self._worth_cutting(axes, sources)
        if cut and not rest and self._tables_pay(axes, phases):
            return Layout("tables")
        most = 0 if not cut else self.tuning.regions_at_ends if len(axes) == 1 else 1
        every = [access for each in phases for access in each]
        meeting = any(len(access.offsets) > access.stride for access in every)
        nested = cut and len(axes) == 2 and meeting and len(every) == 2
        return dataclasses.replace(in_regions(axes, sources, "bounded", most), nested=nested)

    def _worth_cutting(self, axes: Sequence[int], sources: Sequence[Sequence[Phases]]) -> bool:
        """Arrays of unknown size are large. Along one axis a loop over few taps tests bounds as fast,
        unless it is wide and interleaves phases.
        """
        if self._nbytes() < self.tuning.sum_region_bytes:
            return False
        if len(axes) > 1:
            return True
        taps = sum(len(access.offsets) for phases in sources for access in phases[0])
        wide = self.problem.inner(axes, self.shape) >= self.tuning.vector
        return taps > self.tuning.tested_taps or (len(sources[0][0]) > 1 and wide)

    def _tables_pay(self, axes: Sequence[int], phases: tuple[Phases, ...]) -> bool:
        """Whether sums can be read through tables, and are as fast so as in regions and phases."""
        tuning = self.tuning
        strided = any(each[0].stride > 1 for each in phases)
        spread = any(len(each) > 1 for each in phases)  # the transpose of strided sums
        volume = len(axes) > 2
        tested = volume and _long_ends(phases)
        wide_phases = spread and not volume and not (self.problem.low_precision and self.bits < 32)
        least = (
            tuning.table_row_of_volumes
            if tested
            else tuning.table_row_of_phases
            if wide_phases
            else tuning.table_row
        )
        row = self.problem.inner(axes, self.shape)
        if row < least or not fits_tables(self.problem, phases):
            return False
        most = math.prod(max(len(access.offsets) for access in each) for each in phases)
        if volume and (spread or tested):
            return most <= tuning.table_taps_of_volumes
        inner, outs = complete_positions([each[0] for each in phases])
        ends = 1 - inner / outs
        if not spread and (ends == 0 or (not strided and ends > tuning.mostly_ends)):
            return False
        if spread and ends > tuning.many_ends:
            return most <= tuning.table_taps_of_ends
        strides = math.prod(each[0].stride for each in phases)
        few = max(tuning.table_taps, tuning.table_taps_an_element * strides)
        return len(axes) > 1 and most <= few

    def _sum_along(self, dim: Axis) -> list[SumPass]:
        """The sum over windows along one axis: in one pass, in two, or folded."""
        if dim.window <= self.tuning.longest_sum:
            return [self._pass([dim.axis], ((windows_to_elements(dim),),))]
        if dim.stride == 1 and dim.window <= self.tuning.longest_sum_of_two:
            return self._sum_of_sums(dim)
        block = self._block(dim)
        return self._sum_of_blocks(dim, block) if block > 1 else [self._folded(dim)]

    def _folded(self, dim: Axis) -> SumPass:
        size = dim.size if self.transposed else dim.out
        self._done([dim.axis], [(Access((), (), 1, 1, size),)])
        return SumPass((dim.axis,), (), Layout("folded"), fold=dim)

    def _sum_of_sums(self, dim: Axis) -> list[SumPass]:
        """Two passes: sums of neighbouring taps, at every position, and sums of those."""
        each, count = _factors(dim.window)
        reach = each * dim.dilation
        begin = max(-dim.low, dim.dilation - reach)
        stop = min(dim.out - dim.low + (count - 1) * reach, dim.size)
        parts = [begin + tap * dim.dilation for tap in range(each)]
        starts = [piece * reach - dim.low - begin for piece in range(count)]
        sums = stop - begin
        return self._two(
            dim, _plain(parts, 1, dim.size, sums), _plain(starts, 1, sums, dim.out), each * count
        )

    def _block(self, dim: Axis) -> int:
        """How long the blocks are of which a window with strides is best added up; 1 where none is good."""
        longest = self.tuning.longest_sum
        if (
            dim.stride > 2 * dim.window or dim.dilation > 1
        ):  # most of a block would lie in no window
            return 1
        lengths = [n for n in range(1, longest + 1) if dim.stride % n == 0]
        terms, block = min((dim.window // n + dim.window % n, n) for n in lengths)
        return block if terms <= longest else 1

    def _sum_of_blocks(self, dim: Axis, block: int) -> list[SumPass]:
        """Two passes: sums of blocks that do not meet, and sums of the blocks of each window."""
        count, apart = dim.window // block, dim.stride // block
        blocks = (dim.out - 1) * apart + count
        parts = [tap - dim.low for tap in range(block)]
        last = _plain(range(count), apart, blocks, dim.out)
        return self._two(dim, _plain(parts, block, dim.size, blocks), last, block * count)

    def _two(self, dim: Axis, first: Access, last: Access, done: int) -> list[SumPass]:
        """A pass of part sums and one of those; taps from `done` on are read as they are."""
        over = [tap * dim.dilation - dim.low for tap in range(done, dim.window)]
        rest = ((_plain(over, dim.stride, dim.size, dim.out),),) if over else ()
        return [self._pass([dim.axis], ((first,),)), self._pass([dim.axis], ((last,),), rest)]

    def _spread_along(self, dim: Axis) -> list[SumPass]:
        """The transpose of `_sum_along`."""
        tuning = self.tuning
        if dim.stride == 1:  # windows that are as long, mirrored
            low = dim.span - 1 - dim.low
            mirrored = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)
            if dim.window <= tuning.longest_sum_of_two:
                return self._sum_along(mirrored)
            return [self._folded(dim)]
        phases = elements_to_windows(dim)
        few = max(len(access.offsets) for access in phases) <= tuning.table_taps_of_ends
        tables = few and fits_tables(self.problem, (phases,))
        short = dim.window * dim.stride <= tuning.longest_sum_of_two
        if short and not (tables and dim.stride > tuning.table_phases):
            return [self._pass([dim.axis], (phases,))]
        if not tables:
            return [self._folded(dim)]
        self._done([dim.axis], [phases])
        return [SumPass((dim.axis,), (phases,), Layout("tables"))]


def _plain(offsets: Sequence[int], stride: int, size: int, out: int) -> Access:
    """An access whose taps nobody asks for."""
    return Access(tuple(offsets), (0,) * len(offsets), stride, size, out)


def _long_ends(phases: Sequence[Phases]) -> bool:
    """Whether sums without strides have an end of several positions: a region of those may test bounds."""
    if any(len(each) > 1 or each[0].stride > 1 for each in phases):
        return False
    ends = [(each[0].out, *each[0].complete) for each in phases]
    return any(max(first, out - stop) > 1 for out, first, stop in ends)


def _factors(long: int) -> tuple[int, int]:
    """Two factors of a number, as near each other as there are, or of one a little less."""
    root = math.isqrt(long)
    for factor in range(root, root // 2, -1):
        if long % factor == 0:
            return factor, long // factor
    return root, long // root
