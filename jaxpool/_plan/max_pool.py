"""The plan of a windowed maximum or minimum: how it is compared, how many passes, how each of them reads."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.access import terms, windows_to_elements
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
Widen = Literal["never", "fused", "apart"]  # where cotangents are cast to the type of their sums
# How select-and-scatter compares elements. By one comparison: of floats widened to float32 "in order", with NaN as
# infinity; or of float32 in a "branch", with NaN as infinity only if a window holds one. Else by two, of NaN and of
# numbers, "joined" by an "or" or "picked" by a select. XLA's partitioner takes one comparison alone. The branch reads
# the output once more: 2x2 with strides of 2 takes 1.11 times as long by the model of a v5e.
Compared = Literal["in order", "branch", "joined", "picked"]
Groups = tuple[tuple[Axis, ...], ...]  # of axes that one instruction of XLA goes through at once


@dataclasses.dataclass(frozen=True)
class Pass:
    """A step, and how it is carried out."""

    step: Step
    layout: Layout


@dataclasses.dataclass(frozen=True)
class MaxPlan:
    """`forward` from input to output; `backward`, and `tangent` in reverse, from output to input."""

    nan: Literal["compared", "alone"]  # found as other elements are, or in a chain of its own
    barrier: Barrier
    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    tangent: tuple[Pass, ...]
    widen: Widen
    value_by: Groups  # axes whose windows XLA reduces itself where no index is wanted, the last group first


@dataclasses.dataclass(frozen=True)
class ScatterPlan:
    """How an instruction finds chosen elements in x and sends their cotangents there.

    Of several groups the first finds the best of what the others leave of x, and sends cotangents to that; the next
    sends them on. So of elements that tie the first, or last, of the window is found, as in one instruction.
    """

    groups: Groups
    # "in order" in float32, and cotangents are added in it; else in the type of x.
    compared: Compared
    order: tuple[int, ...] = ()  # by which x is transposed first; () leaves it


def residual(window: Window, *, split: bool, platform: Platform = "portable") -> Residual:
    """What is kept of a pool over `window`, where ties are `split` or go to one element, by a program for `platform`.

    "rank": of the chosen element, or with split ties x and y, of windows as large as their
    axes, which are reduced if they have more than `whole_taps`. "tap": the chosen one, an integer per
    output. "bits": a bit per tap, set where it ties. "arrays": x and y, which are less than the bits of
    more than `masked_taps`. "input": x, where one instruction finds the chosen element anew as it sends the
    cotangent there; it knows no dilation. (`whole_taps` and `masked_taps` are in `LIMITS` of `tuning.py`.)
    """
    if window.size > LIMITS.whole_taps and all(dim.whole for dim in window.dims):
        return "rank"
    if not split:
        return "input" if _scattered(window, TUNING[platform].scattered_taps) else "tap"
    return "bits" if window.size <= LIMITS.masked_taps else "arrays"


def scatters(problem: Problem) -> bool:
    """Whether one instruction finds chosen elements and sends their cotangents there; there is none of 64 bits."""
    return problem.tuning.scattered_taps > 0 and problem.bits <= 32


def _scattered(window: Window, most: float) -> bool:
    """Whether the instruction takes such windows: of few taps along each axis, which it unrolls, and read whole.

    At the end of an axis less than a stride may be left out.
    """
    known = all(is_int(size) for dim in window.dims for size in (dim.size, dim.low, dim.tail))
    return known and all(
        dim.window <= most and dim.dilation == 1 and dim.low >= 0 and dim.tail > -dim.stride
        for dim in window.dims
    )


@functools.lru_cache(maxsize=4096)
def plan_scatter(problem: Problem) -> ScatterPlan:
    """The plan of that instruction over the array of `problem`.

    Axes are gone over in their order in memory, so if those of the window are in another, the
    first of elements that tie is not found at once.
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

    A minor axis of few elements, such as one channel, fills as much memory as one of 128.
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
    """Elements in memory, where the last axis is filled up."""
    *others, last = shape
    return elements((*others, None if last is None else -(-last // lanes) * lanes))


def _at_once(problem: Problem, used: Sequence[Axis]) -> bool:
    """Whether the instruction goes over all axes at once, not one after another.

    It does where windows do not meet, up to many taps. Where they meet, it does up to few, and to more if x is large
    in memory. With strides more may meet if the batch fills sublanes: there XLA keeps it for the instruction
    over all axes, but not for one axis.
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
    """The axes that XLA reduces where no index is wanted."""
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
    """How the shares of tied elements are sent back: all taps in one step, in the type of sums."""
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
    """How a step reads: a large array by regions if only ends lack something, else from a padded copy.

    Over rows too short for vectors, few terms and strides are needed. With more terms than are
    tested, or in one step of several, regions at the ends are read from padded copies of their own.
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
    """The steps from the output to the input."""
    steps = select_steps(problem.window, problem.tuning, forward=False)
    shape, passes = problem.window.pooled(problem.shape), []
    for step in reversed(steps):
        passes.append(Pass(step, _send(problem, step, shape, alone=len(steps) == 1)))
        shape = step.before(shape)
    return tuple(passes)


def _send(problem: Problem, step: Step, shape: Shape, *, alone: bool) -> Layout:
    """How cotangents and their index, arrays of `shape`, are sent back through a step.

    Phases are interleaved by a concatenation, which XLA for CPU writes as a loop for each part; cut at
    its end, as one loop over all. So one turn of phases more than needed is computed, and cut off.
    Over rows too short for vectors that one loop would not vectorise. The loops for each phase do, if
    the minor axis is interleaved last.
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
    return in_one_region(phases, "padded" if copied else "bounded", spare_turn=True)


def _by_tables(problem: Problem) -> tuple[Pass, ...]:
    """A pass for each loop through tables, over the major axes first; none where steps are as fast."""
    tuning, window = problem.tuning, problem.window
    covering = {dim: windows_to_elements(dim).transposed() for dim in window.dims}
    if not fits_tables(problem, covering.values()):
        return ()
    windows = {dim: max(1, terms(phases)) for dim, phases in covering.items()}
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
    """Whether tables are faster than steps, where up to `most` windows cover an element.

    `many_loops` says whether the steps would be a loop for each phase or axis.
    """
    tuning, neighbours = problem.tuning, row(problem.shape, problem.window.axes)
    if most == 1:
        vectorises = problem.low_precision and neighbours >= tuning.vector
        return vectorises or problem.window.size > tuning.separate_taps
    fits = most <= tuning.route_windows_of_axis and neighbours >= tuning.route_row
    return fits and (problem.low_precision or many_loops)
