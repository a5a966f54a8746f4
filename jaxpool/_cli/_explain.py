"""What a plan says of a case: the passes that carry it out on a platform, forward and back, and why these."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxpool._cli import _case as cases
from jaxpool._cli._case import Case
from jaxpool._cli._stage import (
    Explained,
    Stage,
    folds,
    fractional,
    of_steps,
    of_sums,
    region,
    segment,
    stage,
)
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._plan import others
from jaxpool._plan.max_pool import plan_max, plan_ties, residual
from jaxpool._plan.problem import Platform, Problem, keep_on
from jaxpool._plan.rank_pool import by_network, plan_rank, reduced, unrolled, walked_back
from jaxpool._plan.steps import step_over
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import TUNING, Tuning


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What the derivative keeps, and the passes: to the output, of a tangent, of a cotangent."""

    keeps: str
    kept_by: str
    forward: tuple[Stage, ...]
    tangent: tuple[Stage, ...]
    backward: tuple[Stage, ...]
    why: tuple[str, ...] = ()


def explain(case: Case, on: Platform, thresholds: Tuning | None = None) -> Explanation:
    """The plan of a case on a platform, whose thresholds may be others."""
    family = next(family for family in FAMILIES if case.function in family.functions)
    problem = Problem(case.window, case.shape, case.dtype, on, thresholds=thresholds)
    keeps, forward, tangent, backward, why = family.explained(case, problem)
    passes = tuple(forward), tuple(tangent), tuple(backward)
    return Explanation(keeps, keep_on(on), *passes, tuple(why))


def deciding(case: Case, on: Platform) -> dict[str, dict[str, Any]]:
    """The thresholds that decide, for each direction: if one were never reached, its passes would differ."""
    tuning, found = TUNING[on], explain(case, on)
    decide: dict[str, dict[str, Any]] = {"forward": {}, "tangent": {}, "backward": {}}
    for field in dataclasses.fields(Tuning):
        value = getattr(tuning, field.name)
        never: Any = False if isinstance(value, bool) else 1 << 30
        moved = explain(case, on, dataclasses.replace(tuning, **{field.name: never}))
        for direction, limits in decide.items():
            if getattr(moved, direction) != getattr(found, direction):
                limits[field.name] = value
    return decide


# A family of functions each

_WHY = {
    "compared": (),
    "alone": ("NaN is looked for alone: two chains of one comparison a term, not one of two",),
    "never": (),
    "fused": ("cotangents are widened where they are added",),
    "apart": ("cotangents are widened first: within each term that does not vectorise",),
}


def _selection(case: Case, problem: Problem) -> Explained:
    """A windowed maximum or minimum."""
    window = case.window
    keeps: str = residual(window, split=case.ties == "split")
    if case.function == "max_pool_with_argmax":
        keeps = "tap"  # whatever it keeps beside it
    if keeps == "rank":
        return _reduction(case, problem)
    plan = plan_max(problem)
    why = _WHY[plan.nan]
    if plan.value_by:
        why = (*why, "one lax.reduce_window where no derivative is taken")
    forward = of_steps(plan.forward)
    if keeps == "tap":
        tangent = plan.tangent[::-1]
        back = of_steps(plan.backward, back=True)
        return keeps, forward, of_steps(tangent), back, (*why, *_WHY[plan.widen])
    if keeps == "bits":
        taps = Stage(window.axes, window.size, "padded")
        back = of_steps([plan_ties(problem)], back=True)
        return keeps, [*forward, taps], [taps], back, why
    folded = folds(window)
    return keeps, forward, folded, [*folded, *folded[::-1]], why


def _sums(case: Case, problem: Problem) -> Explained:
    """A windowed sum or average."""
    plans = [plan_sum(problem, transposed=transposed) for transposed in (False, True)]
    forward, backward = map(of_sums, plans)
    return "nothing", forward, forward, backward, []


def _scaled(case: Case, problem: Problem) -> Explained:
    """A sum of powers or exponentials, scaled by the greatest of each window."""
    sums = [] if case.window.overlapping else of_sums(plan_sum(problem))
    return "input", folds(case.window) + sums, [], [], []


def _sent(problem: Problem, *, walks: bool = True) -> tuple[list[Stage], list[Stage]]:
    """The passes of a tangent and of a cotangent where each window chooses for itself."""
    window = problem.window
    if walks and walked_back(window):
        walked = [Stage(window.axes, window.size, "walked")]
        return walked, walked
    plan = plan_rank(problem)
    return of_steps(plan.tangent[::-1]), of_steps(plan.backward, back=True)


