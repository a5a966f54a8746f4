"""Public `plan_of`: lists the pools in the jaxpr of a function, traced once per platform, and prints them as text."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.extend import core

from jaxpool._accelerate.report import caller_index, format_frame_line, path_in_package
from jaxpool._api.kernel_passes import (
    Pass,
    Passes,
    PoolPasses,
    passes_of_equation,
    passes_of_op,
    residual_types,
)
from jaxpool._arguments.arrays import ArrayArgument, PyTree
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError, check_nesting, name_function_in_errors
from jaxpool._arguments.sizes import Size, is_int
from jaxpool._geometry.window import AdaptiveWindow, Window
from jaxpool._ops.equations import Direction, OpEquation, find_op_equations
from jaxpool._ops.op import Op
from jaxpool._ops.primitives import platform_override, tracing_platform
from jaxpool._plan.problem import PLATFORMS, Platform

# Files that call functions of the user, whose stack frames are skipped in the search for the called pool function.
SKIPPED = (
    "_api/plan_of.py",
    "_api/sharded.py",
    "_accelerate/accelerate.py",
    "_arguments/decorator.py",
)


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """One pool of a program: its caller, its residual (arrays saved for the backward pass), its passes per platform.

    `runs` lists the directions that the program runs: "value" (the output without a derivative), "forward" (the output
    and the residual), "tangent" and "backward". `passes` has the memory passes of each direction, by platform.
    """

    function: str  # the called function of this library, or "a reduction of lax" under `accelerate`
    where: str  # file, line and function of the caller
    inputs: tuple[jax.ShapeDtypeStruct, ...]
    output: jax.ShapeDtypeStruct
    examples: int  # number of examples of a `jax.vmap`; the types are those of one example
    devices: int  # number of devices of a `jax.shard_map`; the types are those of one shard
    window: Window | AdaptiveWindow | None
    kept: tuple[jax.ShapeDtypeStruct, ...]
    runs: tuple[Direction, ...]
    passes: Mapping[Platform, PoolPasses]
    # The types of the residual if the program is traced for each platform.
    residual_by_platform: Mapping[Platform, tuple[jax.ShapeDtypeStruct, ...]]

    @property
    def kept_bytes(self) -> Size:
        """The size of the residual in bytes: an int, or an expression of symbolic sizes."""
        return self.size_in_bytes(self.kept)

    def size_in_bytes(self, array_types: Sequence[jax.ShapeDtypeStruct]) -> Size:
        """The size of arrays of these types in bytes, over all examples."""
        num_bytes = [math.prod(aval.shape) * aval.dtype.itemsize for aval in array_types]
        return sum(self.examples * size for size in num_bytes)

    def __str__(self) -> str:
        return "\n".join(_plan_lines(self))

    __repr__ = __str__


class Plans(tuple[PoolPlan, ...]):
    """The pools of a program, in the order of execution."""

    __slots__ = ()

    @property
    def kept_bytes(self) -> Size:
        """The size of all residuals in bytes. An array in two residuals counts twice."""
        return sum(pool_plan.kept_bytes for pool_plan in self)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) or "no pool of jaxpool"

    __repr__ = __str__


@public
def plan_of(fn: Callable[..., PyTree]) -> Callable[..., Plans]:
    """Returns a function that lists how each pool in `fn` is computed: its caller, its residual and its passes.

    `plan_of(fn)(*args)` traces `fn(*args)` and computes nothing, so arrays can be `jax.ShapeDtypeStruct`. `fn` is a
    pool, a model, or a whole train step with `jax.grad`, `jax.jit`, `jax.lax.scan` and `jax.vmap` inside. Under
    `accelerate` the replaced reductions of lax are listed too. A pool in a loop is one row, and so are repeated calls
    from one line with arrays of one shape. Under `sharded` and inside a `jax.shard_map`, a row describes the shard of
    one of its `devices`; means over whole axes have no row there.

    A pass reads an array and writes an array, so the passes show the memory traffic of a large window. The passes
    depend on the platform, and are read from the traced kernels. A pass has `axes`, `terms` (elements per element of
    the result), `how` (the JAX primitive), `writes` and `where` (the loops and branches around the pass).

    Gradient: with `jax.grad` in `fn`, `runs` of a row contains "backward". Without `jax.grad`, the row shows the
    residual and passes that a gradient would need.

    Args:
      fn: a function. Arguments that are not arrays are passed on unchanged.

    Returns:
      A function that takes the arguments of `fn` and returns a tuple with one row per pool. A row has `function`,
      `where` (the line of the call), `inputs`, `output`, `examples` (of a `vmap`), `devices` (of a `shard_map`),
      `window`, `kept` and `kept_bytes` (the residual), `runs` (the directions in the program) and `passes`, for
      "cpu", "gpu" and "tpu". The tuple and its rows print as text.

    Raises:
      TypeError: `fn` is not callable. Errors in `fn` are raised during tracing.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> def loss(x):
      ...     return jaxpool.max_pool(x, (2, 2), (2, 2)).sum()
      >>> plans = jaxpool.plan_of(jax.grad(loss))(jax.ShapeDtypeStruct((8, 64, 64, 32), jnp.float32))
      >>> [(row.function, row.runs, row.kept_bytes) for row in plans]
      [('max_pool', ('forward', 'backward'), 262144)]
      >>> [(each.axes, each.terms, each.how) for each in plans[0].passes["gpu"].forward]
      [((1, 2), 4, 'gather')]

    References:
      `python -m jaxpool info --plan CALL` prints the row of a call.
    """
    if not callable(fn):
        hint = "Pass a pool, a model's apply or a train step."
        raise ArgumentError("fn", "a function", fn, hint, TypeError, must_be_static=False)

    @functools.wraps(fn)
    def list_pools(*args: PyTree, **kwargs: PyTree) -> Plans:
        with name_function_in_errors("plan_of"):
            for name, value in (("args", args), ("kwargs", kwargs)):
                check_nesting(name, value)
        leaves, treedef = jax.tree.flatten((args, kwargs))
        arrays = {n: leaf for n, leaf in enumerate(leaves) if _is_array_argument(leaf)}

        def call_with_arrays(arrays: Mapping[int, ArrayArgument]) -> list[PyTree]:
            merged_leaves = [arrays.get(n, leaf) for n, leaf in enumerate(leaves)]
            args, kwargs = jax.tree.unflatten(treedef, merged_leaves)
            return list(filter(_is_array_argument, jax.tree.leaves(fn(*args, **kwargs))))

        pools_per_platform = [_trace_pools(call_with_arrays, arrays, p) for p in PLATFORMS]
        return Plans(_join_platforms(rows) for rows in zip(*pools_per_platform, strict=True))

    return list_pools


def _is_array_argument(leaf: object) -> bool:
    """True if `plan_of` traces a leaf as an array. A NumPy scalar stays concrete, because it may be a size."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


