"""One pass of a plan, and those of functions whose windows lie by chance, or that have none: boxes and segments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from jaxpool._cli._case import Case
from jaxpool._geometry.access import Phases, terms
from jaxpool._geometry.window import Window
from jaxpool._ops.fractional import Fractional, RandomAxis
from jaxpool._plan.layout import Layout
from jaxpool._plan.max_pool import Pass, plan_max
from jaxpool._plan.problem import Problem
from jaxpool._plan.sum_pool import SumPlan, plan_sum


@dataclasses.dataclass(frozen=True)
class Stage:
    """One pass over an array along `axes`: so many `terms` meet at a position, at most."""

    axes: tuple[int, ...]
    terms: int
    reading: str  # how they are read
    phases: int = 1
    regions: int = 1
    kept: bool = False  # computed once, whatever reads it
    notes: tuple[str, ...] = ()


Explained = tuple[str, Sequence[Stage], Sequence[Stage], Sequence[Stage], Sequence[str]]


def stage(
    axes: Sequence[int], sources: Sequence[Sequence[Phases]], layout: Layout, last: bool
) -> Stage:
    """A pass in which each of `sources` is read along `axes`. All passes but the last are kept, and all tables."""
    count = sum(math.prod(map(terms, source)) for source in sources)
    notes = []
    if layout.minor_last:
        notes.append("phases of the minor axis joined last")
    ends = zip(layout.cuts, sources[0], strict=bool(layout.cuts))
    if any(cuts[-1].stop > max(access.out for access in along) for cuts, along in ends):
        notes.append("a turn of phases too many, cut off")
    phases, kept = math.prod(map(len, sources[0])), not last or layout.reading == "tables"
    return Stage(tuple(axes), count, layout.reading, phases, layout.regions, kept, tuple(notes))


def of_steps(passes: Sequence[Pass], *, back: bool = False) -> list[Stage]:
    """The passes of a selection, from input to output or back."""
    stages = []
    for one in passes:
        phases, last = one.step.transposed if back else one.step.phases, one is passes[-1]
        stages.append(stage(one.step.axes, [phases], one.layout, last))
    return stages


def of_sums(plan: SumPlan) -> list[Stage]:
    """The passes of a sum."""
    stages = []
    if plan.whole:
        whole = Window(plan.whole)
        repeated, reduced = (
            Stage(whole.axes, 1, "repeated"),
            Stage(whole.axes, whole.size, "reduced"),
        )
        stages.append(repeated if plan.transposed else reduced)
    for group in map(Window, plan.reduced):
        stages.append(Stage(group.axes, group.size, "reduce_window"))
    stages += [Stage((dim.axis,), 1, "repeated") for dim in plan.separate]
    for one in plan.passes:
        stages.append(stage(one.axes, one.sources, one.layout, one is plan.passes[-1]))
    return stages


def folds(window: Window) -> list[Stage]:
    """The folds of a window, an axis after another."""
    return [Stage((dim.axis,), dim.window, "folded", kept=True) for dim in window.dims[::-1]]


def fractional(case: Case, problem: Problem) -> Explained:
    """Windows that random numbers place."""
    dims = [
        RandomAxis(dim.axis, case.shape[dim.axis] or 0, dim.window, dim.out)
        for dim in case.window.dims
    ]
    problem = dataclasses.replace(problem, window=Fractional(tuple(dims)).window)
    note = ["windows of all places at first; which of them chance placed is masked"]
    ahead = [Stage((dim.axis,), len(dim.places_of()), "gathered") for dim in dims]
    back = [Stage((dim.axis,), len(dim.windows_at()), "gathered") for dim in dims[::-1]]
    if case.function == "fractional_avg_pool":
        sums, spread = (of_sums(plan_sum(problem, transposed=turned)) for turned in (False, True))
        return "nothing", [*sums, *ahead], [*sums, *ahead], [*back, *spread], note
    plan = plan_max(problem)
    tangent, cotangent = of_steps(plan.tangent[::-1]), of_steps(plan.backward, back=True)
    forward = [*of_steps(plan.forward), *ahead]
    return "tap", forward, [*tangent, *ahead], [*back, *cotangent], note


def region(case: Case, problem: Problem) -> Explained:
    """Cells of boxes: products, or pixel after pixel of all cells."""
    sizes = [case.shape[axis] or 0 for axis in (1, 2)]
    if case.function == "roi_align":
        notes = ("a group of boxes of one image at a time",)
        ways = [Stage((i,), sizes[i - 1], "multiplied", notes=notes) for i in (1, 2)]
        if problem.platform != "cpu":
            return "nothing", ways, ways, ways[::-1], []
        taken = Stage(
            (1, 2), 16, "gathered", notes=("two points an axis, each between two pixels",)
        )
        tiles = Stage((1, 2), 4, "gathered", notes=("a tile with each box that reaches it",))
        return "nothing", [taken], [taken], [tiles], ["matrix products with more than 4 samples"]
    taken = Stage((1, 2), 1, "gathered", notes=("a pixel of each cell at a time",))
    back = [Stage((1, 2), 4, "compared", notes=("a tile at a time with each box that reaches it",))]
    if case.ties == "split":
        return "both", [taken], [taken], back, []
    return "position", [taken, taken], [Stage((1, 2), 1, "gathered")], back, []


def segment(case: Case, problem: Problem) -> Explained:
    scattered, gathered = (Stage((0,), 1, how) for how in ("scattered", "gathered"))
    sums = scattered if problem.platform == "cpu" else Stage((0,), 1, "sorted")
    if case.function == "segment_mean":
        return "counts", [sums], [sums], [gathered], []
    split = case.ties == "split"
    keeps = "element bits" if split else "position"
    return keeps, [scattered, gathered, scattered], [sums if split else gathered], [gathered], []
