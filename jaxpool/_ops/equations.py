"""Find the jaxpool ops of a jaxpr, for `jaxpool.plan_of`.

Every equation of the two primitives of `op.py`, also in nested jaxprs, becomes an `OpEquation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._ops.op import InAxes, Op, compute_p, linear_p

# "value": the output only; "forward": the output and the residual.
Direction = Literal["value", "forward", "tangent", "backward"]


class OpEquation(NamedTuple):
    """One jaxpool equation of a jaxpr. In a derivative, the type of an input without a tangent or cotangent is None."""

    op: Op
    direction: Direction
    # Types of the inputs and then the other arguments, and of the outputs, without vmapped axes.
    arg_types: tuple[Any, ...]
    outputs: tuple[Any, ...]
    vmap_sizes: tuple[int, ...]  # Axis sizes of the vmaps around the equation.
    residual: tuple[Any, ...]  # Types of the residual, if the equation is a derivative.
    eqns: tuple[Any, ...]  # The enclosing equations and the equation itself.
    has_stopped_inputs: bool = False  # True if all inputs come from `jax.lax.stop_gradient`.


def find_op_equations(jaxpr: Any, outer_eqns: tuple[Any, ...] = ()) -> Iterator[OpEquation]:
    """Yield an `OpEquation` for every jaxpool op of a jaxpr and its nested jaxprs, in program order."""
    stopped_vars: list[Any] = []  # not a set: jaxpr literals are not hashable
    for equation in jaxpr.eqns:
        eqns = (*outer_eqns, equation)
        if equation.primitive.name == "stop_gradient":
            stopped_vars += equation.outvars
        if equation.primitive is compute_p:
            inputs = equation.invars[: equation.params["op"].num_inputs]
            yield _from_compute(eqns)._replace(
                has_stopped_inputs=all(x in stopped_vars for x in inputs)
            )
        elif equation.primitive is linear_p:
            yield _from_linear_map(eqns)
        else:
            for inner_jaxpr in jaxprs_in_params(equation.params):
                yield from find_op_equations(inner_jaxpr, eqns)


def _from_compute(eqns: tuple[Any, ...]) -> OpEquation:
    params, avals = eqns[-1].params, [var.aval for var in eqns[-1].invars]
    batch = params["batch"]
    out_types = [_unmapped_type(var.aval, [0] * len(batch)) for var in eqns[-1].outvars]
    direction: Direction = "value" if params["method"] == "value" else "forward"
    arg_types = tuple(_types_inside_vmaps(avals, batch))
    return OpEquation(
        params["op"], direction, arg_types, tuple(out_types), _vmap_sizes(avals, batch), (), eqns
    )


def _from_linear_map(eqns: tuple[Any, ...]) -> OpEquation:
    params = eqns[-1].params
    op, nonzero, transposed, batch = (
        params[name] for name in ("op", "nonzero", "transposed", "batch")
    )
    num_residuals = params["tree"].num_leaves
    avals = [var.aval for var in eqns[-1].invars]
    front_dims = [0] * len(batch)
    residual = _types_inside_vmaps(avals[:num_residuals], batch)
    operands = [_unmapped_type(aval, front_dims) for aval in avals[num_residuals:]]
    out_types = [_unmapped_type(var.aval, front_dims) for var in eqns[-1].outvars]
    xs = iter(out_types if transposed else operands)
    types = [next(xs) if is_nonzero else None for is_nonzero in nonzero]
    if op.linear_in_x:
        types += residual
    forward: Direction = "value" if op.linear_in_x else "tangent"
    ys = tuple(operands if transposed else out_types)
    sizes = tuple(avals[num_residuals].shape[: len(batch)])
    return OpEquation(
        op, "backward" if transposed else forward, tuple(types), ys, sizes, tuple(residual), eqns
    )


def _types_inside_vmaps(avals: Sequence[Any], batch: tuple[InAxes, ...]) -> list[Any]:
    """Types of the arguments without their vmapped axes. The last entry of `batch` is the outermost vmap."""
    return [_unmapped_type(aval, [dims[i] for dims in batch]) for i, aval in enumerate(avals)]


def _unmapped_type(aval: Any, dims: Sequence[int | None]) -> Any:
    """The type of an array without its vmapped axes, `dims`."""
    shape, spec = list(aval.shape), list(aval.sharding.spec)
    for dim in reversed(dims):
        if dim is not None:
            del shape[dim], spec[dim : dim + 1]
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec(*spec)) if any(spec) else None
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=sharding)


def _vmap_sizes(avals: Sequence[Any], batch: tuple[InAxes, ...]) -> tuple[int, ...]:
    sizes = []
    shapes = [list(aval.shape) for aval in avals]
    for dims in reversed(batch):
        mapped_sizes = [
            shape.pop(dim) for shape, dim in zip(shapes, dims, strict=True) if dim is not None
        ]
        sizes.append(mapped_sizes[0])
    return tuple(sizes)
