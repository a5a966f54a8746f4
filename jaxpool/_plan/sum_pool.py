"""Plans of a windowed sum and of its transpose: the axes that each pass adds over, and the layout of each pass."""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence

from jaxpool._geometry.access import (
    AxisAccess,
    Phases,
    max_elements_per_position,
    total_positions,
    window_access,
)
from jaxpool._geometry.window import Axis, Window, replace_sizes
from jaxpool._plan.problem import (
    BarrierKind,
    Layout,
    Problem,
    barrier_between_passes,
    clamped_or_single_region,
    fits_tables,
    group_axes,
    multi_region,
    nbytes,
    row_size,
)

AxisPhases = tuple[Phases, ...]  # along each axis; phase q of n computes positions q, q + n, ...


@dataclasses.dataclass(frozen=True)
class SumPass:
    """One pass of additions along `axes`. A pass adds elements of the previous pass's result, and may add its input."""

    axes: tuple[int, ...]
    # One entry for reads of the previous pass's result, and optionally one for reads of the previous pass's input
    sources: tuple[AxisPhases, ...]
    layout: Layout


@dataclasses.dataclass(frozen=True)
class SumPlan:
    """Plan of a sum pool: a sum over the `global_dims` axes, which one window covers, then `passes` over other axes.

    The transpose first repeats cotangents along `global_dims` and along `disjoint_dims`, which have disjoint windows.
    If `reduce_window_groups` is not empty, one `lax.reduce_window` per group replaces `disjoint_dims` and `passes`.
    """

    is_transposed: bool
    global_dims: tuple[Axis, ...]
    disjoint_dims: tuple[Axis, ...]
    passes: tuple[SumPass, ...]
    barrier: BarrierKind
    reduce_window_groups: tuple[tuple[Axis, ...], ...] = ()


@functools.lru_cache(maxsize=4096)
def plan_sum(problem: Problem, *, is_transposed: bool = False) -> SumPlan:
    """The plan of a sum pool over the array of `problem`, or of the transpose of the sum pool."""
    tuning, window = problem.tuning, problem.window
    dims = [dim for dim in window.dims if not dim.is_identity]
    dims.sort(key=operator.attrgetter("axis"))
    whole = tuple(dim for dim in dims if dim.is_global)
    other_dims = tuple(dim for dim in dims if dim not in whole)
    disjoint = [dim for dim in other_dims if dim.window <= dim.stride and dim.dilation == 1]
    disjoint_dims = tuple(disjoint if is_transposed else ())
    builder = _PassBuilder(problem, is_transposed)
    prepared = Window((*whole, *disjoint_dims))
    resize = prepared.unpooled_shape if is_transposed else prepared.pooled_shape
    builder.shape = resize(builder.shape)
    builder.add_passes([dim for dim in other_dims if dim not in disjoint_dims])
    barrier = barrier_between_passes(problem)
    if len(builder.passes) + bool(disjoint_dims) <= tuning.max_sum_passes:
        return SumPlan(is_transposed, whole, disjoint_dims, tuple(builder.passes), barrier)
    fuses_axes = math.prod(dim.window for dim in other_dims) <= tuning.reduce_window_sum_taps
    groups = [other_dims] if fuses_axes else [(dim,) for dim in other_dims]
    return SumPlan(is_transposed, whole, (), (), barrier, tuple(groups))


