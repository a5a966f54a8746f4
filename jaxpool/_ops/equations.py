"""Find the jaxpool ops of a jaxpr, for `jaxpool.plan_of`.

Every equation of the two primitives of `linear_map`, also in nested jaxprs, becomes a `Bound`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._ops.linear_map import Dims, compute_p, linear_p
from jaxpool._ops.op import Op

# "value": the output only; "forward": the output and the residual.
Direction = Literal["value", "forward", "tangent", "backward"]


class Bound(NamedTuple):
    """One jaxpool equation of a jaxpr. Input types are None where a derivative equation does not carry them."""

    op: Op
    direction: Direction
    # Types of the inputs and the extra arguments, and of the outputs, without the axes of a vmap.
    types: tuple[Any, ...]
    outputs: tuple[Any, ...]
    mapped: tuple[int, ...]  # Axis sizes of the vmaps around the equation.
    residual: tuple[Any, ...]  # Types of the residual, in a derivative.
    path: tuple[Any, ...]  # The enclosing equations and the equation itself.
    stopped: bool = False  # True if all inputs come from `jax.lax.stop_gradient`.


def ops_in(program: Any, path: tuple[Any, ...] = ()) -> Iterator[Bound]:
    """Yield every op of a jaxpr, in the order of its equations."""
    constants: list[Any] = []  # not a set: literals are not hashable
    for equation in program.eqns:
        here = (*path, equation)
        if equation.primitive.name == "stop_gradient":
            constants += equation.outvars
        if equation.primitive is compute_p:
            inputs = equation.invars[: equation.params["op"].inputs]
            yield _computed(here)._replace(stopped=all(x in constants for x in inputs))
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
    op, nonzero, transposed, batch = (
        params[name] for name in ("op", "nonzero", "transposed", "batch")
    )
    count = params["tree"].num_leaves
    avals = [each.aval for each in path[-1].invars]
    front = [0] * len(batch)
    residual = _inner(avals[:count], batch)
    operands = [_without(aval, front) for aval in avals[count:]]
    outs = [_without(each.aval, front) for each in path[-1].outvars]
    xs = iter(outs if transposed else operands)
    types = [next(xs) if is_given else None for is_given in nonzero]
    if op.linear_in_x:
        types += residual
    ahead: Direction = "value" if op.linear_in_x else "tangent"
    ys = tuple(operands if transposed else outs)
    mapped = tuple(avals[count].shape[: len(batch)])
    return Bound(
        op, "backward" if transposed else ahead, tuple(types), ys, mapped, tuple(residual), path
    )


def _inner(avals: Sequence[Any], batch: tuple[Dims, ...]) -> list[Any]:
    """The types of arguments inside the vmaps. The last entry of `batch` is the outermost vmap."""
    return [_without(aval, [dims[which] for dims in batch]) for which, aval in enumerate(avals)]


def _without(aval: Any, dims: Sequence[int | None]) -> Any:
    """The type of an array without its mapped axes."""
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
        mapped_sizes = [
            shape.pop(dim) for shape, dim in zip(rest, dims, strict=True) if dim is not None
        ]
        sizes.append(mapped_sizes[0])
    return tuple(sizes)
