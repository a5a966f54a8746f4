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
    one_cut,
    windows_to_elements,
)
from jaxpool._geometry.window import Axis
from jaxpool._plan.layout import Layout, in_one_region, in_regions, minor_first, said
from jaxpool._plan.problem import Platform, Problem
from jaxpool._plan.steps import Step, flat_step, select_steps
from jaxpool._plan.tuning import TUNING

Keys = Literal["float", "integer"]
Keep = Literal["barrier", "conditional"]


@dataclasses.dataclass(frozen=True)
class Pass:
    """A step, how it is carried out, and `lower`: how the index before it is found from the index after it."""

    step: Step
    layout: Layout
    lower: Layout | None = None


@dataclasses.dataclass(frozen=True)
class MaxPlan:
    """`forward` in order from input to output; `backward` and `tangent` from output to input."""

    keys: Keys
    keep: Keep
    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    tangent: tuple[Pass, ...]
    widen: Literal[
        "never", "fused", "apart"
    ]  # where cotangents that are added in a wider type are cast
    why: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def keep_on(platform: Platform) -> Keep:
    """How a result is computed once, however many read it."""
    return "conditional" if TUNING[platform].conditional else "barrier"


@functools.lru_cache(maxsize=4096)
def plan_max(problem: Problem) -> MaxPlan:
    """The plan of a max or min pool over the array of `problem`."""
    why: list[str] = []
    sixteen = problem.dtype in ("bfloat16", "float16")
    integer = sixteen and problem.tuning.integer_keys
    if sixteen:
        why.append(
            "keys: " + ("16-bit integers in the order of the floats" if integer else "float32")
        )
    tangent = _tangent(problem)
    groups = _table_groups(problem, tangent, why)
    if groups:
        backward = tuple(Pass(step, Layout("tables")) for step in groups)
    else:
        backward = tangent
    return MaxPlan(
        keys="integer" if integer else "float",
        keep=keep_on(problem.platform),
        forward=_forward(problem, integer, why),
        backward=backward,
        tangent=tangent,
        widen=_widen(problem),
        why=(*why, *(f"backward over axes {p.step.axes}: {said(p.layout)}" for p in backward)),
    )


def _widen(problem: Problem) -> Literal["never", "fused", "apart"]:
    """Not where windows do not meet: nothing is added. On CPU a cast inside every term does not vectorise."""
    if not (problem.low_precision and problem.window.overlapping):
        return "never"
    return "apart" if problem.tuning.in_place else "fused"


# Forward


def _forward(problem: Problem, integer: bool, why: list[str]) -> tuple[Pass, ...]:
    bits = 16 if integer else 32 if problem.low_precision else problem.bits
    steps = select_steps(problem.window, problem.tuning, forward=True)
    shape, passes = list(problem.shape), []
    if len(steps) > 1:
        why.append(
            f"forward: {len(steps)} passes for {problem.window.size} taps, "
            f"{sum(len(step.starts) for step in steps)} terms in all"
        )
    for step in steps:
        layout = _read(problem, step, shape, bits, alone=len(steps) == 1)
        passes.append(Pass(step, layout))
        why.append(f"forward over axes {step.axes}: {said(layout)}")
        for axis, access in zip(step.axes, step.accesses, strict=True):
            shape[axis] = access.out
    return tuple(passes)


def _read(
    problem: Problem, step: Step, shape: list[int | None], bits: int, *, alone: bool
) -> Layout:
    """How a step reads: a large array where it is if only ends lack something, else from a padded copy.

    Over rows too short for vectors, few terms and strides are needed. With more terms than are
    tested, or in one step of several, regions at the ends are read from padded copies of their own.
    """
    inner, outs = complete_positions(step.accesses)
    large = problem.tuning.region_bytes <= problem.nbytes(shape, bits) < math.inf
    few = len(step.starts) <= problem.tuning.strided_terms
    if not (large and inner < outs < 2 * inner):
        return in_one_region(step.axes, step.phases)
    ends = [
        axis
        for axis, access in zip(step.axes, step.accesses, strict=True)
        if access.complete != (0, access.out)
    ]
    strided = all(access.stride > 1 for access in step.accesses)
    if not (few and strided) and problem.inner(ends, shape) < problem.tuning.vector:
        return in_one_region(step.axes, step.phases)
    return in_regions(step.axes, [step.phases], "bounded" if alone and few else "padded", 1)


