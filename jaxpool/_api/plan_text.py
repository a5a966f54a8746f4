"""Text of the rows of `plan_of`, for readers who know JAX but not this library."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from jaxpool._api.kernel_passes import Pass, Passes, PoolPasses
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.problem import PLATFORMS


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
        text = [(way, _lines_of_passes(passes)) for way, passes in ways_of(plan).items()]
        same = next((names for names, other in groups if other == text), None)
        if same is None:
            groups.append(([platform], text))
        else:
            same.append(platform)
    return [
        ("everywhere" if len(names) == len(PLATFORMS) else " and ".join(names), text)
        for names, text in groups
    ]


def ways_of(plan: PoolPasses) -> dict[str, Passes]:
    """The passes of each direction in the text. The value and the tangent are left out if they equal `forward`."""
    ways = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    same = [way for way in ("value", "tangent") if ways[way] == plan.forward]
    return {way: passes for way, passes in ways.items() if passes and way not in same}


def _lines_of_passes(passes: Passes) -> list[str]:
    """One line per pass; equal passes in a row share a line, and so do more than 3 passes of a loop or a branch."""
    lines = []
    for where, group in itertools.groupby(passes, key=lambda each: each.where.partition(", ")[0]):
        inside = [*group]
        if where and len(inside) > 3:
            lines.append(f"{len(inside)} passes {where}")
            continue
        for line, equal in itertools.groupby(map(of_pass, inside)):
            count = len([*equal])
            lines.append(f"{line}, {count} times" if count > 1 else line)
    return lines


def of_pass(one: Pass) -> str:
    """One pass: how it reads elements, along which axes, and the types of its results."""
    axes = f" along axes {', '.join(map(str, one.axes))}" if one.axes[1:] else ""
    axes = axes or (f" along axis {one.axes[0]}" if one.axes else "")
    if one.how in ("slice", "gather"):
        words = f"{one.terms} {one.how}{'s' * (one.terms != 1)}{axes}"
    else:
        words = one.how + f" of {one.terms} elements" * (one.terms != 1) + axes
    writes = f" to {', '.join(map(of_type, one.writes))}" if one.writes else ", not stored"
    return f"{words}{writes}{' ' * bool(one.where)}{one.where}"


def _line(title: str, text: str) -> str:
    return f"  {title:12}{text}"
