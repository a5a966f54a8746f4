"""Plans of a windowed sum and of its transpose: the axes that each pass adds over, and its layout."""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence

from jaxpool._geometry.access import (
    Access,
    Phases,
    max_elements_per_position,
    total_positions,
    windows_to_elements,
)
from jaxpool._geometry.window import Axis, replace_sizes
from jaxpool._plan.layout import Layout, fits_tables, grouped, in_one_region, in_regions
from jaxpool._plan.problem import Barrier, Problem, barrier_on, nbytes, row

Reads = tuple[Phases, ...]  # how a pass reads an array, along each axis


@dataclasses.dataclass(frozen=True)
class SumPass:
    """One pass of additions along `axes`. It reads the previous result and, with two sources, the previous input."""

    axes: tuple[int, ...]
    sources: tuple[Reads, ...]  # of the result of the previous pass, and of its input
    layout: Layout


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """Sums over the `whole` axes, which one window covers, then `passes` over the other axes.

    A transpose first repeats its operand along the `whole` axes and the `separate` axes, whose windows are disjoint.
    `reduced`, one `lax.reduce_window` per group of axes, replaces `separate` and `passes`.
    """

    transposed: bool
    whole: tuple[Axis, ...]
    separate: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    barrier: Barrier
    reduced: tuple[tuple[Axis, ...], ...] = ()


@functools.lru_cache(maxsize=4096)
def plan_sum(problem: Problem, *, transposed: bool = False) -> SumPlan:
    """The plan of a sum pool over the array of `problem`, or of its transpose, which reads the pooled shape."""
    used = [dim for dim in problem.window.dims if not dim.idle]
    used.sort(key=operator.attrgetter("axis"))
    whole = tuple(dim for dim in used if dim.whole)
    rest = tuple(dim for dim in used if dim not in whole)
    apart = [dim for dim in rest if dim.window <= dim.stride and dim.dilation == 1]
    separate = tuple(apart if transposed else ())
    passes = _Passes(problem, transposed)
    done = (*whole, *separate)
    sizes = [dim.size if transposed else dim.out for dim in done]
    passes.shape = replace_sizes(passes.shape, [dim.axis for dim in done], sizes)
    passes.add_over([dim for dim in rest if dim not in separate])
    barrier = barrier_on(problem.platform, problem.thresholds)
    if len(passes.made) + bool(separate) <= problem.tuning.sum_passes:
        return SumPlan(transposed, whole, separate, tuple(passes.made), barrier)
    at_once = math.prod(dim.window for dim in rest) <= problem.tuning.reduced_at_once
    groups = [rest] if at_once else [(dim,) for dim in rest]
    return SumPlan(transposed, whole, (), (), barrier, tuple(groups))