class _PassBuilder:
    """Builder of the passes of a sum pool; `shape` is the shape of the array after the passes added so far."""

    def __init__(self, problem: Problem, is_transposed: bool) -> None:
        self.problem, self.tuning, self.is_transposed = problem, problem.tuning, is_transposed
        self.shape = problem.window.pooled_shape(problem.shape) if is_transposed else problem.shape
        self.passes: list[SumPass] = []

    def add_passes(self, dims: Sequence[Axis]) -> None:
        """Append passes over `dims`, last axes first."""
        for group in group_axes(reversed(dims), self._fits_one_pass):
            if len(group) > 1:
                self._add_pass([dim.axis for dim in group[::-1]], self._phases(group[::-1]))
            else:
                self._add_axis_passes(*group)

    def _phases(self, dims: Sequence[Axis]) -> AxisPhases:
        accesses = map(window_access, dims)
        return tuple(a.transposed() if self.is_transposed else (a,) for a in accesses)

    def _fits_one_pass(self, minor_first_dims: Sequence[Axis]) -> bool:
        """Whether one pass over all of `minor_first_dims` is faster than one pass per axis."""
        tuning, dims = self.tuning, minor_first_dims[::-1]
        longest = max(dim.window for dim in dims)
        size = math.prod(dim.window for dim in dims)
        strides = math.prod(dim.stride for dim in dims)
        if len(dims) > 2:
            return size <= strides or self._uses_tables([d.axis for d in dims], self._phases(dims))
        if max(size, strides if self.is_transposed else 0) > tuning.max_sum_taps:
            return False
        taps_per_element = tuning.sum_taps_per_element
        if self.is_transposed and strides > 1:
            if self.problem.is_low_precision:
                return longest <= tuning.low_precision_transposed_taps
            taps_per_element = tuning.transposed_sum_taps_per_element
        if size <= taps_per_element * strides:
            return True
        has_rows = row_size(self.problem.shape, [dims[-1].axis]) > 1
        return has_rows and longest <= tuning.short_window_taps

    def _add_pass(self, axes: Sequence[int], *sources: AxisPhases) -> None:
        self.passes.append(SumPass(tuple(axes), sources, self._layout(axes, sources)))
        self.shape = replace_sizes(self.shape, axes, map(total_positions, sources[0]))

    def _layout(self, axes: Sequence[int], sources: Sequence[AxisPhases]) -> Layout:
        """The layout of a pass: one region, gathers through tables, or several regions (separate ends if faster)."""
        if not self.tuning.pads_each_term:
            return clamped_or_single_region(self.problem, axes, *sources)
        if len(sources) == 1 and self._uses_tables(axes, sources[0]):
            return Layout("tables")
        if not self._cuts_ends(axes, sources):
            return multi_region(sources, "bounded", separate_ends=False)
        full_ranges = [(each, *each.full_range) for along, *_ in sources for each in along]
        longest_end = max(max(first, each.out - stop) for each, first, stop in full_ranges)
        is_copied = len(axes) == 1 and longest_end > self.tuning.bounds_checked_positions
        return multi_region(sources, "padded" if is_copied else "bounded")

    def _cuts_ends(self, axes: Sequence[int], sources: Sequence[AxisPhases]) -> bool:
        """Whether separate regions at the ends of the axes are faster than testing array bounds everywhere."""
        bits = self.problem.sum_bits if self.passes else self.problem.bits
        if nbytes(self.shape, bits) < self.tuning.min_sum_region_bytes:
            return False
        num_taps = sum(len(access.tap_offsets) for along, *_ in sources for access in along)
        if len(axes) > 1 or num_taps > self.tuning.bounds_checked_taps:
            return True
        has_wide_rows = row_size(self.shape, axes) >= self.tuning.min_vector_elements
        return has_wide_rows and len(sources[0][0]) > 1

    def _uses_tables(self, axes: Sequence[int], phases: AxisPhases) -> bool:
        """Whether gathering the terms of sums through tables is possible, and at least as fast as slicing."""
        tuning = self.tuning
        if not fits_tables(self.problem, phases):
            return False
        if len(axes) == 1:
            return len(phases[0]) > tuning.max_untabled_phases
        is_full = all(len(each) == 1 and each[0].full_range == (0, each[0].out) for each in phases)
        if is_full or row_size(self.shape, axes) < tuning.min_table_row:
            return False
        strides = math.prod(each[0].stride for each in phases)
        max_terms = max(tuning.max_table_terms, tuning.table_taps_per_element * strides)
        return math.prod(map(max_elements_per_position, phases)) <= max_terms

    def _add_axis_passes(self, dim: Axis) -> None:
        """Append one pass over an axis, or two: of the sums of parts of windows, and of their addition."""
        has_phases = self.is_transposed and dim.stride > 1
        # Without strides, the transpose of a window sum is another window sum.
        if self.is_transposed and not has_phases:
            low = dim.span - 1 - dim.low
            dim = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)

        def phases_of(access: AxisAccess) -> AxisPhases:
            return (access.transposed() if has_phases else (access,),)

        phases = phases_of(window_access(dim))
        if dim.window <= self.tuning.max_sum_window or self._uses_tables([dim.axis], phases):
            return self._add_pass([dim.axis], phases)
        parts, sums_of_parts, rest = _split_long_window(dim, self.tuning.max_sum_window)
        # In two passes, the sources of the second pass would have different numbers of phases.
        if has_phases and rest.tap_offsets and parts.stride != dim.stride:
            return self._add_pass([dim.axis], phases)
        before, after = (sums_of_parts, parts) if has_phases else (parts, sums_of_parts)
        self._add_pass([dim.axis], phases_of(before))
        self._add_pass([dim.axis], phases_of(after), *[phases_of(rest)] * bool(rest.tap_offsets))


def _split_long_window(dim: Axis, max_taps: int) -> tuple[AxisAccess, AxisAccess, AxisAccess]:
    """Split long windows into parts of equal length.

    Returns three accesses: elements of each part, parts of each window, and leftover elements of each window.

        window 7, stride 4, parts of 2     [a a][b b][c c] x
                                                    [c c][d d][e e] x    the next window, 4 positions later

    Parts start at multiples of a spacing, the greatest common divisor of the stride and of the distance between parts,
    so windows share them. The length of a part minimises the terms per element. Parts that lie entirely in the padding
    are left out.
    """

    def spacing_of_parts(taps: int) -> int:
        return math.gcd(dim.stride, taps * dim.dilation)

    def terms_per_element(taps: int) -> float:
        return taps / spacing_of_parts(taps) + sum(divmod(dim.window, taps)) / dim.stride

    part = min(range(1, max_taps + 1), key=terms_per_element)
    spacing, distance, count = spacing_of_parts(part), part * dim.dilation, dim.window // part
    first = max(0, -((distance - dim.dilation - dim.low) // spacing))
    last = ((dim.out - 1) * dim.stride + (count - 1) * distance) // spacing
    last = min(last, (dim.size + dim.low - 1) // spacing)
    num_parts = last - first + 1

    offsets = [(tap * dim.dilation - dim.low, 0) for tap in range(dim.window)]
    offsets_in_part = tuple((first * spacing + offset, 0) for offset, _ in offsets[:part])
    part_offsets = tuple((piece * distance // spacing - first, 0) for piece in range(count))
    return (
        AxisAccess(offsets_in_part, spacing, dim.size, num_parts),
        AxisAccess(part_offsets, dim.stride // spacing, num_parts, dim.out),
        AxisAccess(tuple(offsets[count * part :]), dim.stride, dim.size, dim.out),
    )
