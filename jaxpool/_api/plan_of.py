"""How each pool in a function is computed: what is traced, read back as rows."""

from __future__ import annotations

import dataclasses
import functools
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from jaxpool._accelerate.report import in_package, is_own, is_users, line
from jaxpool._api import plan_text
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window
from jaxpool._ops.equations import Bound, Direction, ops_in
from jaxpool._ops.linear_map import traced_for, tracing_for
from jaxpool._ops.op import Op
from jaxpool._plan.problem import PLATFORMS, Platform
from jaxpool._plan.stages import OpPlan

# Files whose frames lie between a user's function and ours: they call it, so a pool inside it is the user's.
CALL_OTHERS = (
    "_api/plan_of.py",
    "_api/sharded.py",
    "_accelerate/accelerate.py",
    "_arguments/calls.py",
)


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """One pool of a program: where it is called, what it keeps for its derivative, and its passes on each platform.

    `runs` says what the program does with it: "value" where no derivative is taken, "forward" where one is, "tangent"
    and "backward". Each of `passes` has `value`, `forward`, `tangent` and `backward`, a tuple of passes each.
    """

    # The function of this library that was called, or what takes the place of one of lax's.
    function: str
    where: str  # file, line and function of the caller
    inputs: tuple[jax.ShapeDtypeStruct, ...]
    output: jax.ShapeDtypeStruct
    examples: int  # of a `jax.vmap`, each of these types
    devices: int  # of a `jax.shard_map`: each pools a shard, and these are the types of one
    window: Window | None
    kept: tuple[jax.ShapeDtypeStruct, ...]
    runs: tuple[Direction, ...]
    passes: Mapping[Platform, OpPlan]
    kept_on: Mapping[Platform, tuple[jax.ShapeDtypeStruct, ...]]  # by a program traced for each

    @property
    def kept_bytes(self) -> Any:
        """How many bytes are kept from forward to backward: an int, or what symbolic sizes make."""
        return self.bytes_of(self.kept)

    def bytes_of(self, kept: Sequence[jax.ShapeDtypeStruct]) -> Any:
        """How many bytes arrays of all examples have."""
        return sum(self.examples * math.prod(each.shape) * each.dtype.itemsize for each in kept)

    def __str__(self) -> str:
        return "\n".join(plan_text.lines_of(self))

    __repr__ = __str__


class Plans(tuple[PoolPlan, ...]):
    """The pools of a program, in the order in which it runs them."""

    __slots__ = ()

    @property
    def kept_bytes(self) -> Any:
        """How many bytes all of them keep. What two of them share is counted twice."""
        return sum(each.kept_bytes for each in self)

    def __str__(self) -> str:
        if not self:
            return "no pool of jaxpool"
        return "\n\n".join([*map(str, self), "\n".join(plan_text.legend(self))])

    __repr__ = __str__


@public
def plan_of(fn: Callable[..., Any]) -> Callable[..., Plans]:
    """Tells how each pool in a function is computed: where it is called, what it keeps, and its passes.

    `plan_of(fn)(*args)` traces `fn(*args)` and computes nothing, so a `jax.ShapeDtypeStruct` does for an array. `fn`
    is a pool, a model, or a whole train step with `jax.grad`, `jax.jit`, `jax.lax.scan` and `jax.vmap` inside. Under
    `accelerate`, lax's reductions that became ours are among its pools. A pool in a loop is one row, and so is one
    that a line calls again with arrays of the same shape. Under `sharded`, and inside a `jax.shard_map`, a row tells
    of the shard of one of its `devices`; means over whole axes are there a plain sum of each shard, which has none.

    A pass reads an array once and writes one. Between two passes an array is stored, which is what a large window
    costs. Which passes run depends on the platform; they are read off the objects that the kernels read.

    Gradient: with `jax.grad` in `fn`, `runs` of a row holds "backward". What that would keep and run is told without.

    Args:
      fn: a function. What is not an array among its arguments reaches it as it is.

    Returns:
      A function that takes the arguments of `fn` and gives a tuple with one row for each pool. A row has `function`,
      `where` (the line that called it), `inputs`, `output`, `examples` (of a `vmap`), `devices` (of a `shard_map`),
      `window`, `kept` and `kept_bytes` (what is held from forward to backward), `runs` (what the program does with it)
      and `passes`, for "cpu", "gpu" and "tpu". Printed, the tuple reads as a text, and so does each row.

    Raises:
      TypeError: `fn` is no function. What `fn` raises when it is traced, it raises.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> def loss(x):
      ...     return jaxpool.max_pool(x, (2, 2), (2, 2)).sum()
      >>> plans = jaxpool.plan_of(jax.grad(loss))(jax.ShapeDtypeStruct((8, 64, 64, 32), jnp.float32))
      >>> [(row.function, row.runs, row.kept_bytes) for row in plans]
      [('max_pool', ('forward', 'backward'), 262144)]
      >>> [(each.axes, each.terms, each.how) for each in plans[0].passes["gpu"].forward]
      [((1, 2), 4, 'padded')]

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
            given = iter(arrays)
            every = [next(given) if one else leaf for leaf, one in zip(leaves, traced, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, every)
            return [each for each in jax.tree.leaves(fn(*args, **kwargs)) if _is_array(each)]

        arrays = [leaf for leaf, one in zip(leaves, traced, strict=True) if one]
        return Plans(_rows({platform: _traced(called, arrays, platform) for platform in PLATFORMS}))

    return planned


def _is_array(leaf: Any) -> bool:
    """Whether a leaf is traced; a NumPy scalar may be a size."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)