class _Passes:
    """Builder of passes that tracks the shape of the array from pass to pass."""

    def __init__(self, problem: Problem, transposed: bool) -> None:
        self.problem, self.tuning, self.transposed = problem, problem.tuning, transposed
        self.shape = problem.window.pooled(problem.shape) if transposed else problem.shape
        self.made: list[SumPass] = []

    def add_over(self, dims: Sequence[Axis]) -> None:
        """Append passes over `dims`, minor axes first."""
        for group in grouped(reversed(dims), self._fits_one_pass):
            if len(group) > 1:
                self._add([dim.axis for dim in group[::-1]], self._reads(group[::-1]))
            else:
                self._add_along(*group)

    def _reads(self, dims: Sequence[Axis]) -> Reads:
        accesses = map(windows_to_elements, dims)
        return tuple(access.transposed() if self.transposed else (access,) for access in accesses)

    def _fits_one_pass(self, minor_first: Sequence[Axis]) -> bool:
        """Whether one pass over all axes is faster than one pass per axis."""
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
        self.shape = replace_sizes(self.shape, axes, map(total_positions, sources[0]))

    def _layout(self, axes: Sequence[int], sources: Sequence[Reads]) -> Layout:
        """The layout of a pass: one region, tables, or regions that are cut at the ends of the axes if this pays."""
        if not self.tuning.in_place:
            return in_one_region(sources[0])
        if len(sources) == 1 and self._tables_pay(axes, sources[0]):
            return Layout("tables")
        at_ends = self._cuts_pay(axes, sources)
        completes = [(each, *each.complete) for along, *_ in sources for each in along]
        longest = max(max(first, each.out - stop) for each, first, stop in completes)
        copied = at_ends and len(axes) == 1 and longest > self.tuning.tested_end
        return in_regions(sources, "padded" if copied else "bounded", at_ends=at_ends)

    def _cuts_pay(self, axes: Sequence[int], sources: Sequence[Reads]) -> bool:
        """Whether regions at the ends of the axes are faster than bound tests everywhere.

        Tests of few taps of one axis cost nothing, unless rows are wide and phases are interleaved.
        """
        bits = self.problem.sum_bits if self.made else self.problem.bits
        if nbytes(self.shape, bits) < self.tuning.sum_region_bytes:
            return False
        taps = sum(len(access.pairs) for along, *_ in sources for access in along)
        strided_and_wide = len(sources[0][0]) > 1 and row(self.shape, axes) >= self.tuning.vector
        return len(axes) > 1 or taps > self.tuning.tested_taps or strided_and_wide

    def _tables_pay(self, axes: Sequence[int], reads: Reads) -> bool:
        """Whether sums can be gathered through tables, at least as fast as in regions and phases."""
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
        return math.prod(map(max_elements_per_position, reads)) <= most

    def _add_along(self, dim: Axis) -> None:
        """Append one pass over an axis, or two, which sum parts of windows and then these sums.

        A transpose takes the two passes in reverse. Without strides it is a window sum.
        """
        by_phase = self.transposed and dim.stride > 1
        if self.transposed and not by_phase:
            low = dim.span - 1 - dim.low
            dim = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)

        def read(access: Access) -> Reads:
            return (access.transposed() if by_phase else (access,),)

        reads = read(windows_to_elements(dim))
        if dim.window <= self.tuning.longest_sum or self._tables_pay([dim.axis], reads):
            return self._add([dim.axis], reads)
        first, last, rest = _in_two(dim, self.tuning.longest_sum)
        # The two sources of the second pass would have different numbers of phases.
        if by_phase and rest.pairs and first.stride != dim.stride:
            return self._add([dim.axis], reads)
        before, after = (last, first) if by_phase else (first, last)
        self._add([dim.axis], read(before))
        self._add([dim.axis], read(after), *[read(rest)] * bool(rest.pairs))


def _in_two(dim: Axis, longest: int) -> tuple[Access, Access, Access]:
    """Accesses of sums in two passes: parts of a window, sums of parts, and the taps that no part covers.

        window 7, stride 4, parts of 2     [a a][b b][c c] x
                                                    [c c][d d][e e] x

    Parts have the length, at most `longest`, with the fewest terms per element. They are computed every `grid`
    positions, where windows need them, except inside the padding.
    """

    def grid_of(taps: int) -> int:
        return math.gcd(dim.stride, taps * dim.dilation)

    def terms_an_element(taps: int) -> float:
        return taps / grid_of(taps) + (dim.window // taps + dim.window % taps) / dim.stride

    part = min(range(1, longest + 1), key=terms_an_element)
    count, grid, step = dim.window // part, grid_of(part), part * dim.dilation
    begin = max(0, -((step - dim.dilation - dim.low) // grid))
    reached = ((dim.out - 1) * dim.stride + (count - 1) * step) // grid + 1
    stop = min(reached, -((-dim.size - dim.low) // grid))

    def access(starts: Sequence[int], stride: int, size: int, out: int) -> Access:
        return Access(tuple((start, 0) for start in starts), stride, size, out)

    taps = [tap * dim.dilation - dim.low for tap in range(dim.window)]
    first = access([begin * grid + tap for tap in taps[:part]], grid, dim.size, stop - begin)
    starts = [piece * step // grid - begin for piece in range(count)]
    last = access(starts, dim.stride // grid, stop - begin, dim.out)
    return first, last, access(taps[count * part :], dim.stride, dim.size, dim.out)
