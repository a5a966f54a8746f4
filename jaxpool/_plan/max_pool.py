"""Plans of windowed maxima and minima and their derivatives: residual, comparisons, passes over arrays and layouts.

`plan_max` plans kernels that return the index of the maximum; `plan_scatter` plans XLA's select-and-scatter (TPU).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.access import max_elements_per_position, window_access
from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.problem import (
    BarrierKind,
    Layout,
    Platform,
    Problem,
    Shape,
    Step,
    barrier_between_passes,
    clamped_or_single_region,
    fits_tables,
    group_axes,
    is_constant_table,
    make_step,
    multi_region,
    nbytes,
    num_elements,
    plan_steps,
    row_size,
    single_region,
)
from jaxpool._plan.reduce import TilePlan, plan_tiles
from jaxpool._plan.tuning import LIMITS, TUNING, Tuning

Residual = Literal["rank", "tap", "bits", "arrays", "input"]
# How cotangents are cast to the dtype of sums: "fused" into the addition, "apart" in a pass before it, or not at all.
WidenMode = Literal["never", "fused", "apart"]
# Comparison of elements by select-and-scatter. XLA's partitioner accepts only a single comparison.
# - "in order": a single comparison in float32, with NaN replaced by infinity.
# - "branch": a single comparison in float32. NaN is replaced by infinity only if a window contains NaN.
# - "joined": two comparisons, a NaN test and a comparison of numbers, combined by a logical "or".
# The "branch" comparison takes 1.11 times as long for 2x2 windows with strides of 2 (by the model of a TPU v5e).
Comparison = Literal["in order", "branch", "joined"]
AxisGroups = tuple[tuple[Axis, ...], ...]  # groups of axes, with one XLA instruction per group


@dataclasses.dataclass(frozen=True)
class MaxPass:
    """A step of a windowed maximum (see `problem.py`) and its layout, which is the read mode and output regions."""

    step: Step
    layout: Layout
    # Whether a clamped pass of a maximum repeats elements at the ends of an axis, instead of padding them
    repeats_ends: bool = False

    @property
    def index_layout(self) -> Layout:
        """The layout of the pass that computes the selected index before the step from the index after the step."""
        if self.layout.read_mode == "clamped":
            return self.layout
        return single_region(self.step.transposed_phases, extra_position=True)


@dataclasses.dataclass(frozen=True)
class MaxPlan:
    """Passes of a max pool: `forward` and `value` (without an index) from input to output, the others back."""

    # Whether the value comparison also finds NaN ("compared"), or a separate reduction does ("alone")
    nan_mode: Literal["compared", "alone"]
    # Whether 16-bit floats are compared in their own dtype, instead of float32
    has_16_bit_comparisons: bool
    barrier: BarrierKind
    forward: tuple[MaxPass, ...]
    value: tuple[MaxPass, ...]
    backward: tuple[MaxPass, ...]
    tangent: tuple[MaxPass, ...]
    widen_mode: WidenMode
    # Groups of axes for a maximum without an index: one `lax.reduce_window` per group, last group first
    value_groups: AxisGroups
    # Reductions that replace the passes, except those of ties "last_nan"; None if passes are faster
    tiles: TilePlan | None


@dataclasses.dataclass(frozen=True)
class ScatterPlan:
    """Plan of select-and-scatter instructions, which find the selected elements of x and scatter cotangents to them.

    With several groups of axes, x is pooled along all groups except the first. The first group scatters cotangents to
    the pooled x, and each later group to a less pooled x. Groups and a single instruction resolve ties equally.
    """

    groups: AxisGroups
    # The comparison "in order" adds cotangents in float32, the other comparisons in the dtype of x.
    comparison: Comparison
    permutation: tuple[int, ...] = ()  # permutation of x before the instructions; () for none


@dataclasses.dataclass(frozen=True)
class AxisFold:
    """Join the elements of each of `num_windows` windows along an axis one by one, or join its two `halves` first."""

    axis: int
    num_taps: int
    dilation: int
    stride: int
    num_windows: int
    halves: "AxisFold | None"


class TieFolds(NamedTuple):
    """Folds of a pool with large windows and ties "split", one per axis."""

    over_taps: Sequence[AxisFold]  # of a window
    over_windows: Sequence[AxisFold]  # that cover an element


def _plan_axis_fold(
    axis: int, num_taps: int, dilation: int, stride: int, num_windows: int
) -> AxisFold:
    halves, half = None, num_taps // 2
    if num_taps > max(LIMITS.max_sequential_fold_taps, stride):
        num_halves = (num_windows - 1) * stride + 1 + half * dilation
        halves = _plan_axis_fold(axis, half, dilation, 1, num_halves)
    return AxisFold(axis, num_taps, dilation, stride, num_windows, halves)


def plan_tie_folds(window: Window) -> TieFolds:
    """The folds over the elements of windows, and over all windows that cover an element."""
    taps = [(dim.axis, dim.window, dim.dilation, dim.stride, dim.out) for dim in window.dims]
    windows = [(dim.axis, dim.window, dim.dilation, 1, dim.covered_size) for dim in window.dims]
    return TieFolds(*[[_plan_axis_fold(*each) for each in dims] for dims in (taps, windows)])


def saves_tie_bits(window: Window) -> bool:
    """Whether a pool with ties "split" saves one bit per window element, not x and y, for its backward pass."""
    return window.size <= LIMITS.max_mask_taps


def choose_residual(window: Window, *, split: bool, platform: Platform = "portable") -> Residual:
    """What a max or min pool saves for the backward pass on `platform`; `split` is True if ties share cotangents.

    - "rank", for large windows that cover their axes: the position of the selected element, or x and y for split ties.
    - "input": x, in which XLA's select-and-scatter selects the elements again.
    - "tap": the flat index of the selected element within its window.
    - "bits": one bit per window element, set for elements that tie for the maximum.
    - "arrays": x and y, which take less memory than many bits.
    """
    if window.size > LIMITS.max_sliding_taps and all(dim.is_global for dim in window.dims):
        return "rank"
    if not split:
        return "input" if _can_scatter(window, TUNING[platform].max_scatter_window) else "tap"
    return "bits" if saves_tie_bits(window) else "arrays"


def uses_select_and_scatter(problem: Problem) -> bool:
    """Whether the backward pass may use XLA's select-and-scatter, which has no 64-bit form."""
    return problem.tuning.max_scatter_window > 0 and problem.bits <= 32


