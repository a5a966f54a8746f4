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
    fold: Axis | None = None  # the windows that are folded, transposed if the plan is


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """First axes that one window covers (`whole`) or whose windows do not meet (`separate`), then passes."""

    transposed: bool
    whole: tuple[Axis, ...]
    separate: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    keep: Keep
    why: tuple[str, ...] = dataclasses.field(default=(), compare=False)


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
    what = "repeated" if transposed else "reduced"
    why = [f"axis {dim.axis}: one window, {what}" for dim in whole]
    why += [f"axis {dim.axis}: windows do not meet, elements are repeated" for dim in separate]
    why += [f"sum over axes {each.axes}: {each.layout}" for each in passes]
    return SumPlan(transposed, whole, separate, passes, keep_on(problem.platform), tuple(why))


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
                passes += (self._spread_along if self.transposed else self._sum_along)(*group)
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
        if cut and not rest and self._tables_pay(axes, phases):
            return Layout("tables")
        most = 0 if not cut else self.tuning.regions_at_ends if len(axes) == 1 else 1
        return in_regions(axes, sources, "bounded", most)

    def _worth_cutting(self, axes: Sequence[int], sources: Sequence[Sequence[Phases]]) -> bool:
        """Along one axis a loop over few taps tests bounds as fast, unless it is wide and interleaves phases."""
        nbytes = self.problem.nbytes(tuple(self.shape), self.bits)  # infinite where not known
        if nbytes < self.tuning.sum_region_bytes or len(axes) > 1:
            return nbytes >= self.tuning.sum_region_bytes
        taps = sum(len(access.offsets) for phases in sources for access in phases[0])
        wide = self.problem.inner(axes, tuple(self.shape)) >= self.tuning.vector
        return taps > self.tuning.tested_taps or (len(sources[0][0]) > 1 and wide)

    def _tables_pay(self, axes: Sequence[int], phases: tuple[Phases, ...]) -> bool:
        """Whether sums over several axes can be read through tables, and are as fast so as in regions and phases."""
        tuning = self.tuning
        row = self.problem.inner(axes, tuple(self.shape))
        if len(axes) == 1 or row < tuning.table_row or not fits_tables(self.problem, phases):
            return False
        inner, outs = complete_positions([each[0] for each in phases])
        if inner == outs and all(len(each) == 1 for each in phases):
            return False
        strides = math.prod(each[0].stride for each in phases)
        most = math.prod(max(len(access.offsets) for access in each) for each in phases)
        return most <= max(tuning.table_taps, tuning.table_taps_an_element * strides)

    def _sum_along(self, dim: Axis) -> list[SumPass]:
        """The sum over windows along one axis: in one pass, in two, or folded."""
        if dim.window <= self.tuning.longest_sum:
            return [self._pass([dim.axis], ((windows_to_elements(dim),),))]
        if dim.stride == 1 and dim.window <= self.tuning.longest_sum_of_two:
            return self._sum_of_sums(dim)
        block = self._block(dim)
        return self._sum_of_blocks(dim, block) if block > 1 else [self._folded(dim)]

    def _folded(self, dim: Axis) -> SumPass:
        self._done([dim.axis], [dim.size if self.transposed else dim.out])
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
        few = max(len(access.offsets) for access in phases) <= tuning.table_taps_of_axis
        tables = few and fits_tables(self.problem, (phases,))
        short = dim.window * dim.stride <= tuning.longest_sum_of_two
        if short and not (tables and dim.stride > tuning.table_phases):
            return [self._pass([dim.axis], (phases,))]
        if not tables:
            return [self._folded(dim)]
        self._done([dim.axis], [dim.size])
        return [SumPass((dim.axis,), (phases,), Layout("tables"))]


def _plain(offsets: Sequence[int], stride: int, size: int, out: int) -> Access:
    """An access whose taps nobody asks for."""
    return Access(tuple(offsets), (0,) * len(offsets), stride, size, out)


def _factors(long: int) -> tuple[int, int]:
    """Two factors of a number, as near each other as there are, or of one a little less."""
    root = math.isqrt(long)
    for factor in range(root, root // 2, -1):
        if long % factor == 0:
            return factor, long // factor
    return root, long // root
