"""Public `plan_of`: lists the pools in a function, with their residuals and passes.

It traces the function once per platform and finds the equations of our primitives in the jaxpr. `kernel_passes` reads
the passes of each op from the jaxpr of its kernels, and `plan_text` prints the rows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxpool._accelerate.report import in_package, is_own, is_users, line
from jaxpool._api import plan_text
from jaxpool._api.kernel_passes import PoolPasses, passes_of_equation, passes_of_op, residual_types
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window
from jaxpool._ops.equations import Bound, Direction, ops_in
from jaxpool._ops.linear_map import traced_for, tracing_for
from jaxpool._ops.op import Op
from jaxpool._plan.problem import PLATFORMS, Platform

# Files that call functions of the user. A pool that such a function calls belongs to the user.
CALL_OTHERS = (
    "_api/plan_of.py",
    "_api/sharded.py",
    "_accelerate/accelerate.py",
    "_arguments/calls.py",
)
# Directions whose passes a row has even if the program does not run them.
SHOWN: tuple[Direction, ...] = ("forward", "backward")


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """One pool of a program: its caller, its residual, and its passes on each platform.

    `runs` lists what the program runs: "value" without a derivative, "forward" with a derivative, "tangent" and
    "backward". `passes` has a plan per platform, with a tuple of passes for each of these.
    """

    function: str  # the called function of this library, or "a reduction of lax" under `accelerate`
    where: str  # file, line and function of the caller
    inputs: tuple[jax.ShapeDtypeStruct, ...]
    output: jax.ShapeDtypeStruct
    examples: int  # of a `jax.vmap`; the types are those of one example
    devices: int  # of a `jax.shard_map`; the types are those of one shard
    window: Window | None
    kept: tuple[jax.ShapeDtypeStruct, ...]
    runs: tuple[Direction, ...]
    passes: Mapping[Platform, PoolPasses]
    kept_on: Mapping[Platform, tuple[jax.ShapeDtypeStruct, ...]]  # when traced for that platform

    @property
    def kept_bytes(self) -> Any:
        """The size of the residual in bytes: an int, or an expression of symbolic sizes."""
        return self.bytes_of(self.kept)

    def bytes_of(self, kept: Sequence[jax.ShapeDtypeStruct]) -> Any:
        """The size of arrays of these types in bytes, over all examples."""
        return sum(self.examples * math.prod(each.shape) * each.dtype.itemsize for each in kept)

    def __str__(self) -> str:
        return "\n".join(plan_text.lines_of(self))

    __repr__ = __str__


class Plans(tuple[PoolPlan, ...]):
    """The pools of a program, in the order of execution."""

    __slots__ = ()

    @property
    def kept_bytes(self) -> Any:
        """The size of all residuals in bytes. An array in two residuals counts twice."""
        return sum(each.kept_bytes for each in self)

    def __str__(self) -> str:
        if not self:
            return "no pool of jaxpool"
        return "\n\n".join(map(str, self))

    __repr__ = __str__


@public
def plan_of(fn: Callable[..., Any]) -> Callable[..., Plans]:
    """Returns a function that lists how each pool in `fn` is computed: its caller, its residual and its passes.

    `plan_of(fn)(*args)` traces `fn(*args)` and computes nothing, so arrays can be `jax.ShapeDtypeStruct`. `fn` is a
    pool, a model, or a whole train step with `jax.grad`, `jax.jit`, `jax.lax.scan` and `jax.vmap` inside. Under
    `accelerate` the replaced reductions of lax are listed too. A pool in a loop is one row, and so are repeated calls
    from one line with arrays of one shape. Under `sharded` and inside a `jax.shard_map`, a row describes the shard of
    one of its `devices`; means over whole axes have no row there.

    A pass reads an array and writes an array, so the passes show the memory traffic of a large window. They depend on
    the platform, and are read from the traced kernels. A pass has `axes`, `terms` (the elements per element of the
    result), `how` (the JAX primitive that reads them), `writes` and `where` (the loops and branches around it).

    Gradient: with `jax.grad` in `fn`, `runs` of a row contains "backward". Without it, the row shows the residual and
    passes that a gradient would need.

    Args:
      fn: a function. Arguments that are not arrays are passed on unchanged.

    Returns:
      A function that takes the arguments of `fn` and returns a tuple with one row per pool. A row has `function`,
      `where` (the line of the call), `inputs`, `output`, `examples` (of a `vmap`), `devices` (of a `shard_map`),
      `window`, `kept` and `kept_bytes` (the residual), `runs` (the directions in the program) and `passes`, for
      "cpu", "gpu" and "tpu". The tuple and its rows print as text.

    Raises:
      TypeError: `fn` is not callable. Errors in `fn` are raised while it is traced.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> def loss(x):
      ...     return jaxpool.max_pool(x, (2, 2), (2, 2)).sum()
      >>> plans = jaxpool.plan_of(jax.grad(loss))(jax.ShapeDtypeStruct((8, 64, 64, 32), jnp.float32))
      >>> [(row.function, row.runs, row.kept_bytes) for row in plans]
      [('max_pool', ('forward', 'backward'), 262144)]
      >>> [(each.axes, each.terms, each.how) for each in plans[0].passes["gpu"].forward]
      [((1, 2), 4, 'slice')]

    References:
      `python -m jaxpool info --plan CALL` prints the same for one call.
    """
    if not callable(fn):
        hint = "Pass a pool, a model's apply or a train step."
        raise ArgumentError("fn", "a function", fn, hint, TypeError)

    @functools.wraps(fn)
    def planned(*args: Any, **kwargs: Any) -> Plans:
        leaves, tree = jax.tree.flatten((args, kwargs))
        traced = [*map(_is_array, leaves)]

        def called(*arrays: Any) -> Any:
            values = iter(arrays)
            merged = [
                next(values) if one else leaf for leaf, one in zip(leaves, traced, strict=True)
            ]
            args, kwargs = jax.tree.unflatten(tree, merged)
            return [each for each in jax.tree.leaves(fn(*args, **kwargs)) if _is_array(each)]

        arrays = [leaf for leaf, one in zip(leaves, traced, strict=True) if one]
        return Plans(_rows({platform: _traced(called, arrays, platform) for platform in PLATFORMS}))

    return planned


def _is_array(leaf: Any) -> bool:
    """True if a leaf is traced. A NumPy scalar is not: it may be a size."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