@dataclasses.dataclass(frozen=True)
class _Pool:
    """An op and its derivative, at one place of a program."""

    op: Op
    where: str
    function: str
    every: Sequence[Bound]

    @property
    def first(self) -> Bound:
        """Where it is bound first, its value before its derivative."""
        return next(filter(self._ahead, self.every), self.every[0])

    @property
    def kept(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """What is held from forward to backward."""
        first = self.first
        if first.stopped:
            return ()
        if self._ahead(first):
            return _kept(self.op, first.types, first.outputs[0])
        return first.residual

    def _ahead(self, bound: Bound) -> bool:
        return self.op.linear_in_x or bound.direction in ("value", "forward")


def _traced(program: Callable[..., Any], arrays: Sequence[Any], platform: Platform) -> list[_Pool]:
    """The pools of a program that is traced for a platform; a pool and its derivative, bound by one line, are one."""
    with tracing_for(platform):
        found = list(ops_in(jax.make_jaxpr(program)(*arrays).jaxpr))
    pools: dict[Any, list[Bound]] = {}
    for bound in found:
        if not bound.op.is_pool:
            continue
        first = bound.types[0]
        told = None if first is None else (first.shape, first.dtype)
        place = _place(bound.path)
        known = [key for key in pools if key[:2] == (bound.op, place) and told in (key[2], None)]
        pools.setdefault(known[0] if known else (bound.op, place, told), []).append(bound)
    return [
        _Pool(op, where, function, every) for (op, (where, function), _), every in pools.items()
    ]


def _rows(traced: Mapping[Platform, Sequence[_Pool]]) -> Iterator[PoolPlan]:
    """A row for each pool, which another op may compute on another platform."""
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
            tuple(dict.fromkeys(bound.direction for bound in pool.every)),
            {
                each: by_platform[each].op.plan(each, *by_platform[each].first.types)
                for each in by_platform
            },
            {each: by_platform[each].kept for each in by_platform},
        )


def _kept(op: Op, types: Sequence[Any], output: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    """What the op keeps for its derivative; nothing if it has none."""
    types = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types]
    if not all(jnp.issubdtype(each.dtype, jnp.floating) for each in types[: op.inputs]):
        return ()
    if op.linear_in_x:
        return tuple(types[op.inputs :])
    if op.keeps_inputs:
        return (*types, output) if op.keeps_output else tuple(types)
    if op.keeps_value:
        return (output, *types[op.inputs :][: op.given_kept])
    return tuple(
        jax.tree.leaves(jax.eval_shape(functools.partial(op.primal, "portable"), *types)[1])
    )


def _devices(path: Sequence[Any]) -> int:
    """Among how many devices the shard_maps around an equation divide its arrays."""
    maps = [each.params for each in path if each.primitive.name == "shard_map"]
    return math.prod(
        params["mesh"].shape[axis]
        for params in maps
        for axis in params.get("newly_manual_axes", params.get("manual_axes", ()))
    )


def _place(path: Sequence[Any]) -> tuple[str, str]:
    """Where a pool is called, empty where no traced line called it, and the name of the function of this library.

    Of an equation and those that it is inside of, the outermost that this library bound tells: what is inside of that
    may have been traced for another call.
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