def _trace_pools(
    function: Callable[..., PyTree], arrays: Mapping[int, ArrayArgument], platform: Platform
) -> list[PoolPlan]:
    """The pools of a program traced for `platform`. A pool and its derivatives from the same line are one pool."""
    with platform_override(platform):
        equations = list(find_op_equations(jax.make_jaxpr(function)(arrays).jaxpr))
    pools: dict[tuple[tuple[Op, str, str], object], list[OpEquation]] = {}
    for eqn in equations:
        if not eqn.op.is_pool:
            continue
        first_type = eqn.arg_types[0]
        known_type = None if first_type is None else (first_type.shape, first_type.dtype)
        origin = eqn.op, *_caller_line_and_function_name(eqn.eqns)
        keys = [key for key in pools if key[0] == origin and known_type in (key[1], None)]
        pools.setdefault(keys[0] if keys else (origin, known_type), []).append(eqn)
    return [_plan_row(platform, *origin, eqns) for (origin, _), eqns in pools.items()]


def _plan_row(
    platform: Platform, op: Op, caller_line: str, function_name: str, eqns: Sequence[OpEquation]
) -> PoolPlan:
    """The row of a pool, with its passes and its residual on `platform` only; `eqns` are the op and its derivatives."""
    runs = tuple(dict.fromkeys(eqn.direction for eqn in eqns))
    eqns_with_inputs = [
        eqn
        for eqn in eqns
        if (op.linear_in_x or eqn.direction in ("value", "forward")) and None not in eqn.arg_types
    ]
    if eqns_with_inputs:
        shown_eqn = eqns_with_inputs[0]
        residual = residual_types(op, shown_eqn.arg_types)
        passes = passes_of_op(platform, op, shown_eqn.arg_types, {"forward", "backward", *runs})
    else:
        shown_eqn = eqns[0]
        residual = shown_eqn.residual
        passes = PoolPasses(
            **{eqn.direction: passes_of_equation(platform, eqn.eqns[-1]) for eqn in eqns}
        )
    residual = () if shown_eqn.has_stopped_inputs else residual
    return PoolPlan(
        function=function_name or type(op).__name__,
        where=caller_line,
        inputs=shown_eqn.arg_types[: op.num_inputs],
        output=shown_eqn.outputs[0],
        examples=math.prod(shown_eqn.vmap_sizes),
        devices=_num_devices(shown_eqn.eqns),
        window=getattr(op, "window", None),
        kept=residual,
        runs=runs,
        passes={platform: passes},
        residual_by_platform={platform: residual},
    )