def _can_scatter(window: Window, max_taps: float) -> bool:
    """Whether select-and-scatter supports the window: at most `max_taps` elements per axis, no dilation or cropping."""
    for dim in window.dims:
        known = all(map(is_int, (dim.size, dim.low, dim.used_high)))
        if not known or dim.window > max_taps or dim.dilation > 1:
            return False
        if dim.low < 0 or dim.used_high <= -dim.stride:
            return False
    return True


@functools.lru_cache(maxsize=4096)
def plan_scatter(problem: Problem) -> ScatterPlan:
    """The select-and-scatter plan for the array of `problem`."""
    tuning, dims = problem.tuning, tuple(d for d in problem.window.dims if not d.is_identity)
    axes = [dim.axis for dim in dims]
    order = _compact_permutation(problem, axes)
    strides = math.prod(dim.stride for dim in dims)
    max_taps = min(tuning.max_fused_scatter_taps, tuning.scatter_taps_per_element * strides)
    # One instruction visits axes in memory order, and finds the first of ties only if axes ascend.
    fuses_axes = problem.window.size <= max_taps and not order and axes == sorted(axes)
    comparison: Comparison = "branch" if problem.is_partitioned else "joined"
    if problem.is_low_precision and (problem.window.has_overlap or problem.is_partitioned):
        comparison = "in order"
    return ScatterPlan(_axis_groups(dims, fuses_axes), comparison, order)


def _compact_permutation(problem: Problem, pooled_axes: Sequence[int]) -> tuple[int, ...]:
    """A permutation that puts the pooled axes last, if x then takes much less TPU memory; else ()."""
    shape, num_lanes = problem.shape, problem.tuning.num_lanes
    if None in shape or problem.is_sharded or not pooled_axes:
        return ()
    order = (*sorted(set(range(len(shape))).difference(pooled_axes)), *sorted(pooled_axes))
    compact_size = _padded_size([shape[axis] for axis in order], num_lanes)
    is_smaller = problem.tuning.min_compaction * compact_size < _padded_size(shape, num_lanes)
    return order if is_smaller else ()