# Backward, by the steps


def _tangent(problem: Problem) -> tuple[Pass, ...]:
    """The steps from the output to the input."""
    steps = select_steps(problem.window, problem.tuning, forward=False)
    shape = list(problem.window.pooled(problem.shape))
    passes = []
    for step in reversed(steps):
        lower = None if step is steps[0] else _lower(problem, step)
        passes.append(
            Pass(step, send_layout(problem, step, tuple(shape), whole=len(steps) == 1), lower)
        )
        for axis, phases in zip(step.axes, step.transposed, strict=True):
            shape[axis] = length(phases)
    return tuple(passes)


def _lower(problem: Problem, step: Step) -> Layout:
    """A turn of phases too many: what is cut off a concatenation is written by one loop, not one for each phase."""
    return _turns(problem, step.axes, step.transposed)


def _turns(problem: Problem, axes: tuple[int, ...], phases: tuple[Phases, ...]) -> Layout:
    more = [0] * len(axes)
    strided = [which for which, each in enumerate(phases) if len(each) > 1]
    if strided and problem.tuning.in_place:
        more[strided[0]] = 1
    cuts = tuple(one_cut(each, extra) for each, extra in zip(phases, more, strict=True))
    return Layout("padded", cuts, minor_first(axes))


def send_layout(
    problem: Problem, step: Step, shape: tuple[int | None, ...], *, whole: bool
) -> Layout:
    """How cotangents and their index, arrays of `shape`, are sent back through a step.

    Without strides large arrays are read where they are. With strides terms padded one by one are
    faster, 2.4 ms for 3.4, where XLA for CPU vectorises them: with bounds to test along one axis, or
    a few terms with one bound each along the minor axis. Elsewhere they are 5 to 10 times slower.
    """
    tuning, axes, phases = problem.tuning, step.axes, step.transposed
    if not tuning.in_place:
        return in_one_region(axes, phases)
    bits = 32 if problem.low_precision and problem.window.overlapping else problem.bits
    strided = any(access.stride > 1 for access in step.accesses)
    large = tuning.region_bytes <= problem.nbytes(shape, bits) < math.inf
    if whole and not strided and large:
        return in_regions(axes, [phases], "bounded", 1)
    if problem.inner(axes, shape) < tuning.vector:
        cuts = tuple(one_cut(each) for each in phases)
        return Layout("padded", cuts, tuple(reversed(minor_first(axes))))
    usual = _turns(problem, axes, phases)
    if not strided:
        return Layout("bounded", usual.cuts, usual.order)
    blocks, copied = _blocks_of_terms(problem, step, [column[0].stop for column in usual.cuts])
    cuts = tuple(
        (column[0]._replace(stop=count),) for column, count in zip(usual.cuts, blocks, strict=True)
    )
    return Layout("padded" if copied else "bounded", cuts, usual.order)


