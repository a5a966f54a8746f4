"""One pass of a plan, and those of functions that have no windows: boxes and segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxpool._cli._case import Case
from jaxpool._plan.problem import Problem


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


def region(case: Case, problem: Problem) -> Explained:
    """Cells of boxes: products, or pixel after pixel of all cells."""
    sizes = [case.shape[axis] or 0 for axis in (1, 2)]
    if case.function == "roi_align":
        notes = ("a group of boxes of one image at a time",)
        return (
            "input",
            [Stage((i,), sizes[i - 1], "multiplied", notes=notes) for i in (1, 2)],
            [],
            [],
            [],
        )
    taken = Stage((1, 2), 1, "gathered", notes=("for each pixel of the largest cell",))
    back = [Stage((i,), case.to[i], "compared") for i in (1, 2)]
    if case.ties == "split":
        return "both", [taken], back[::-1], back, []
    return "position", [taken], [Stage((1, 2), 1, "gathered")], back, []


def segment(case: Case, problem: Problem) -> Explained:
    scattered, gathered = (Stage((0,), 1, how) for how in ("scattered", "gathered"))
    sums = scattered if problem.platform == "cpu" else Stage((0,), 1, "sorted")
    if case.function == "segment_mean":
        return "nothing", [sums], [sums], [gathered], []
    split = case.ties == "split"
    keeps = "element bits" if split else "position"
    return keeps, [scattered, gathered, scattered], [sums if split else gathered], [gathered], []
