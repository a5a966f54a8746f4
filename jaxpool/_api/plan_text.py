"""Text of the rows of `plan_of`, for readers who know JAX but not this library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.problem import PLATFORMS
from jaxpool._plan.stages import How, OpPlan, Stage, Stages

# For each way to read an array, its name in the text and an explanation for the legend.
HOWS: dict[How, tuple[str, str]] = {
    "padded": (
        "by slices",
        "shifted slices of the array, which is padded first where windows reach beyond it",
    ),
    "bounded": ("in place", "shifted slices without a padded copy; the loop tests bounds"),
    "tables": ("through tables", "one loop, which looks up the position of each element"),
    "reduced": ("as a reduction", "one window covers these axes"),
    "reduce_window": ("by lax.reduce_window", "one instruction of XLA reads the array once"),
    "blocks": ("as blocks of a grid", "each block is a window, filled up to the longest"),
    "copied": ("laid side by side", "each window gets its own copy of its elements"),
    "walked": ("tap by tap", "a loop that the program holds once, however large the window"),
    "repeated": ("repeated", "each element lies in one window"),
    "gathered": ("gathered", "where each lies, a table or an index says"),
    "scattered": ("scattered", "where each goes, an index says"),
    "select_and_scatter": (
        "by select_and_scatter",
        "one instruction of XLA finds the chosen elements in x, which is kept, and sends cotangents to them",
    ),
    "multiplied": ("as matrix products", "one matrix per box holds the weight of each pixel"),
    "compared": ("compared with positions", "each element with those that were chosen"),
    "ordered": ("sorted", "a sort of the whole axis"),
    "sorted": ("sorted and added in pairs", "added in an order that the ids alone decide"),
    "folded": ("folded by halves", "joined by more than a maximum or a sum"),
    "running": (
        "stretch by stretch",
        "each pass reaches several times as far along the axis as the one before",
    ),
    "elementwise": ("element by element", "only elements at one position meet"),
}


def lines_of(row: Any) -> Iterator[str]:
    """The lines of text of one row."""
    inputs = ", ".join(map(of_type, row.inputs))
    where = f"{row.where}: " if row.where else ""
    yield f"{where}{row.function} of {inputs} to {of_type(row.output)}"
    if row.examples != 1:
        yield _line("vmap", f"{row.examples} examples of these")
    if row.devices != 1:
        yield _line("shard", f"of one of {row.devices} devices: these are the types of its part")
    if row.window is not None and row.window.dims:
        yield _line("window", of_window(row.window))
    yield _line("keeps", of_kept(row))
    for platform, kept in row.kept_on.items():
        if kept != row.kept:
            size = of_bytes(row.bytes_of(kept))
            arrays = ", ".join(map(of_type, kept)) or "nothing"
            yield _line("", f"where it is traced for {platform}: {arrays}: {size}")
    for platforms, passes in passes_by_platform(row):
        yield f"  {platforms}"
        for way, lines in passes:
            yield from (
                f"    {title:10}{words}"
                for title, words in zip([way, *[""] * len(lines)], lines, strict=False)
            )


def legend(rows: Sequence[Any]) -> Iterator[str]:
    """An explanation of each way to read an array that occurs in the text."""
    used = {
        stage.how
        for row in rows
        for plan in row.passes.values()
        for stages in ways_of(plan, row.runs).values()
        for stage in stages
    }
    yield from (f"{how}: {why}" for key, (how, why) in HOWS.items() if key in used)


def of_type(array: Any) -> str:
    """The type of an array in the notation of jax: float32[8,40,40,128]."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def of_window(window: Window) -> str:
    """The window shape and the axes, with strides, dilation and padding where they are not the defaults."""
    if any(isinstance(dim, RaggedAxis) for dim in window.dims):
        return f"{tuple(window.output_shape)} windows of about equal lengths"
    words = [str(tuple(window.window_shape))]
    strides = tuple(dim.stride for dim in window.dims)
    dilation = tuple(dim.dilation for dim in window.dims)
    padding = tuple((dim.low, dim.high) for dim in window.dims)
    words += [f"strides {strides}"] * (set(strides) != {1})
    words += [f"window_dilation {dilation}"] * (set(dilation) != {1})
    words += [f"padding {padding}"] * any(map(any, padding))
    return ", ".join([*words, f"axes {tuple(window.axes)}"])


def of_bytes(count: Any) -> str:
    """A number of bytes in a suitable unit; an expression of symbolic sizes as it is."""
    if not is_int(count):
        return f"{count} bytes"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def of_kept(row: Any) -> str:
    """The types and the size of the residual."""
    if not row.kept:
        return "nothing from forward to backward"
    taken = {"forward", "backward", "tangent"} & {*row.runs}
    when = "from forward to backward" if taken else "where a gradient is taken"
    return f"{', '.join(map(of_type, row.kept))} {when}: {of_bytes(row.kept_bytes)}"


def passes_by_platform(row: Any) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """For each group of platforms with equal text, the lines of each direction."""
    groups: list[tuple[list[str], list[tuple[str, list[str]]]]] = []
    for platform, plan in row.passes.items():
        text = [
            (way, _lines_of_stages(stages) or ["one expression, which XLA compiles as it finds it"])
            for way, stages in ways_of(plan, row.runs).items()
        ]
        text += [("", list(plan.why))] * bool(plan.why)
        same = next((names for names, other in groups if other == text), None)
        if same is None:
            groups.append(([platform], text))
        else:
            same.append(platform)
    return [
        ("everywhere" if len(names) == len(PLATFORMS) else " and ".join(names), text)
        for names, text in groups
    ]


def ways_of(plan: OpPlan, runs: Sequence[str]) -> dict[str, Stages]:
    """The passes of each direction in the text: forward and backward always, others if they run and differ."""
    ways: dict[str, Stages] = {}
    if plan.value is not None and plan.value != plan.forward and "value" in runs:
        ways["value"] = plan.value
    ways["forward"] = plan.forward
    if "tangent" in runs and plan.tangent != plan.forward:
        ways["tangent"] = plan.tangent
    ways["backward"] = plan.backward
    return ways


def _lines_of_stages(stages: Stages) -> list[str]:
    """One line per pass; equal passes in a row share a line."""
    lines = [(line, len([*equal])) for line, equal in itertools.groupby(map(of_stage, stages))]
    return [f"{line}, {count} passes" if count > 1 else line for line, count in lines]


def of_stage(stage: Stage) -> str:
    """One pass: its axes, the number of elements per result, and how they are read."""
    elements = f"{stage.terms} element{'s' * (stage.terms > 1)} per result"
    axes = f"axes {', '.join(map(str, stage.axes))}: " if stage.axes[1:] else ""
    axes = axes or (f"axis {stage.axes[0]}: " if stage.axes else "")
    note = f" ({stage.note})" if stage.note else ""
    return f"{axes}{elements}, {HOWS[stage.how][0]}{note}"


def _line(title: str, text: str) -> str:
    return f"  {title:12}{text}"