def _stochastic(case: Case, problem: Problem) -> Explained:
    window = case.window
    taps = Stage(window.axes, window.size, "padded" if unrolled(window) else "walked")
    ways = [dataclasses.replace(taps, notes=(note,)) for note in ("weighed", "where chance falls")]
    return "tap", ways, *_sent(problem), []


def _ranked(case: Case, problem: Problem) -> Explained:
    """Ranks and morphology: a term a tap, and one step back, as windows agree on no part of theirs."""
    window, split, on = case.window, case.ties == "split", problem.platform
    ranked, taps = case.function in cases.RANKED, Stage(window.axes, window.size, "padded")
    walked = dataclasses.replace(taps, reading="walked")
    if ranked and reduced(window):
        every, repeated = (Stage(window.axes, window.size, how) for how in ("reduced", "repeated"))
        ways = [dataclasses.replace(every, notes=("counted bit by bit",))]
        return "element bits" if split else "rank", ways, [every], [repeated], []
    ways = [taps, taps if not ranked or unrolled(window) else walked][: 1 if split else 2]
    if ranked and not by_network(window.size, on):
        ways[0] = dataclasses.replace(walked, notes=("counted bit by bit",))
    kernel = [Stage(window.axes, window.size, "reduced", notes=("to the kernel",))]
    kernel = kernel if case.function in cases.MORPHOLOGY else []
    if split and ranked and not unrolled(window):
        return "both", ways, [walked], [walked, walked], []
    if split:
        return "bits", ways, [taps], [*of_steps([plan_ties(problem)], back=True), *kernel], []
    tangent, back = _sent(problem, walks=ranked)
    return "tap", ways, tangent, [*back, *kernel], []


def _blurred(case: Case, problem: Problem) -> Explained:
    forward: list[Stage] = []
    back: list[Stage] = []
    shape = case.shape
    groups = others.blur_groups(case.window, problem.platform)
    for group in groups:
        step = step_over(group.dims)
        part = dataclasses.replace(problem, window=group, shape=shape)
        ways = (
            (step.phases, False, group is groups[-1]),
            (step.transposed, True, group is groups[0]),
        )
        one, sent = (
            stage(step.axes, [phases], others.blur_layout(part, turned=turned), last)
            for phases, turned, last in ways
        )
        forward, back, shape = [*forward, one], [sent, *back], group.pooled(shape)
    return "nothing", forward, forward, back, ["reflected at the border before"]


def _largest(case: Case, problem: Problem) -> Explained:
    order, read = Stage(case.axes, 1, "ordered"), Stage(case.axes, 1, "gathered")
    return "position", [order, read], [read], [Stage(case.axes, case.to[0], "elementwise")], []


def _adaptive(case: Case, problem: Problem) -> Explained:
    window, mean = case.window, case.function == "adaptive_avg_pool"
    if others.needs_no_grid(window):
        if mean:
            return _sums(case, problem)
        usual = "max_pool_with_argmax" if case.ties == "last" else "max_pool"
        return _selection(dataclasses.replace(case, function=usual), problem)
    ragged = [dim for dim in window.dims if isinstance(dim, RaggedAxis)]
    axes = tuple(dim.axis for dim in ragged)
    to_grid, blocks = Stage(axes, 1, "gathered"), Stage(window.axes, window.size, "blocks")
    back = [Stage(window.axes, 1, "repeated")]
    for dim in ragged:
        places = dim.sharers
        how = "one by one" if others.one_by_one(places) else "as a block"
        back.append(Stage((dim.axis,), places, "gathered", notes=(how,)))
    keeps = "nothing" if mean else "bits" if case.ties == "split" else "tap"
    tangent = to_grid if mean else Stage(axes, 1, "scattered")
    shape = " x ".join(str(dim.out * dim.window) for dim in window.dims)
    why = f"windows laid side by side on a grid of {shape}, and reduced as blocks"
    return keeps, [to_grid, blocks], [tangent, blocks], back, [why]


def _reduction(case: Case, problem: Problem) -> Explained:
    """A maximum or mean over whole axes."""
    terms = math.prod(case.shape[axis] or 0 for axis in case.axes)
    reduced, repeated = Stage(case.axes, terms, "reduced"), Stage(case.axes, 1, "repeated")
    if "avg" in case.function:
        return "nothing", [reduced], [reduced], [repeated], []
    lost = "XLA's maximum may lose a NaN here, so one is looked for"
    why = [lost] if problem.tuning.loses_nan and case.dtype in cases.FLOATS else []
    keeps = "both" if case.ties == "split" else "rank"
    return keeps, [reduced], [reduced], [repeated], why