def _join_platforms(rows: Sequence[PoolPlan]) -> PoolPlan:
    """One row for all platforms, whose ops may differ: that of the platform in use, with the passes of all rows."""
    row_of_platform = dict(zip(PLATFORMS, rows, strict=True))
    return dataclasses.replace(
        row_of_platform.get(tracing_platform(), rows[0]),
        passes={platform: row.passes[platform] for platform, row in row_of_platform.items()},
        residual_by_platform={platform: row.kept for platform, row in row_of_platform.items()},
    )


def _num_devices(equation_path: Sequence[core.JaxprEqn]) -> int:
    """The number of devices that the shard_maps around an equation use."""
    map_params = [eqn.params for eqn in equation_path if eqn.primitive.name == "shard_map"]
    return math.prod(
        params["mesh"].shape[axis]
        for params in map_params
        for axis in params.get("newly_manual_axes", params.get("manual_axes", ()))
    )


def _caller_line_and_function_name(equation_path: Sequence[core.JaxprEqn]) -> tuple[str, str]:
    """The line that calls a pool, "" if it is unknown, and the name of the called function of jaxpool.

    The outermost of the nested equations with a frame of jaxpool decides, because jit may have cached an inner trace.
    """
    caller_line = ""
    for equation in equation_path:
        source_traceback = equation.source_info.traceback
        if source_traceback is None:
            continue
        frames = [frame for frame, _ in traceback.walk_tb(source_traceback.as_python_traceback())]
        index = caller_index(frames)
        caller_line = caller_line if index is None else format_frame_line(frames[index])
        own_frames = [
            (path_in_package(frame.f_code.co_filename), frame.f_code.co_name)
            for frame in (frames if index is None else frames[index + 1 :])
        ]
        own_frames = [each for each in own_frames if each[0] and each[0] not in SKIPPED]
        if own_frames:
            if ("_accelerate/bind.py", "dispatch") in own_frames:
                return caller_line, "a reduction of lax"
            names = (name for file, name in own_frames if file.startswith(("_api/", "compat/")))
            return caller_line, next((name for name in names if not name.startswith("_")), "")
    return caller_line, ""


def _plan_lines(pool_plan: PoolPlan) -> Iterator[str]:
    """The lines of text of a row, for readers who know JAX but not this library."""
    inputs = ", ".join(map(format_type, pool_plan.inputs))
    prefix = f"{pool_plan.where}: " if pool_plan.where else ""
    yield f"{prefix}{pool_plan.function} of {inputs} to {format_type(pool_plan.output)}"
    if pool_plan.examples != 1:
        yield f"  {'vmap':12}{pool_plan.examples} examples of these"
    if pool_plan.devices != 1:
        yield f"  {'shard':12}of one of {pool_plan.devices} devices: these are the types of its part"
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


def format_type(array: jax.ShapeDtypeStruct) -> str:
    """The type of an array in the notation of jax: float32[8,40,40,128]."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _format_window(window: Window | AdaptiveWindow) -> str:
    """The window shape and the axes, with strides, dilation and padding where they are not the defaults."""
    if isinstance(window, AdaptiveWindow):
        if window.is_padded:
            return f"{tuple(window.output_shape)} windows of about equal lengths"
        window = window.as_window()
    parts = [str(tuple(window.window_shape))]
    strides = tuple(dim.stride for dim in window.dims)
    dilation = tuple(dim.dilation for dim in window.dims)
    padding = tuple((dim.low, dim.high) for dim in window.dims)
    parts += [f"strides {strides}"] * (set(strides) != {1})
    parts += [f"window_dilation {dilation}"] * (set(dilation) != {1})
    parts += [f"padding {padding}"] * any(map(any, padding))
    return ", ".join([*parts, f"axes {tuple(window.axes)}"])


def _format_bytes(num_bytes: Size) -> str:
    """A number of bytes in a suitable unit; an expression of symbolic sizes in bytes."""
    if not is_int(num_bytes):
        return f"{num_bytes} bytes"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def _format_residual(pool_plan: PoolPlan) -> str:
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
