"""The passes of an op in words that `jaxpool.plan_of` prints: a `Stage` each, one for each pass that a kernel makes.

A stage is made from the object that the kernel reads (a `Pass`, a `SumPass`), and holds it as `read`, so that it cannot
say something else than is done. Nothing is decided here: the plans of `max_pool.py`, `sum_pool.py` and others do that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from jaxpool._geometry.access import Phases, terms
from jaxpool._geometry.window import Window
from jaxpool._plan.layout import Layout
from jaxpool._plan.max_pool import Pass
from jaxpool._plan.sum_pool import SumPlan

# How the elements of a pass are read, or what it does to them.
How = Literal[
    "padded",
    "bounded",
    "tables",
    "reduced",
    "reduce_window",
    "blocks",
    "copied",
    "walked",
    "repeated",
    "gathered",
    "scattered",
    "select_and_scatter",
    "multiplied",
    "compared",
    "ordered",
    "sorted",
    "folded",
    "running",
    "elementwise",
]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One pass over an array along `axes`, which makes each element of its result of at most `terms` elements."""

    axes: tuple[int, ...]
    terms: int
    how: How
    phases: int = 1  # parts of the result that are interleaved, each by a loop of its own
    regions: int = 1  # parts of the result next to each other, each by a loop of its own
    # The result is written to memory, and not computed again by each of its readers.
    stored: bool = False
    note: str = ""
    # The object that the kernel reads.
    read: Any = dataclasses.field(default=None, compare=False, repr=False)


Stages = tuple[Stage, ...]


@dataclasses.dataclass(frozen=True)
class OpPlan:
    """The passes of an op on a platform.

    `forward` gives the output and what is kept for the derivative, `tangent` sends a tangent forward and `backward` a
    cotangent back. `value` gives the output where no derivative is taken; None says that it is as `forward`. `why` are
    sentences for whoever reads the plan.
    """

    forward: Stages = ()
    tangent: Stages = ()
    backward: Stages = ()
    value: Stages | None = None
    why: tuple[str, ...] = ()


def linear_plan(
    forward: Sequence[Stage], backward: Sequence[Stage], *why: str, value: Stages | None = None
) -> OpPlan:
    """The plan of an op whose tangents go as its values do."""
    return OpPlan(tuple(forward), tuple(forward), tuple(backward), value, why)


def of_layout(
    axes: Sequence[int],
    sources: Sequence[Sequence[Phases]],
    layout: Layout,
    read: Any,
    *,
    last: bool,
) -> Stage:
    """A pass in which each of `sources` is read along `axes`. All passes but the last are stored, and all tables."""
    count = sum(math.prod(map(terms, source)) for source in sources)
    phases, stored = math.prod(map(len, sources[0])), not last or layout.reading == "tables"
    how, regions = layout.reading, layout.regions
    return Stage(tuple(axes), count, how, phases, regions, stored, read=read)


def of_steps(passes: Sequence[Pass], *, back: bool = False) -> Stages:
    """The passes of a selection, from input to output or back."""
    return tuple(
        of_layout(
            one.step.axes,
            [one.step.transposed if back else one.step.phases],
            one.layout,
            one,
            last=one is passes[-1],
        )
        for one in passes
    )


def of_sums(plan: SumPlan) -> Stages:
    """The passes of a sum."""
    stages = []
    if plan.whole:
        whole = Window(plan.whole)
        reduced, repeated = (
            Stage(whole.axes, whole.size, "reduced"),
            Stage(whole.axes, 1, "repeated"),
        )
        stages.append(dataclasses.replace(repeated if plan.transposed else reduced, read=plan))
    for group in map(Window, plan.reduced):
        stages.append(Stage(group.axes, group.size, "reduce_window", read=plan))
    stages += [Stage((dim.axis,), 1, "repeated", read=plan) for dim in plan.separate]
    for one in plan.passes:
        last = one is plan.passes[-1]
        stages.append(of_layout(one.axes, one.sources, one.layout, one, last=last))
    return tuple(stages)


def folds(window: Window) -> Stages:
    """The folds of a window, an axis after another."""
    return tuple(Stage((dim.axis,), dim.window, "folded", stored=True) for dim in window.dims[::-1])


def taps(window: Window, how: How = "padded", note: str = "") -> Stages:
    """One pass over all taps of a window."""
    return (Stage(window.axes, window.size, how, note=note),)


def along(axes: Sequence[int], how: How, terms: int = 1, note: str = "") -> Stages:
    """One pass along `axes`."""
    return (Stage(tuple(axes), terms, how, note=note),)