def _blocks_of_terms(problem: Problem, step: Step, usual: list[int]) -> tuple[list[int], bool]:
    """How many turns strided terms are put together from along each axis, and whether from padded copies."""
    delays = [
        [-offset for access in phases for offset in access.offsets] for phases in step.transposed
    ]
    first, last = [min(each) for each in delays], [max(each) for each in delays]
    outs = [access.out for access in step.accesses]
    every = [phases[0].out for phases in step.transposed]
    reached = [max(1, out + most) for out, most in zip(outs, last, strict=True)]
    fits = [
        few * access.stride <= access.size
        for few, access in zip(reached, step.accesses, strict=True)
    ]
    fewest = [few if fit else all_ for few, fit, all_ in zip(reached, fits, every, strict=True)]
    minor = minor_first(step.axes)[0]

    def vectorises(blocks: list[int]) -> bool:
        before = [most > 0 for most in last]
        after = [n > out + few for n, out, few in zip(blocks, outs, first, strict=True)]
        if sum(map(max, before, after)) <= 1:
            return True
        one_bound = not (before[minor] and after[minor])
        few_terms = len(step.starts) <= problem.tuning.strided_terms
        return few_terms and max(access.stride for access in step.accesses) <= 2 and one_bound

    if fewest == every and vectorises(usual):
        return usual, False
    return fewest, not vectorises(fewest)


# Backward, through tables


def fits_tables(problem: Problem, phases: tuple[Phases, ...]) -> bool:
    """Whether elements may be read through tables: not of an array whose type says how it is sharded.

    Where XLA alone knows, a gather collects pooled axes that are sharded, and what it gives is not sharded.
    """
    if not problem.shape_known or problem.sharded:
        return False
    return all(each[0].out * len(each) <= problem.tuning.longest_table for each in phases)


def _table_groups(problem: Problem, tangent: tuple[Pass, ...], why: list[str]) -> tuple[Step, ...]:
    """The axes of each loop through tables as steps, the major ones first; none where phases are as fast."""
    tuning, window = problem.tuning, problem.window
    every = tuple(elements_to_windows(dim) for dim in window.dims)
    if 0 in window.input_shape or not fits_tables(problem, every):
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
    if not _tables_pay(problem, len(groups), most, tangent):
        return ()
    why.append(f"backward through tables: at most {most} windows an element, {len(groups)} loops")
    steps, unit = [], window.size
    for group in groups:
        accesses = []
        for dim in group:
            unit //= dim.window
            accesses.append(windows_to_elements(dim, unit))
        steps.append(Step(tuple(dim.axis for dim in group), tuple(accesses), unit))
    return tuple(steps)


def _tables_pay(problem: Problem, loops: int, most: int, tangent: tuple[Pass, ...]) -> bool:
    tuning, window = problem.tuning, problem.window
    row = problem.inner(window.axes)
    if most == 1:
        return window.size > tuning.separate_taps or (
            problem.low_precision and row >= tuning.vector
        )
    few_of_16_bits = problem.low_precision and most <= tuning.route_windows
    least = tuning.route_row_of_16_bits if few_of_16_bits else tuning.route_row
    if most > tuning.route_windows_of_axis or row < least:
        return False
    if problem.low_precision or loops > 1:
        return True
    if all(dim.stride == 1 for dim in window.dims):
        return False
    in_place = len(tangent) == 1 and _reads_in_place(problem, tangent[0].step)
    return row < tuning.phases_row or not in_place


def _reads_in_place(problem: Problem, step: Step) -> bool:
    """Whether strided terms are few and read without copies."""
    usual = [column[0].stop for column in _turns(problem, step.axes, step.transposed).cuts]
    few = len(step.starts) <= problem.tuning.strided_terms
    return few and not _blocks_of_terms(problem, step, usual)[1]


# Ties that split


@dataclasses.dataclass(frozen=True)
class TiePlan:
    """How the shares of tied elements are sent back: all taps in one step."""

    step: Step
    layout: Layout


@functools.lru_cache(maxsize=4096)
def plan_ties(problem: Problem) -> TiePlan:
    """The plan of the transpose of a pool that splits cotangents among tied elements."""
    step = flat_step(problem.window)
    shape = problem.window.pooled(problem.shape)
    wide = dataclasses.replace(problem, dtype="float32") if problem.low_precision else problem
    return TiePlan(step, send_layout(wide, step, shape, whole=True))
