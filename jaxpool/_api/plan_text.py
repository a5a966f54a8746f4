"""Text of each `PoolPlan` of `plan_of`, for readers who know JAX but not this library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from jaxpool._api.kernel_passes import Pass, Passes, PoolPasses
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.problem import PLATFORMS


def plan_lines(pool_plan: Any) -> Iterator[str]:
    """The lines of text of one `PoolPlan`."""
    inputs = ", ".join(map(format_type, pool_plan.inputs))
    prefix = f"{pool_plan.where}: " if pool_plan.where else ""
    yield f"{prefix}{pool_plan.function} of {inputs} to {format_type(pool_plan.output)}"
    if pool_plan.examples != 1:
        yield f"  {'vmap':12}{pool_plan.examples} examples of these"
    if pool_plan.devices != 1:
        text = f"of one of {pool_plan.devices} devices: these are the types of its part"
        yield f"  {'shard':12}{text}"
    if pool_plan.window is not None and pool_plan.window.dims:
        yield f"  {'window':12}{_format_window(pool_plan.window)}"
    yield f"  {'keeps':12}{_format_residual(pool_plan)}"
    for platform, residual in pool_plan.residual_by_platform.items():
        if residual != pool_plan.kept:
            size_text = _format_bytes(pool_plan.size_in_bytes(residual))
            array_types = ", ".join(map(format_type, residual)) or "nothing"
            yield f"  {'':12}where it is traced for {platform}: {array_types}: {size_text}"
    platforms_by_lines: dict[tuple[str, ...], list[str]] = {}
    for platform, pool_passes in pool_plan.passes.items():
        platforms_by_lines.setdefault(tuple(_direction_lines(pool_passes)), []).append(platform)
    for lines, platforms in platforms_by_lines.items():
        yield "  everywhere" if len(platforms) == len(PLATFORMS) else f"  {' and '.join(platforms)}"
        yield from lines


def format_type(array: Any) -> str:
    """The type of an array in the notation of jax: float32[8,40,40,128]."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _format_window(window: Window) -> str:
    """The window shape and the axes, with strides, dilation and padding where they are not the defaults."""
    if any(isinstance(dim, RaggedAxis) for dim in window.dims):
        return f"{tuple(window.output_shape)} windows of about equal lengths"
    parts = [str(tuple(window.window_shape))]
    strides = tuple(dim.stride for dim in window.dims)
    dilation = tuple(dim.dilation for dim in window.dims)
    padding = tuple((dim.low, dim.high) for dim in window.dims)
    parts += [f"strides {strides}"] * (set(strides) != {1})
    parts += [f"window_dilation {dilation}"] * (set(dilation) != {1})
    parts += [f"padding {padding}"] * any(map(any, padding))
    return ", ".join([*parts, f"axes {tuple(window.axes)}"])


def _format_bytes(num_bytes: Any) -> str:
    """A number of bytes in a suitable unit; an expression of symbolic sizes in bytes."""
    if not is_int(num_bytes):
        return f"{num_bytes} bytes"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def _format_residual(pool_plan: Any) -> str:
    """The types and the total size of the arrays that a pool saves for its backward pass."""
    if not pool_plan.kept:
        return "nothing from forward to backward"
    takes_gradient = {"forward", "backward", "tangent"} & {*pool_plan.runs}
    lifetime = "from forward to backward" if takes_gradient else "where a gradient is taken"
    return f"{', '.join(map(format_type, pool_plan.kept))} {lifetime}: {_format_bytes(pool_plan.kept_bytes)}"


def _direction_lines(pool_passes: PoolPasses) -> Iterator[str]:
    """The passes of each direction. `value` and `tangent` are left out if they equal `forward`."""
    for direction, passes in vars(pool_passes).items():
        if direction not in ("value", "tangent") or passes != pool_passes.forward:
            for n, line in enumerate(_pass_lines(passes)):
                yield f"    {'' if n else direction:10}{line}"


def _pass_lines(passes: Passes) -> list[str]:
    """One line per pass. Consecutive equal passes share a line, and so do more than 3 passes of one loop or branch."""
    lines = []
    for where, group in itertools.groupby(passes, key=lambda each: each.where.partition(", ")[0]):
        group_passes = [*group]
        if where and len(group_passes) > 3:
            lines.append(f"{len(group_passes)} passes {where}")
            continue
        for line, equal_lines in itertools.groupby(map(_format_pass, group_passes)):
            count = len([*equal_lines])
            lines.append(f"{line}, {count} times" if count > 1 else line)
    return lines


def _format_pass(array_pass: Pass) -> str:
    """The text of one pass: how the pass reads elements, along which axes, and the types of its results."""
    axes = f" along axes {', '.join(map(str, array_pass.axes))}" if array_pass.axes[1:] else ""
    axes = axes or (f" along axis {array_pass.axes[0]}" if array_pass.axes else "")
    if array_pass.how in ("slice", "gather"):
        text = f"{array_pass.terms} {array_pass.how}{'s' * (array_pass.terms != 1)}{axes}"
    else:
        text = array_pass.how + f" of {array_pass.terms} elements" * (array_pass.terms != 1) + axes
    types = ", ".join(map(format_type, array_pass.writes))
    result_text = f" to {types}" if types else ", not stored"
    return f"{text}{result_text} {array_pass.where}".rstrip()
