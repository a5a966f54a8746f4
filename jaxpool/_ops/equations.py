"""The ops that a traced program holds: each equation of our two primitives, wherever in it, read back as an op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._ops.linear_map import Dims, compute_p, linear_p
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, Stages

# "value": the output alone; "forward": with what the derivative needs of it.
Direction = Literal["value", "forward", "tangent", "backward"]


class Bound(NamedTuple):
    """An op in a program; in a derivative the type of an input that the program does not tell is None."""

    op: Op
    direction: Direction
    types: tuple[
        Any, ...
    ]  # of the inputs, and of what is given beside them; without the axes of a vmap
    outputs: tuple[Any, ...]  # as above
    mapped: tuple[int, ...]  # how many examples each vmap around it has
    residual: tuple[Any, ...]  # what a derivative reads
    path: tuple[Any, ...]  # the equation, after those that it is inside of
    stopped: bool = False  # whether its inputs come out of `jax.lax.stop_gradient`


def ops_in(program: Any, path: tuple[Any, ...] = ()) -> Iterator[Bound]:
    """Every op of a jaxpr, in the order of its equations."""
    constants: list[Any] = []  # not a set: a literal has no hash
    for equation in program.eqns:
        here = (*path, equation)
        if equation.primitive.name == "stop_gradient":
            constants += equation.outvars
        if equation.primitive is compute_p:
            inputs = equation.invars[: equation.params["op"].inputs]
            yield _computed(here)._replace(stopped=all(one in constants for one in inputs))
        elif equation.primitive is linear_p:
            yield _mapped_linearly(here)
        else:
            for inner in jaxprs_in_params(equation.params):
                yield from ops_in(inner, here)


def _computed(path: tuple[Any, ...]) -> Bound:
    params, avals = path[-1].params, [each.aval for each in path[-1].invars]
    batch = params["batch"]
    outs = [_without(each.aval, [0] * len(batch)) for each in path[-1].outvars]
    direction: Direction = "value" if params["what"] == "value" else "forward"
    types = tuple(_inner(avals, batch))
    return Bound(params["op"], direction, types, tuple(outs), _sizes(avals, batch), (), path)


def _mapped_linearly(path: tuple[Any, ...]) -> Bound:
    params = path[-1].params
    op, given, transposed, batch = (params[name] for name in ("op", "given", "transposed", "batch"))
    count = params["tree"].num_leaves
    avals = [each.aval for each in path[-1].invars]
    front = [0] * len(batch)
    residual = _inner(avals[:count], batch)
    lanes = [_without(aval, front) for aval in avals[count:]]
    outs = [_without(each.aval, front) for each in path[-1].outvars]
    xs = iter(outs if transposed else lanes)
    types = [next(xs) if one else None for one in given]
    if op.linear_in_x:
        types += residual
    ahead: Direction = "value" if op.linear_in_x else "tangent"
    ys = tuple(lanes if transposed else outs)
    mapped = tuple(avals[count].shape[: len(batch)])
    return Bound(
        op, "backward" if transposed else ahead, tuple(types), ys, mapped, tuple(residual), path
    )


def _inner(avals: Sequence[Any], batch: tuple[Dims, ...]) -> list[Any]:
    """The types of arguments inside of the vmaps; the last one is outermost."""
    return [_without(aval, [dims[which] for dims in batch]) for which, aval in enumerate(avals)]


def _without(aval: Any, dims: Sequence[int | None]) -> Any:
    """The type of an array without the axes that vmaps map."""
    shape, spec = list(aval.shape), list(aval.sharding.spec)
    for dim in reversed(dims):
        if dim is not None:
            del shape[dim], spec[dim : dim + 1]
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec(*spec)) if any(spec) else None
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=sharding)


def _sizes(avals: Sequence[Any], batch: tuple[Dims, ...]) -> tuple[int, ...]:
    sizes = []
    rest = [list(aval.shape) for aval in avals]
    for dims in reversed(batch):
        found = [shape.pop(dim) for shape, dim in zip(rest, dims, strict=True) if dim is not None]
        sizes.append(found[0])
    return tuple(sizes)


def passes_of(plan: OpPlan, direction: Direction) -> Stages:
    """The passes of a plan in one direction."""
    if direction == "value":
        return plan.forward if plan.value is None else plan.value
    found: Stages = getattr(plan, direction)
    return found


def stages_of(platform: Platform, function: Any, *args: Any) -> Stages:
    """The passes of the ops that `function` binds, of arrays of the types `args`."""
    program = jax.make_jaxpr(function)(*args).jaxpr
    return tuple(
        stage
        for bound in ops_in(program)
        for stage in passes_of(bound.op.plan(platform, *bound.types), bound.direction)
    )
