"""Plans of a windowed maximum or minimum and of its derivative: residual, comparisons, passes and layouts.

`plan_max` serves the kernels that select with an index; `plan_scatter` serves XLA's select-and-scatter (TPU).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.access import max_elements_per_position, windows_to_elements
from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.layout import Layout, fits_tables, grouped, in_one_region, in_regions
from jaxpool._plan.problem import (
    Barrier,
    Platform,
    Problem,
    Shape,
    barrier_on,
    elements,
    nbytes,
    row,
)
from jaxpool._plan.steps import Step, select_steps, step_over
from jaxpool._plan.tuning import LIMITS, TUNING

Residual = Literal["rank", "tap", "bits", "arrays", "input"]
# Whether cotangents are cast to the dtype of sums: "fused" into the consumer, or "apart" in a pass before it.
Widen = Literal["never", "fused", "apart"]
# How select-and-scatter compares elements:
# - "in order": one comparison of floats widened to float32, with NaN replaced by infinity.
# - "branch": one comparison of float32, with NaN replaced by infinity only if a window holds NaN.
# - "joined", "picked": two comparisons, of NaN and of numbers, combined by an "or" or by a select.
# XLA's partitioner accepts a single comparison only. "branch" reads the output again, which takes 1.11 times as long
# for 2x2 windows with strides of 2 by the model of a TPU v5e.
Compared = Literal["in order", "branch", "joined", "picked"]
Groups = tuple[tuple[Axis, ...], ...]  # groups of axes, one XLA instruction per group


@dataclasses.dataclass(frozen=True)
class Pass:
    """A step and its layout."""

    step: Step
    layout: Layout


@dataclasses.dataclass(frozen=True)
class MaxPlan:
    """Passes of a selection: `forward` listed from input to output, `backward` and `tangent` from output to input."""

    nan: Literal["compared", "alone"]  # by the comparison of the values, or by a separate chain
    barrier: Barrier
    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    tangent: tuple[Pass, ...]
    widen: Widen
    value_by: Groups  # `lax.reduce_window` per group if no index is needed, last group first


@dataclasses.dataclass(frozen=True)
class ScatterPlan:
    """How select-and-scatter finds the selected elements in x and scatters their cotangents.

    With several groups, x is reduced along all groups but the first. The first group scatters cotangents to this
    reduced x, and each later group undoes one reduction. Ties are resolved as by a single instruction.
    """

    groups: Groups
    # "in order" compares elements and adds cotangents in float32, the other ways in the dtype of x.
    compared: Compared
    order: tuple[int, ...] = ()  # permutation that transposes x first; () for none


def residual(window: Window, *, split: bool, platform: Platform = "portable") -> Residual:
    """The residual of a max or min pool on `platform`, with ties `split` or sent to one element.

    - "rank", for large windows that cover their axes: the position of the selected element, or x and y for split ties.
    - "input": x; select-and-scatter selects again during the backward pass.
    - "tap": the flat tap of the selected element, one integer per output element.
    - "bits": one bit per tap, set for tied elements.
    - "arrays": x and y, which are smaller than the bits of more than `LIMITS.masked_taps` taps.
    """
    if window.size > LIMITS.whole_taps and all(dim.whole for dim in window.dims):
        return "rank"
    if not split:
        return "input" if _scattered(window, TUNING[platform].scattered_taps) else "tap"
    return "bits" if window.size <= LIMITS.masked_taps else "arrays"


def scatters(problem: Problem) -> bool:
    """Whether the backward pass uses select-and-scatter, which has no 64-bit form."""
    return problem.tuning.scattered_taps > 0 and problem.bits <= 32


def _scattered(window: Window, most: float) -> bool:
    """Whether select-and-scatter supports the window: at most `most` taps per axis, which it unrolls, and no dilation.

    It crops at most the last positions of an axis, fewer than a stride.
    """
    known = all(is_int(size) for dim in window.dims for size in (dim.size, dim.low, dim.tail))
    return known and all(
        dim.window <= most and dim.dilation == 1 and dim.low >= 0 and dim.tail > -dim.stride
        for dim in window.dims
    )


@functools.lru_cache(maxsize=4096)
def plan_scatter(problem: Problem) -> ScatterPlan:
    """The select-and-scatter plan for the array of `problem`.

    An instruction visits axes in memory order. To select the first of tied elements over all axes at once, it needs a
    window with axes in ascending order.
    """
    used = tuple(dim for dim in problem.window.dims if not dim.idle)
    axes, order = [dim.axis for dim in used], _compact(problem)
    at_once = not order and axes == sorted(axes) and _at_once(problem, used)
    return ScatterPlan(_grouped(used, at_once), _compared(problem, at_once), order)


def _compared(problem: Problem, at_once: bool) -> Compared:
    if problem.low_precision and (problem.window.overlapping or problem.partitioned):
        return "in order"
    if problem.partitioned:
        return "branch"
    many = at_once and problem.window.size > problem.tuning.joined_taps
    return "picked" if many else "joined"


def _compact(problem: Problem) -> tuple[int, ...]:
    """A permutation that puts the window's axes last, if x then takes much less memory; else ().

    Memory pads the minor axis to a multiple of 128 elements, even an axis of one channel.
    """
    axes = sorted(dim.axis for dim in problem.window.dims if not dim.idle)
    shape, lanes = problem.shape, problem.tuning.lanes
    if None in shape or problem.sharded or not axes:
        return ()
    others = [axis for axis in range(len(shape)) if axis not in axes]
    order = (*others, *axes)
    less = problem.tuning.compact_times * _filled([shape[axis] for axis in order], lanes)
    return order if less < _filled(shape, lanes) else ()


def _filled(shape: Sequence[int | None], lanes: int) -> float:
    """Elements in memory, with the last axis padded to a multiple of `lanes`."""
    *others, last = shape
    return elements((*others, None if last is None else -(-last // lanes) * lanes))


def _at_once(problem: Problem, used: Sequence[Axis]) -> bool:
    """Whether one instruction takes all axes, instead of one instruction per axis.

    The limit on taps is high for disjoint windows. For overlapping windows it is lower, but higher for large x, and
    for strides with a batch that fills sublanes: XLA keeps such a batch there only for an instruction over all axes.
    """
    tuning, size = problem.tuning, problem.window.size
    if not problem.window.overlapping:
        return size <= tuning.most_at_once_apart
    apart = math.prod(dim.stride for dim in used)
    few = size <= max(tuning.at_once_taps, tuning.at_once_an_element * apart)
    large = _filled(problem.shape, tuning.lanes) * problem.sum_bits / 8 > tuning.by_axis_bytes
    first, inner = problem.shape[0], all(dim.axis > 0 for dim in used)
    batch = inner and first is not None and first >= tuning.sublanes
    strided = batch and all(dim.stride > 1 for dim in used)
    if strided and size <= min(tuning.most_at_once_strided, tuning.at_once_strided * apart):
        return True
    return size <= tuning.most_at_once and (few or large)


def _value_by(problem: Problem) -> Groups:
    """The groups of axes for `lax.reduce_window`, if no index is needed."""
    used = tuple(dim for dim in problem.window.dims if not dim.idle)
    most = problem.tuning.values_at_once
    return _grouped(used, problem.window.size <= most) if problem.tuning.reduced_values else ()


def _grouped(used: tuple[Axis, ...], at_once: bool) -> Groups:
    return (used,) if used and at_once else tuple((dim,) for dim in used)


@functools.lru_cache(maxsize=4096)
def plan_max(problem: Problem) -> MaxPlan:
    """The plan of a max or min pool over the array of `problem`."""
    by_steps = _by_steps(problem)
    by_tables = _by_tables(problem)
    added = problem.low_precision and problem.window.overlapping
    tangent = tuple(Pass(each.step, in_one_region(each.step.phases)) for each in by_steps)
    widen: Widen = "apart" if problem.tuning.widened_apart else "fused"
    return MaxPlan(
        "alone" if problem.tuning.nan_apart and problem.is_float else "compared",
        barrier_on(problem.platform, problem.thresholds),
        _forward(problem),
        by_tables or by_steps,
        tangent,
        widen if added and not by_tables else "never",
        _value_by(problem),
    )


@functools.lru_cache(maxsize=4096)
def plan_ties(problem: Problem) -> Pass:
    """The pass that sends shares back to tied elements: all taps in one step, in the dtype of sums."""
    step = step_over(problem.window.dims)
    return Pass(step, _send(problem, step, problem.window.pooled(problem.shape), alone=True))


def _forward(problem: Problem) -> tuple[Pass, ...]:
    steps = select_steps(problem.window, problem.tuning, forward=True)
    shape, passes = problem.shape, []
    for step in steps:
        passes.append(Pass(step, _read(problem, step, shape, alone=len(steps) == 1)))
        shape = step.after(shape)
    return tuple(passes)


def _read(problem: Problem, step: Step, shape: Shape, *, alone: bool) -> Layout:
    """The layout of a forward step: regions for a large array if most windows are inside it, else one padded copy.

    For contiguous rows shorter than a vector, regions need few terms, and strides along all axes. With many terms or
    several steps they read padded copies of their own, otherwise their loops test bounds.
    """
    tuning = problem.tuning
    inner = [max(0, stop - first) for first, stop in (each.complete for each in step.accesses)]
    outs = [access.out for access in step.accesses]
    ends = [axis for axis, n, out in zip(step.axes, inner, outs, strict=True) if n < out]
    few = len(step.starts) <= tuning.tested_terms
    strided = all(access.stride > 1 for access in step.accesses)
    if (
        tuning.region_bytes <= nbytes(shape, problem.bits) < math.inf
        and ends
        and 100 * math.prod(inner) > tuning.least_inside * math.prod(outs)
        and (row(shape, ends) >= tuning.vector or (few and strided))
    ):
        copied = not (alone and few)
        return in_regions([step.phases], "padded" if copied else "bounded")
    return in_one_region(step.phases)


def _by_steps(problem: Problem) -> tuple[Pass, ...]:
    """The backward passes by steps, from output to input."""
    steps = select_steps(problem.window, problem.tuning, forward=False)
    shape, passes = problem.window.pooled(problem.shape), []
    for step in reversed(steps):
        passes.append(Pass(step, _send(problem, step, shape, alone=len(steps) == 1)))
        shape = step.before(shape)
    return tuple(passes)


def _send(problem: Problem, step: Step, shape: Shape, *, alone: bool) -> Layout:
    """The layout that sends cotangents and their index, arrays of `shape`, back through a step.

    A concatenation interleaves the phases. XLA for CPU compiles it to one loop per phase, but to a single loop if the
    result is cropped. Therefore each phase computes one extra position, which is cropped. If contiguous rows are
    shorter than a vector, only loops per phase vectorise, if the minor axis is interleaved last.
    """
    tuning, phases = problem.tuning, step.transposed
    if not tuning.in_place:
        return in_one_region(phases)
    strided = any(access.stride > 1 for access in step.accesses)
    large = tuning.region_bytes <= nbytes(shape, problem.sum_bits) < math.inf
    if alone and not strided and large:
        return in_regions([phases], "bounded")
    if row(shape, step.axes) < tuning.vector:
        return dataclasses.replace(in_one_region(phases), minor_last=len(step.axes) > 1)
    copied = strided and problem.window.overlapping
    return in_one_region(phases, "padded" if copied else "bounded", extra_position=True)


def _by_tables(problem: Problem) -> tuple[Pass, ...]:
    """The backward passes through tables, major axes first; empty if steps are as fast."""
    tuning, window = problem.tuning, problem.window
    covering = {dim: windows_to_elements(dim).transposed() for dim in window.dims}
    if not fits_tables(problem, covering.values()):
        return ()
    windows = {dim: max(1, max_elements_per_position(phases)) for dim, phases in covering.items()}
    strided = any(dim.stride > 1 for dim in window.dims)
    few = tuning.route_windows if strided else tuning.route_windows_without_strides
    groups = grouped(window.dims, lambda dims: math.prod(windows[dim] for dim in dims) <= few)
    most = max(math.prod(windows[dim] for dim in group) for group in groups)
    if not _tables_pay(problem, most, strided or len(groups) > 1):
        return ()
    passes, reach = [], window.size
    for group in groups:
        reach //= math.prod(dim.window for dim in group)
        passes.append(Pass(step_over(group, reach), Layout("tables")))
    return tuple(passes)


def _tables_pay(problem: Problem, most: int, many_loops: bool) -> bool:
    """Whether tables are faster than steps, if up to `most` windows of a group of axes cover an element.

    `many_loops` is True if steps would compile to one loop per phase or axis.
    """
    tuning, neighbours = problem.tuning, row(problem.shape, problem.window.axes)
    if most == 1:
        vectorises = problem.low_precision and neighbours >= tuning.vector
        return vectorises or problem.window.size > tuning.separate_taps
    fits = most <= tuning.route_windows_of_axis and neighbours >= tuning.route_row
    return fits and (problem.low_precision or many_loops)
