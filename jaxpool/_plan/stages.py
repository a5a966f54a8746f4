"""Passes of an op in the form that `jaxpool.plan_of` prints, one `Stage` per pass of a kernel.

The `plan` method of each op builds them. Windowed stages are built from the object that the kernel reads (a `Pass` or
a `SumPass`), so that the report matches the computation. The plans themselves are made by the other modules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from jaxpool._geometry.access import Phases, max_elements_per_position
from jaxpool._geometry.window import Window
from jaxpool._plan.layout import Layout
from jaxpool._plan.max_pool import Pass
from jaxpool._plan.sum_pool import SumPlan

# How a pass reads its elements, or the operation that it applies to them.
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
    """One pass over an array along `axes`. Each element of the result combines at most `terms` elements."""

    axes: tuple[int, ...]
    terms: int
    how: How
    phases: int = 1  # interleaved parts of the result, one loop per part
    regions: int = 1  # adjacent parts of the result, one loop per part
    # The result is written to memory, not recomputed by each consumer.
    stored: bool = False
    note: str = ""
    # The object that the kernel reads.
    read: Any = dataclasses.field(default=None, compare=False, repr=False)


Stages = tuple[Stage, ...]


@dataclasses.dataclass(frozen=True)
class OpPlan:
    """The passes of an op on a platform.

    `forward` computes the output and the residual, `tangent` the output tangent and `backward` the input cotangent.
    `value` computes the output if no derivative is taken; None means the passes of `forward`. `why` holds sentences
    for the reader of the plan.
    """

    forward: Stages = ()
    tangent: Stages = ()
    backward: Stages = ()
    value: Stages | None = None
    why: tuple[str, ...] = ()


def linear_plan(
    forward: Sequence[Stage], backward: Sequence[Stage], *why: str, value: Stages | None = None
) -> OpPlan:
    """The plan of a linear op: tangents take the forward passes."""
    return OpPlan(tuple(forward), tuple(forward), tuple(backward), value, why)


def of_layout(
    axes: Sequence[int],
    sources: Sequence[Sequence[Phases]],
    layout: Layout,
    read: Any,
    *,
    last: bool,
) -> Stage:
    """A pass that reads each of `sources` along `axes`. A `last` pass is stored only if it reads through tables."""
    count = sum(math.prod(map(max_elements_per_position, source)) for source in sources)
    phases, stored = math.prod(map(len, sources[0])), not last or layout.reading == "tables"
    how, regions = layout.reading, layout.regions
    return Stage(tuple(axes), count, how, phases, regions, stored, read=read)


def of_steps(passes: Sequence[Pass], *, back: bool = False) -> Stages:
    """The passes of a selection, or with `back` of its transpose."""
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
    """The passes of a sum or of its transpose."""
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
    """The folds of a window, one axis at a time, the minor axis first."""
    return tuple(Stage((dim.axis,), dim.window, "folded", stored=True) for dim in window.dims[::-1])


def taps(window: Window, how: How = "padded", note: str = "") -> Stages:
    """One pass over all taps of a window."""
    return (Stage(window.axes, window.size, how, note=note),)


def along(axes: Sequence[int], how: How, terms: int = 1, note: str = "") -> Stages:
    """One pass along `axes`."""
    return (Stage(tuple(axes), terms, how, note=note),)
