"""Find the jaxpool ops of a jaxpr, for `jaxpool.plan_of`.

Every equation of the two primitives of `linear_map.py`, also in nested jaxprs, becomes an `OpEquation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._ops.linear_map import BatchDims, compute_p, linear_p
from jaxpool._ops.op import Op

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
    equation_path: tuple[Any, ...]  # The enclosing equations and the equation itself.
    has_stopped_inputs: bool = False  # True if all inputs come from `jax.lax.stop_gradient`.


def find_op_equations(jaxpr: Any, equation_path: tuple[Any, ...] = ()) -> Iterator[OpEquation]:
    """Yield an `OpEquation` for every jaxpool op of a jaxpr and its nested jaxprs, in program order."""
    stopped_vars: list[Any] = []  # not a set: jaxpr literals are not hashable
    for equation in jaxpr.eqns:
        inner_path = (*equation_path, equation)
        if equation.primitive.name == "stop_gradient":
            stopped_vars += equation.outvars
        if equation.primitive is compute_p:
            inputs = equation.invars[: equation.params["op"].num_inputs]
            yield _describe_compute(inner_path)._replace(
                has_stopped_inputs=all(x in stopped_vars for x in inputs)
            )
        elif equation.primitive is linear_p:
            yield _describe_linear_map(inner_path)
        else:
            for inner_jaxpr in jaxprs_in_params(equation.params):
                yield from find_op_equations(inner_jaxpr, inner_path)


def _describe_compute(equation_path: tuple[Any, ...]) -> OpEquation:
    params, avals = equation_path[-1].params, [var.aval for var in equation_path[-1].invars]
    batch = params["batch"]
    output_types = [
        _remove_mapped_axes(var.aval, [0] * len(batch)) for var in equation_path[-1].outvars
    ]
    direction: Direction = "value" if params["what"] == "value" else "forward"
    arg_types = tuple(_types_inside_vmaps(avals, batch))
    return OpEquation(
        params["op"],
        direction,
        arg_types,
        tuple(output_types),
        _vmap_sizes(avals, batch),
        (),
        equation_path,
    )


def _describe_linear_map(equation_path: tuple[Any, ...]) -> OpEquation:
    params = equation_path[-1].params
    op, nonzero, transposed, batch = (
        params[name] for name in ("op", "nonzero", "transposed", "batch")
    )
    num_residuals = params["tree"].num_leaves
    avals = [var.aval for var in equation_path[-1].invars]
    front_dims = [0] * len(batch)
    residual = _types_inside_vmaps(avals[:num_residuals], batch)
    operands = [_remove_mapped_axes(aval, front_dims) for aval in avals[num_residuals:]]
    output_types = [_remove_mapped_axes(var.aval, front_dims) for var in equation_path[-1].outvars]
    xs = iter(output_types if transposed else operands)
    arg_types = [next(xs) if is_nonzero else None for is_nonzero in nonzero]
    if op.linear_in_x:
        arg_types += residual
    forward_direction: Direction = "value" if op.linear_in_x else "tangent"
    ys = tuple(operands if transposed else output_types)
    vmap_sizes = tuple(avals[num_residuals].shape[: len(batch)])
    return OpEquation(
        op,
        "backward" if transposed else forward_direction,
        tuple(arg_types),
        ys,
        vmap_sizes,
        tuple(residual),
        equation_path,
    )


def _types_inside_vmaps(avals: Sequence[Any], batch: tuple[BatchDims, ...]) -> list[Any]:
    """Types of the arguments without their vmapped axes. The last entry of `batch` is the outermost vmap."""
    return [
        _remove_mapped_axes(aval, [dims[arg_index] for dims in batch])
        for arg_index, aval in enumerate(avals)
    ]


def _remove_mapped_axes(aval: Any, dims: Sequence[int | None]) -> Any:
    """The type of an array without its vmapped axes, `dims`."""
    shape, spec = list(aval.shape), list(aval.sharding.spec)
    for dim in reversed(dims):
        if dim is not None:
            del shape[dim], spec[dim : dim + 1]
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec(*spec)) if any(spec) else None
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=sharding)


def _vmap_sizes(avals: Sequence[Any], batch: tuple[BatchDims, ...]) -> tuple[int, ...]:
    sizes = []
    shapes = [list(aval.shape) for aval in avals]
    for dims in reversed(batch):
        mapped_sizes = [
            shape.pop(dim) for shape, dim in zip(shapes, dims, strict=True) if dim is not None
        ]
        sizes.append(mapped_sizes[0])
    return tuple(sizes)
