"""The plan of a windowed sum, or of its transpose: which axes a pass adds over, and how it reads."""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence

from jaxpool._geometry.access import Access, Phases, length, terms, windows_to_elements
from jaxpool._geometry.window import Axis, resized
from jaxpool._plan.layout import Layout, fits_tables, grouped, in_one_region, in_regions
from jaxpool._plan.problem import Barrier, Problem, barrier_on, nbytes, row

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
    barrier: Barrier
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
    barrier = barrier_on(problem.platform, problem.thresholds)
    if len(passes.made) + bool(separate) <= problem.tuning.sum_passes:
        return SumPlan(transposed, whole, separate, tuple(passes.made), barrier)
    at_once = math.prod(dim.window for dim in rest) <= problem.tuning.reduced_at_once
    groups = [rest] if at_once else [(dim,) for dim in rest]
    return SumPlan(transposed, whole, (), (), barrier, tuple(groups))


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
        every = map(windows_to_elements, dims)
        return tuple(access.transposed() if self.transposed else (access,) for access in every)

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
        at_ends = self._cuts_pay(axes, sources)
        completes = [(each, *each.complete) for along, *_ in sources for each in along]
        longest = max(max(first, each.out - stop) for each, first, stop in completes)
        copied = at_ends and len(axes) == 1 and longest > self.tuning.tested_end
        return in_regions(sources, "padded" if copied else "bounded", at_ends=at_ends)

    def _cuts_pay(self, axes: Sequence[int], sources: Sequence[Reads]) -> bool:
        """Along one axis a loop over few taps tests bounds as fast, unless it is wide and interleaves phases."""
        bits = self.problem.sum_bits if self.made else self.problem.bits
        if nbytes(self.shape, bits) < self.tuning.sum_region_bytes:
            return False
        taps = sum(len(access.pairs) for along, *_ in sources for access in along)
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
        """Passes over one axis: all taps at once, or sums of parts and of those; transposed, in reverse.

        Without strides the transpose is a sum too.
        """
        by_phase = self.transposed and dim.stride > 1
        if self.transposed and not by_phase:
            low = dim.span - 1 - dim.low
            dim = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)

        def read(access: Access) -> Reads:
            return (access.transposed() if by_phase else (access,),)

        every = read(windows_to_elements(dim))
        if dim.window <= self.tuning.longest_sum or self._tables_pay([dim.axis], every):
            return self._add([dim.axis], every)
        first, last, rest = _in_two(dim, self.tuning.longest_sum)
        if by_phase and rest.pairs and first.stride != dim.stride:  # phases that do not take turns
            return self._add([dim.axis], every)
        before, after = (last, first) if by_phase else (first, last)
        self._add([dim.axis], read(before))
        self._add([dim.axis], read(after), *[read(rest)] * bool(rest.pairs))


def _in_two(dim: Axis, longest: int) -> tuple[Access, Access, Access]:
    """Sums of parts of a window, sums of those, and the taps that no part covers.

        window 7, stride 4, parts of 2     [a a][b b][c c] x
                                                    [c c][d d][e e] x

    Parts are as long as makes the fewest terms per element, up to `longest`. They are found every `grid`
    positions, which is where windows begin them, except where a part would lie in the padding alone.
    """

    def grid_of(taps: int) -> int:
        return math.gcd(dim.stride, taps * dim.dilation)

    def terms_an_element(taps: int) -> float:
        return taps / grid_of(taps) + (dim.window // taps + dim.window % taps) / dim.stride

    part = min(range(1, longest + 1), key=terms_an_element)
    count, grid, far = dim.window // part, grid_of(part), part * dim.dilation
    begin = max(0, -((far - dim.dilation - dim.low) // grid))
    reached = ((dim.out - 1) * dim.stride + (count - 1) * far) // grid + 1
    stop = min(reached, -((-dim.size - dim.low) // grid))

    def access(starts: Sequence[int], stride: int, size: int, out: int) -> Access:
        return Access(tuple((start, 0) for start in starts), stride, size, out)

    taps = [tap * dim.dilation - dim.low for tap in range(dim.window)]
    first = access([begin * grid + tap for tap in taps[:part]], grid, dim.size, stop - begin)
    starts = [piece * far // grid - begin for piece in range(count)]
    last = access(starts, dim.stride // grid, stop - begin, dim.out)
    return first, last, access(taps[count * part :], dim.stride, dim.size, dim.out)
