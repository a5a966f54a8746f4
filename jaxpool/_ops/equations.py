"""Find the jaxpool ops of a jaxpr and of its nested jaxprs, for `jaxpool.plan_of`."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from jax import ShapeDtypeStruct
from jax.extend.core import Jaxpr, JaxprEqn, Var, jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._ops.op import Op
from jaxpool._ops.primitives import Batch, compute_p, linear_p

# "value": the output only; "forward": the output and the residual.
Direction = Literal["value", "forward", "tangent", "backward"]
Types = tuple[ShapeDtypeStruct, ...]
Equations = tuple[JaxprEqn, ...]


class OpEquation(NamedTuple):
    """One jaxpool equation of a jaxpr. In a derivative, the type of an input without a tangent or cotangent is None."""

    op: Op
    direction: Direction
    # Types of the inputs and then the other arguments, and of the outputs, without vmapped axes.
    arg_types: tuple[Any, ...]
    outputs: Types
    vmap_sizes: tuple[int, ...]  # Axis sizes of the vmaps around the equation.
    residual: Types  # Types of the residual, if the equation is a derivative.
    eqns: Equations  # The enclosing equations and the equation itself.
    has_stopped_inputs: bool = False  # True if all inputs come from `jax.lax.stop_gradient`.


def find_op_equations(jaxpr: Jaxpr, outer_eqns: Equations = ()) -> Iterator[OpEquation]:
    """Yield an `OpEquation` for every jaxpool op of a jaxpr and its nested jaxprs, in program order."""
    stopped_vars: list[Var] = []  # not a set: jaxpr literals are not hashable
    for equation in jaxpr.eqns:
        eqns = (*outer_eqns, equation)
        if equation.primitive.name == "stop_gradient":
            stopped_vars += equation.outvars
        if equation.primitive is compute_p:
            inputs = equation.invars[: equation.params["op"].num_inputs]
            yield _from_compute(eqns, all(x in stopped_vars for x in inputs))
        elif equation.primitive is linear_p:
            yield _from_linear_map(eqns)
        else:
            for inner_jaxpr in jaxprs_in_params(equation.params):
                yield from find_op_equations(inner_jaxpr, eqns)


def _from_compute(eqns: Equations, has_stopped_inputs: bool) -> OpEquation:
    params, batch = eqns[-1].params, eqns[-1].params["batch"]
    arg_types = _types_inside_vmaps(eqns[-1].invars, batch)
    out_types, vmap_sizes = _types_behind_front_axes(eqns[-1].outvars, len(batch))
    direction: Direction = "value" if params["method"] == "value" else "forward"
    return OpEquation(
        params["op"], direction, arg_types, out_types, vmap_sizes, (), eqns, has_stopped_inputs
    )


def _from_linear_map(eqns: Equations) -> OpEquation:
    params, batch = eqns[-1].params, eqns[-1].params["batch"]
    op, num_residuals = params["op"], params["tree"].num_leaves
    residual = _types_inside_vmaps(eqns[-1].invars[:num_residuals], batch)
    inputs, vmap_sizes = _types_behind_front_axes(eqns[-1].invars[num_residuals:], len(batch))
    outputs, _ = _types_behind_front_axes(eqns[-1].outvars, len(batch))
    direction: Direction = "value" if op.linear_in_x else "tangent"
    if params["transposed"]:
        direction, inputs, outputs = "backward", outputs, inputs
    input_types = iter(inputs)
    arg_types = [next(input_types) if is_nonzero else None for is_nonzero in params["nonzero"]]
    if op.linear_in_x:
        arg_types += residual
    return OpEquation(op, direction, tuple(arg_types), outputs, vmap_sizes, residual, eqns)


def _types_inside_vmaps(variables: Sequence[Any], batch: Batch) -> Types:
    """Types of the arguments without their vmapped axes."""
    return tuple(
        _unmapped_type(var.aval, [dims[i] for dims in batch]) for i, var in enumerate(variables)
    )


def _types_behind_front_axes(
    variables: Sequence[Any], num_vmaps: int
) -> tuple[Types, tuple[int, ...]]:
    """Types without the vmapped axes, which are the first axes, and the sizes of these axes."""
    types = tuple(_unmapped_type(var.aval, [0] * num_vmaps) for var in variables)
    return types, tuple(variables[0].aval.shape[:num_vmaps])


def _unmapped_type(aval: Any, dims: Sequence[int | None]) -> ShapeDtypeStruct:
    """The type of an array without its vmapped axes, `dims`."""
    shape, spec = list(aval.shape), list(aval.sharding.spec)
    for dim in reversed(dims):
        if dim is not None:
            del shape[dim], spec[dim : dim + 1]
    sharding = NamedSharding(aval.sharding.mesh, PartitionSpec(*spec)) if any(spec) else None
    return ShapeDtypeStruct(tuple(shape), aval.dtype, sharding=sharding)