def _padded_size(shape: Sequence[int | None], num_lanes: int) -> float:
    """Number of elements in TPU memory, where the last axis is padded to a multiple of `num_lanes`."""
    *others, last = shape
    return num_elements((*others, None if last is None else -(-last // num_lanes) * num_lanes))


def _axis_groups(dims: tuple[Axis, ...], fuses_axes: bool) -> AxisGroups:
    return (dims,) if dims and fuses_axes else tuple((dim,) for dim in dims)


@functools.lru_cache(maxsize=4096)
def plan_max(problem: Problem) -> MaxPlan:
    """The plan of a max or min pool over the array of `problem`."""
    tuning, window = problem.tuning, problem.window
    by_steps, by_tables = _step_passes(problem), _table_passes(problem)
    adds_low_precision = problem.is_low_precision and window.has_overlap
    dims = tuple(dim for dim in window.dims if not dim.is_identity)
    value_groups = _axis_groups(dims, window.size <= tuning.reduce_window_max_taps)
    return MaxPlan(
        "alone" if tuning.finds_nan_separately and problem.is_float else "compared",
        tuning.compares_16_bit_floats,
        barrier_between_passes(problem),
        forward=_forward_passes(problem, with_index=True),
        value=_forward_passes(problem, with_index=False),
        backward=by_tables or by_steps,
        tangent=tangent_passes(by_steps),
        widen_mode=widen_mode(tuning) if adds_low_precision and not by_tables else "never",
        value_groups=value_groups if tuning.uses_reduce_window else (),
        tiles=plan_tiles(problem) if window.size >= tuning.min_tile_taps else None,
    )


def tangent_passes(passes: Sequence[MaxPass]) -> tuple[MaxPass, ...]:
    """Passes with the steps of `passes`, each computed in one region."""
    return tuple(MaxPass(each.step, single_region(each.step.phases)) for each in passes)


def widen_mode(tuning: Tuning) -> WidenMode:
    """How low-precision cotangents are cast before they are added."""
    return "apart" if tuning.widens_in_own_pass else "fused"


@functools.lru_cache(maxsize=4096)
def plan_one_pass(problem: Problem) -> MaxPass:
    """The pass that distributes cotangents among tied elements: one step over all elements of a window."""
    step, shape = make_step(problem.window.dims), problem.window.pooled_shape(problem.shape)
    layout = _vjp_layout(problem, step, shape, is_only=True)
    # Each term of this pass has a single tap. Clamped reads of several phases have a tap per phase.
    if layout.read_mode == "clamped" and any(dim.stride > 1 for dim in problem.window.dims):
        layout = single_region(step.transposed_phases)
    return MaxPass(step, layout)


@functools.lru_cache(maxsize=4096)
def plan_centre_comparison(problem: Problem) -> Step | None:
    """The step over windows that compares their centre with all elements; None if selecting an element is faster.

    Its terms read at clamped positions. A padded copy would need a value that loses to every element.
    """
    window, step = problem.window, make_step(problem.window.dims)
    layout = clamped_or_single_region(problem, step.axes, step.phases)
    is_small = window.size <= problem.tuning.max_compared_taps
    return step if is_small and layout.read_mode == "clamped" else None


def _forward_passes(problem: Problem, *, with_index: bool) -> tuple[MaxPass, ...]:
    """The passes of a maximum. Only passes with an index store strided slices, as they read each slice twice."""
    steps = plan_steps(problem.window, problem.tuning, is_forward=True)
    shape, passes = problem.shape, []
    for step in steps:
        if with_index and _deinterleaves(problem, step, shape):
            layout = single_region(step.phases, "deinterleaved")
        else:
            layout = _forward_layout(problem, step, shape, is_only=len(steps) == 1)
        passes.append(MaxPass(step, layout, layout.read_mode == "clamped" and _repeats_ends(step)))
        shape = step.output_shape(shape)
    return tuple(passes)


def _repeats_ends(step: Step) -> bool:
    """Whether the elements at positions clamped to the input belong to the same window, so terms need no padding."""
    return all(
        is_constant_table(access.out) and access.taps_of_clamped_reads(offset).min() >= 0
        for access in step.accesses
        for offset, _ in access.tap_offsets
    )


def _forward_layout(problem: Problem, step: Step, shape: Shape, *, is_only: bool) -> Layout:
    """The layout of a forward step: several regions if the array is large and most windows are inside it, else one.

    Regions with many terms or of several steps read padded copies. Other regions test bounds in their loops.
    """
    tuning = problem.tuning
    num_full = [max(0, stop - first) for first, stop in (each.full_range for each in step.accesses)]
    outs = [access.out for access in step.accesses]
    cut_axes = [axis for axis, n, out in zip(step.axes, num_full, outs, strict=True) if n < out]
    is_large = tuning.min_region_bytes <= nbytes(shape, problem.bits) < math.inf
    is_mostly_full = 100 * math.prod(num_full) > tuning.min_complete_percent * math.prod(outs)
    if not (is_large and cut_axes and is_mostly_full):
        return clamped_or_single_region(problem, step.axes, step.phases)
    is_small = len(step.piece_starts) <= tuning.bounds_checked_terms
    is_strided = all(access.stride > 1 for access in step.accesses)
    has_short_rows = row_size(shape, cut_axes) < tuning.min_vector_elements
    if has_short_rows and not (is_small and is_strided):
        return single_region(step.phases)
    return multi_region([step.phases], "bounded" if is_only and is_small else "padded")


def _deinterleaves(problem: Problem, step: Step, shape: Shape) -> bool:
    """Whether a step, which reads an array of `shape`, first stores strided slices along the last axis.

    XLA for CPU does not vectorise most reads with a stride if a row of outputs is shorter than a vector.
    """
    tuning, last = problem.tuning, len(shape) - 1
    if last not in step.axes or None in shape or problem.is_sharded:
        return False
    access = step.accesses[step.axes.index(last)]
    if not 1 < access.stride <= tuning.max_deinterleaved_stride:
        return False
    fills_half = access.out >= tuning.min_vector_elements / 2 or problem.window.has_overlap
    return fills_half and access.out < tuning.min_vector_elements


def _step_passes(problem: Problem) -> tuple[MaxPass, ...]:
    """The backward passes that reverse the steps of the maximum, from output to input."""
    steps = plan_steps(problem.window, problem.tuning, is_forward=False)
    shape, passes = problem.window.pooled_shape(problem.shape), []
    for step in reversed(steps):
        passes.append(MaxPass(step, _vjp_layout(problem, step, shape, is_only=len(steps) == 1)))
        shape = step.input_shape(shape)
    return tuple(passes)


def _vjp_layout(problem: Problem, step: Step, shape: Shape, *, is_only: bool) -> Layout:
    """The layout of the transpose of a step, which reads cotangents and the selected index, arrays of `shape`.

    XLA for CPU compiles interleaved phases to a single loop only if the result is cropped, so phases have an extra
    position. For rows shorter than a vector, only one loop per phase vectorises, with the last axis interleaved last.
    """
    tuning, phases = problem.tuning, step.transposed_phases
    if not tuning.pads_each_term:
        return clamped_or_single_region(problem, step.axes, phases)
    is_strided = any(access.stride > 1 for access in step.accesses)
    is_large = tuning.min_region_bytes <= nbytes(shape, problem.sum_bits) < math.inf
    if is_only and not is_strided and is_large:
        return multi_region([phases], "bounded")
    if row_size(shape, step.axes) < tuning.min_vector_elements:
        return dataclasses.replace(single_region(phases), minor_axis_last=len(step.axes) > 1)
    is_copied = is_strided and problem.window.has_overlap
    return single_region(phases, "padded" if is_copied else "bounded", extra_position=True)


def _table_passes(problem: Problem) -> tuple[MaxPass, ...]:
    """The backward passes that gather through tables of positions, first axes first; () if other passes are as fast."""
    tuning, window = problem.tuning, problem.window
    dim_phases = {dim: window_access(dim).transposed() for dim in window.dims}
    if not fits_tables(problem, dim_phases.values()):
        return ()
    overlap = {dim: max(1, max_elements_per_position(phases)) for dim, phases in dim_phases.items()}
    is_strided = any(dim.stride > 1 for dim in window.dims)
    limit = tuning.max_route_windows if is_strided else tuning.max_unstrided_route_windows
    groups = group_axes(window.dims, lambda dims: math.prod(overlap[dim] for dim in dims) <= limit)
    most_windows = max(math.prod(overlap[dim] for dim in group) for group in groups)
    if not _uses_tables(problem, most_windows, is_strided or len(groups) > 1):
        return ()
    passes, piece_taps = [], window.size
    for group in groups:
        piece_taps //= math.prod(dim.window for dim in group)
        passes.append(MaxPass(make_step(group, piece_taps), Layout("tables")))
    return tuple(passes)


def _uses_tables(problem: Problem, num_windows: int, has_many_loops: bool) -> bool:
    """Whether tables are faster than slices, if up to `num_windows` windows cover an element."""
    tuning, minor_size = problem.tuning, row_size(problem.shape, problem.window.axes)
    if num_windows == 1:
        vectorises = problem.is_low_precision and minor_size >= tuning.min_vector_elements
        return vectorises or problem.window.size > tuning.max_disjoint_phase_taps
    if num_windows > tuning.max_route_table_windows or minor_size < tuning.min_route_table_row:
        return False
    return problem.is_low_precision or has_many_loops
