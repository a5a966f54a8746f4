"""Stages of what plans hold: each pass over an array, in a few words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from jaxpool._geometry.access import Phases, terms
from jaxpool._geometry.window import Window
from jaxpool._plan.layout import Layout
from jaxpool._plan.max_pool import Pass
from jaxpool._plan.sum_pool import SumPlan


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
        one_stage = stage(one.step.axes, [phases], one.layout, last)
        if back and not last and one.lower not in (None, one.layout):
            index = stage(one.step.axes, [phases], one.lower, last)
            notes = (
                *one_stage.notes,
                *[f"the index {word}" for word in (index.reading, *index.notes)],
            )
            one_stage = dataclasses.replace(one_stage, notes=notes)
        stages.append(one_stage)
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
