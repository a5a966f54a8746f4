"""Public elementwise `maximum`, `minimum`, `fmax` and `fmin`, with a choice of tie rules."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._arguments.arrays import (
    ArrayArgument,
    as_real_array,
    as_weakly_typed,
    is_array,
    not_an_array_error,
)
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_choice
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind, Ties
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.elementwise import NaNOrder, apply_extremum


def _as_promoted_arrays(
    kind: Kind, xs: tuple[ArrayArgument | float, ...], arg_names: Sequence[str]
) -> tuple[list[Array], bool]:
    """`xs` as arrays, and whether the result is weakly typed. Strongly typed floats keep their dtype, for gradients."""
    if len(xs) < 2:
        hint = f"For the {kind}imum along an axis use jaxpool.{kind}."
        raise ArgumentError("xs", "at least two arrays", len(xs), hint, TypeError)
    for name, x in zip(arg_names, xs, strict=True):
        if not is_array(x) and not isinstance(x, (bool, int, float)):
            raise not_an_array_error(name, x, "an array or a number")
    arrays = list(map(as_real_array, arg_names, xs))
    attribute, rule, hint = "dtype", "of dtypes that jax promotes to one", "Convert them first."
    try:
        dtype, is_weak = jax.dtypes.result_type(*arrays, return_weak_type_flag=True)
        attribute, rule, hint = "shape", "of shapes that broadcast together", "Reshape them first."
        jnp.broadcast_shapes(*[x.shape for x in arrays])
    except ValueError:
        pairs = zip(arg_names, arrays, strict=True)
        values = ", ".join(f"{name}.{attribute}={getattr(x, attribute)}" for name, x in pairs)
        joined_names = "x and y" if arg_names[0] == "x" else "xs"
        raise ArgumentError(
            joined_names, rule, xs, hint, shown_value=values, must_be_static=False
        ) from None
    keep = [dtypes.is_float(x.dtype) and not jax.typeof(x).weak_type for x in arrays]
    with np.errstate(over="ignore"):  # inside a trace, jax converts Python numbers only here
        arrays = [x if same else x.astype(dtype) for x, same in zip(arrays, keep, strict=True)]
    return arrays, is_weak


def _unshard_repeated_axes(x: Array, broadcast_shape: tuple[int, ...]) -> Array:
    """Unshard x along axes that broadcasting to `broadcast_shape` repeats: jax has no gradient if they are sharded."""
    sharding, offset = jax.typeof(x).sharding, len(broadcast_shape) - x.ndim
    spec_entries = [
        entry if size == out else None
        for entry, size, out in zip(sharding.spec, x.shape, broadcast_shape[offset:], strict=True)
    ]
    if spec_entries == list(sharding.spec):
        return x
    return reshard(x, NamedSharding(sharding.mesh, PartitionSpec(*spec_entries)))


def _elementwise_extremum(
    kind: Kind,
    xs: tuple[ArrayArgument | float, ...],
    ties: Ties,
    autodiff: Autodiff,
    nan_order: NaNOrder = "wins",
) -> Array:
    check_choice("ties", ties, ("split", "first", "last"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    arg_names = ["x", "y"] if nan_order == "loses" else [f"xs[{i}]" for i in range(len(xs))]
    operands, is_weak = _as_promoted_arrays(kind, xs, arg_names)
    shape = jnp.broadcast_shapes(*[x.shape for x in operands])
    arrays = [_unshard_repeated_axes(x, shape) for x in operands]
    y = apply_extremum(kind, ties, arrays, nan_order, autodiff)
    return as_weakly_typed(y) if is_weak else y


@public
def maximum(*xs: ArrayArgument | float, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise maximum of two or more arrays.

    `y[i] = max(x1[i], x2[i], ...)`; the arrays broadcast.

    Gradient: the cotangent goes to the largest element at each position, or by `ties` to equal elements. Each array
    gets a gradient of its own shape and dtype, summed over broadcast axes. NaN is larger than every number.

    {operands}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, 5.0, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.maximum(x, y)
      Array([3., 5., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.maximum(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 1. , 0.5], dtype=float32), Array([1. , 0. , 0.5], dtype=float32))

    References:
      `jax.numpy.maximum` also splits ties, but drops the cotangent of a NaN.
    """
    return _elementwise_extremum("max", xs, ties, autodiff)


@public
def minimum(*xs: ArrayArgument | float, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise minimum of two or more arrays.

    `y[i] = min(x1[i], x2[i], ...)`; the arrays broadcast.

    Gradient: as in `maximum`, to the smallest element at each position. NaN is smaller than every number.

    {operands}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.minimum(jnp.array([1, 5]), 3)
      Array([1, 3], dtype=int32)

    References:
      `jax.numpy.minimum`.
    """
    return _elementwise_extremum("min", xs, ties, autodiff)


@public
def fmax(
    x: ArrayArgument, y: ArrayArgument, *, ties: Ties = "split", autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the elementwise maximum of two arrays, ignoring NaN.

    `z[i] = max(x[i], y[i])`; the arrays broadcast. The result is NaN only where both are NaN.

    Gradient: as in `maximum`. Next to a NaN the number gets the cotangent; two NaNs tie.

    {two_operands}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, jnp.nan, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.fmax(x, y)
      Array([3., 4., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.fmax(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 0. , 0.5], dtype=float32), Array([1. , 1. , 0.5], dtype=float32))

    References:
      In a tie `torch.fmax` gives the cotangent to x, and `jax.numpy.fmax` to y.
    """
    return _elementwise_extremum("max", (x, y), ties, autodiff, "loses")


@public
def fmin(
    x: ArrayArgument, y: ArrayArgument, *, ties: Ties = "split", autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the elementwise minimum of two arrays, ignoring NaN.

    `z[i] = min(x[i], y[i])`; the arrays broadcast. The result is NaN only where both are NaN.

    Gradient: as in `fmax`, to the smaller element.

    {two_operands}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.fmin(jnp.array([1.0, jnp.nan]), 3.0)
      Array([1., 3.], dtype=float32)

    References:
      `torch.fmin`, `jax.numpy.fmin`.
    """
    return _elementwise_extremum("min", (x, y), ties, autodiff, "loses")