def _running(case: Case, problem: Problem) -> Explained:
    size = case.shape[case.axes[0]]
    ways = problem.tuning.scan_ways
    times = (
        () if size is None else (f"{next(n for n in itertools.count() if ways**n >= size)} passes",)
    )
    stages = [Stage(case.axes, ways, "running", kept=True, notes=times)]
    return "position", stages, stages, stages, []


def _elementwise(case: Case, problem: Problem) -> Explained:
    stages = [Stage((), case.operands, "elementwise")]
    keeps = "operand bits" if case.ties == "split" else "operand"
    return keeps, stages, stages, stages, []


def _unpool(case: Case, problem: Problem) -> Explained:
    own = others.own_windows(case.shape, case.axes, case.to, problem.platform, False)
    why = "the number of the last element that wants a position is scattered"
    routed: list[Stage] = []
    if own:
        plan = plan_max(dataclasses.replace(problem, window=own, shape=own.unpooled(case.shape)))
        routed = of_steps(plan.backward, back=True)
        routed = [dataclasses.replace(each, notes=(*each.notes, "or else")) for each in routed]
        why = f"routed if all indices lie in windows of {own.window_shape}, tested where the program runs"
    scattered, gathered = (Stage(case.axes, 1, how) for how in ("scattered", "gathered"))
    return "position", [*routed, scattered, gathered], [*routed, scattered], [gathered], [why]


class Family(NamedTuple):
    """Functions that are explained alike, and cases that show between them all the forms that these may take."""

    functions: tuple[str, ...]
    explained: Callable[[Case, Problem], Explained]
    samples: tuple[str, ...]


_WINDOWS = (
    *("2x2 stride 2 16x128x128x32", "3x3 stride 2 SAME 16x112x112x64", "3x3 SAME 2x9x8x3"),
    *("3x3 SAME 8x64x64x64", "13x13 SAME 8x40x40x128", "31x31 stride 16 SAME 4x128x128x32"),
    *("3x3 SAME ties split 8x64x64x64", "13x13 ties split 8x40x40x128", "56x56 32x56x56x256"),
)
_OUTPUTS = (
    *("to 7x7 16x56x56x64", "to 5x5 8x64x64x64", "to 1x1 16x56x56x64"),
    *("to 4x4 ties split 2x8x8x3", "to 5x5 ties split 8x64x64x64"),
)
_WHOLE = ("over 1 and 2 ties first 32x56x56x64", "over 1 and 2 ties split 32x56x56x64")
FAMILIES = (
    Family(cases.SELECTIONS, _selection, _WINDOWS),
    Family(cases.SUMS, _sums, (*_WINDOWS, "31x31 SAME 1x64x64x32")),
    Family(cases.SCALED, _scaled, _WINDOWS),
    Family(cases.STOCHASTIC, _stochastic, _WINDOWS),
    Family(cases.RANKED + cases.MORPHOLOGY, _ranked, _WINDOWS),
    Family(cases.BLURRED, _blurred, _WINDOWS),
    Family(cases.LARGEST, _largest, ("to 4 over 1 8x1024x64",)),
    Family(
        cases.FRACTIONAL, fractional, ("2x2 to 56x56 16x112x112x64", "8x8 to 7x7 16x112x112x64")
    ),
    Family(cases.ADAPTIVE, _adaptive, _OUTPUTS),
    Family(cases.WHOLE, _reduction, _WHOLE),
    Family(cases.RUNNING, _running, ("over 1 8x4096x64",)),
    Family(
        cases.ELEMENTWISE,
        _elementwise,
        ("of 2 ties first 16x128x128x32", "of 2 ties split 16x128x128x32"),
    ),
    Family(
        cases.REGIONS,
        region,
        ("to 512x7x7 2x50x50x256", "to 512x7x7 ties split 2x50x50x256"),
    ),
    Family(
        cases.SEGMENTS, segment, ("to 1000 ties first 100000x64", "to 1000 ties split 100000x64")
    ),
    Family(
        cases.UNPOOL,
        _unpool,
        (
            "to 128x128 16x64x64x32",
            "to 8x8 2x4x4x3",
            "to 256x256 16x64x64x32",
            "to 512x512 16x64x64x32",
        ),
    ),
)
