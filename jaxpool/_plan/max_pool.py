"""The plan of a windowed maximum or minimum: how it is compared, how many passes, how each of them reads."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Literal

from jaxpool._geometry.access import (
    Phases,
    complete_positions,
    covering,
    elements_to_windows,
    length,
    windows_to_elements,
)
from jaxpool._geometry.window import Axis
from jaxpool._plan.layout import Layout, in_one_region, in_regions
from jaxpool._plan.problem import Platform, Problem, Shape
from jaxpool._plan.steps import Step, flat_step, select_steps
from jaxpool._plan.tuning import TUNING

Keep = Literal["barrier", "conditional"]
Widen = Literal[
    "never", "fused", "apart"
]  # where cotangents that are added in a wider type are cast


@dataclasses.dataclass(frozen=True)
class Pass:
    """A step, how it is carried out, and `lower`: how the index before it is found from the index after it."""

    step: Step
    layout: Layout
    lower: Layout | None = None


@dataclasses.dataclass(frozen=True)
class MaxPlan:
    """`forward` from input to output; `backward`, and `tangent` in reverse, from output to input."""

    keys: Literal["float", "integer"]
    keep: Keep
    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    tangent: tuple[Pass, ...]
    widen: Widen


def keep_on(platform: Platform) -> Keep:
    """How a result is computed once, however many read it."""
    return "conditional" if TUNING[platform].conditional else "barrier"


@functools.lru_cache(maxsize=4096)
def plan_max(problem: Problem) -> MaxPlan:
    """The plan of a max or min pool over the array of `problem`."""
    integer = problem.dtype in ("bfloat16", "float16") and problem.tuning.integer_keys
    forward = _forward(problem, 16 if integer else problem.sum_bits)
    tangent = _by_steps(problem)
    backward = _through_tables(problem) or tangent
    return MaxPlan(
        "integer" if integer else "float",
        keep_on(problem.platform),
        forward,
        backward,
        tangent,
        _widen(problem, backward),
    )


def _widen(problem: Problem, backward: tuple[Pass, ...]) -> Widen:
    """Where cotangents are cast: on CPU a cast inside every term does not vectorise, but through tables it does."""
    added = problem.low_precision and problem.window.overlapping
    if not added or any(each.layout.reading == "tables" for each in backward):
        return "never"
    return "apart" if problem.tuning.in_place else "fused"


def _forward(problem: Problem, bits: int) -> tuple[Pass, ...]:
    steps = select_steps(problem.window, problem.tuning, forward=True)
    shape, passes = problem.shape, []
    for step in steps:
        passes.append(Pass(step, _read(problem, step, shape, bits, alone=len(steps) == 1)))
        shape = step.after(shape)
    return tuple(passes)


def _read(problem: Problem, step: Step, shape: Shape, bits: int, *, alone: bool) -> Layout:
    """How a step reads: a large array where it is if only ends lack something, else from a padded copy.

    Over rows too short for vectors, few terms and strides are needed. With more terms than are
    tested, or in one step of several, regions at the ends are read from padded copies of their own.
    """
    tuning = problem.tuning
    inner, outs = complete_positions(step.accesses)
    large = tuning.region_bytes <= problem.nbytes(shape, bits) < math.inf
    few = len(step.starts) <= tuning.tested_terms
    pairs = list(zip(step.axes, step.accesses, strict=True))
    ends = [axis for axis, access in pairs if access.complete != (0, access.out)]
    vectorises = problem.inner(ends, shape) >= tuning.vector
    strided = all(access.stride > 1 for access in step.accesses)
    if large and inner < outs < 2 * inner and (vectorises or (few and strided)):
        return in_regions(
            step.axes, [step.phases], "bounded" if alone and few else "padded", 1, tuning
        )
    return in_one_region(step.axes, step.phases)


def _by_steps(problem: Problem) -> tuple[Pass, ...]:
    """The steps from the output to the input."""
    steps = select_steps(problem.window, problem.tuning, forward=False)
    shape, passes = problem.window.pooled(problem.shape), []
    for step in reversed(steps):
        send = _send(problem, step, shape, alone=len(steps) == 1)
        lower = in_one_region(step.axes, step.transposed, more=problem.tuning.in_place)
        passes.append(Pass(step, send, lower))
        shape = step.before(shape)
    return tuple(passes)


def _send(problem: Problem, step: Step, shape: Shape, *, alone: bool) -> Layout:
    """How cotangents and their index, arrays of `shape`, are sent back through a step.

    XLA for CPU writes a concatenation by a loop for each operand, but one of which something is cut
    off by a single loop: a turn of phases too many is faster, where loops vectorise anyway. Over
    shorter rows loops for each phase vectorise, if the minor axis comes last.
    """
    tuning, axes, phases = problem.tuning, step.axes, step.transposed
    if not tuning.in_place:
        return in_one_region(axes, phases)
    strided = any(access.stride > 1 for access in step.accesses)
    bits = problem.sum_bits if problem.window.overlapping else problem.bits
    if alone and not strided and tuning.region_bytes <= problem.nbytes(shape, bits) < math.inf:
        return in_regions(axes, [phases], "bounded", 1, tuning)
    if problem.inner(axes, shape) < tuning.vector:
        exact = in_one_region(axes, phases)
        return dataclasses.replace(exact, order=exact.order[::-1])
    copied = strided and problem.window.overlapping
    usual = in_one_region(axes, phases, more=1)
    return dataclasses.replace(usual, reading="padded" if copied else "bounded")


def fits_tables(problem: Problem, phases: tuple[Phases, ...]) -> bool:
    """Whether elements may be read through tables: not of an array whose type says how it is sharded.

    Where XLA alone knows, a gather collects pooled axes that are sharded, and what it gives is not sharded.
    """
    if None in problem.shape or problem.sharded:
        return False
    return all(0 < length(each) <= problem.tuning.longest_table for each in phases)


def _through_tables(problem: Problem) -> tuple[Pass, ...]:
    """A pass for each loop through tables, over the major axes first; none where steps are as fast."""
    tuning, window = problem.tuning, problem.window
    if not fits_tables(problem, tuple(elements_to_windows(dim) for dim in window.dims)):
        return ()
    strided = any(dim.stride > 1 for dim in window.dims)
    few = tuning.route_windows if strided else tuning.route_windows_without_strides
    groups: list[tuple[Axis, ...]] = []
    for dim in window.dims:
        if groups and math.prod(map(covering, (*groups[-1], dim))) <= few:
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    most = max(math.prod(map(covering, group)) for group in groups)
    if not _tables_pay(problem, most, strided or len(groups) > 1):
        return ()
    passes, unit = [], window.size
    for group in groups:
        accesses = []
        for dim in group:
            unit //= dim.window
            accesses.append(windows_to_elements(dim, unit))
        axes = tuple(dim.axis for dim in group)
        passes.append(Pass(Step(axes, tuple(accesses), unit), Layout("tables")))
    return tuple(passes)


def _tables_pay(problem: Problem, most: int, many_loops: bool) -> bool:
    """Whether tables of `most` windows an element are faster than steps, which are `many_loops` or few."""
    tuning, row = problem.tuning, problem.inner(problem.window.axes)
    if most == 1:
        vectorises = problem.low_precision and row >= tuning.vector
        return vectorises or problem.window.size > tuning.separate_taps
    few = problem.low_precision and most <= tuning.route_windows
    least = tuning.route_row_of_16_bits if few else tuning.route_row
    fits = most <= tuning.route_windows_of_axis and row >= least
    return fits and (problem.low_precision or many_loops)


@functools.lru_cache(maxsize=4096)
def plan_ties(problem: Problem) -> Pass:
    """How the shares of tied elements are sent back: all taps in one step, in the type of sums."""
    step = flat_step(problem.window)
    shape = problem.window.pooled(problem.shape)
    return Pass(step, _send(problem, step, shape, alone=True))