@dataclasses.dataclass(frozen=True)
class _Pool:
    """An op and its derivatives, bound by one line of a program."""

    op: Op
    where: str
    function: str
    every: Sequence[Bound]

    @property
    def first(self) -> Bound:
        """The first equation of the op, of its value before its derivative."""
        return next(filter(self._ahead, self.every), self.every[0])

    @property
    def runs(self) -> tuple[Direction, ...]:
        """The directions that the program runs."""
        return tuple(dict.fromkeys(bound.direction for bound in self.every))

    @property
    def kept(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The types of the residual."""
        first = self.first
        if first.stopped:
            return ()
        return residual_types(self.op, first.types) if self._ahead(first) else first.residual

    def passes(self, platform: Platform) -> PoolPasses:
        """The passes on a platform; those of the bound derivatives only, if the types of all inputs are unknown."""
        if self._ahead(self.first):
            return passes_of_op(platform, self.op, self.first.types, {*SHOWN, *self.runs})
        return PoolPasses(
            **{each.direction: passes_of_equation(platform, each.path[-1]) for each in self.every}
        )

    def _ahead(self, bound: Bound) -> bool:
        ahead = self.op.linear_in_x or bound.direction in ("value", "forward")
        return ahead and None not in bound.types


def _traced(program: Callable[..., Any], arrays: Sequence[Any], platform: Platform) -> list[_Pool]:
    """The pools of a program that is traced for a platform; a pool and its derivative on one line are one pool."""
    with tracing_for(platform):
        equations = list(ops_in(jax.make_jaxpr(program)(*arrays).jaxpr))
    pools: dict[Any, list[Bound]] = {}
    for bound in equations:
        if not bound.op.is_pool:
            continue
        first = bound.types[0]
        known_type = None if first is None else (first.shape, first.dtype)
        place = _place(bound.path)
        keys = [
            key for key in pools if key[:2] == (bound.op, place) and known_type in (key[2], None)
        ]
        pools.setdefault(keys[0] if keys else (bound.op, place, known_type), []).append(bound)
    return [
        _Pool(op, where, function, every) for (op, (where, function), _), every in pools.items()
    ]


def _rows(traced: Mapping[Platform, Sequence[_Pool]]) -> Iterator[PoolPlan]:
    """A row for each pool; its op may differ between platforms."""
    for pools in zip(*traced.values(), strict=True):
        by_platform = dict(zip(traced, pools, strict=True))
        pool = by_platform.get(traced_for(), pools[0])
        first = pool.first
        yield PoolPlan(
            pool.function or type(pool.op).__name__,
            pool.where,
            first.types[: pool.op.inputs],
            first.outputs[0],
            math.prod(first.mapped),
            _devices(first.path),
            getattr(pool.op, "window", None),
            pool.kept,
            pool.runs,
            {each: by_platform[each].passes(each) for each in by_platform},
            {each: by_platform[each].kept for each in by_platform},
        )


def _devices(path: Sequence[Any]) -> int:
    """The number of devices that the shard_maps around an equation use."""
    maps = [each.params for each in path if each.primitive.name == "shard_map"]
    return math.prod(
        params["mesh"].shape[axis]
        for params in maps
        for axis in params.get("newly_manual_axes", params.get("manual_axes", ()))
    )


def _place(path: Sequence[Any]) -> tuple[str, str]:
    """The line that calls a pool, empty if it is unknown, and the name of the called function of this library.

    `path` is an equation after those that contain it. The outermost of them with a frame of this library decides: the
    trace of an inner equation may come from the cache of another call.
    """
    where = ""
    for equation in path:
        trace = equation.source_info.traceback
        if trace is None:
            continue
        frames = [frame for frame, _ in traceback.walk_tb(trace.as_python_traceback())]
        files = [frame.f_code.co_filename for frame in frames]
        users = [at for at, file in enumerate(files) if is_users(file)]
        others = [at for at, file in enumerate(files) if not is_own(file)]
        last = (users or others or [-1])[-1]
        where = line(frames[last]) if last >= 0 else where
        ours = [
            (file, frame.f_code.co_name)
            for frame in frames[last + 1 :]
            if (file := in_package(frame.f_code.co_filename)) and file not in CALL_OTHERS
        ]
        if ours:
            if ("_accelerate/bind.py", "dispatch") in ours:
                return where, "a reduction of lax"
            public = (name for file, name in ours if file.startswith(("_api/", "compat/")))
            return where, next((name for name in public if not name.startswith("_")), "")
    return where, ""
