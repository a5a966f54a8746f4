"""Public `max`, `min` and `maxout`: reductions along whole axes with the arguments of `jax.numpy.max`."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import (
    ArrayArgument,
    MaskArgument,
    as_array,
    as_broadcast_mask,
    as_real_array,
    is_array,
    unwrap_array,
)
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import sharding_from_type
from jaxpool._arguments.sizes import (
    Shape,
    check_bool,
    check_choice,
    check_fits_uint32_indices,
    checked_int,
    is_int,
    is_tuple_or_list,
)
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import DType, Kind, Ties
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.elementwise import apply_extremum
from jaxpool._ops.reduction import max_or_min
from jaxpool._shards.split import drop_unit_axes
from jaxpool._shards.whole import max_or_min_by_type

AxisArgument = int | Sequence[int] | None


def normalise_reduced_axes(axis: Any, shape: Shape) -> tuple[int, ...]:
    """`axis` as distinct non-negative ints; None is all axes. Raises if the size of one of the axes is symbolic."""
    ndim = len(shape)
    rule = f"None, an int or distinct ints from {-ndim} to {ndim - 1}" if ndim else "None or ()"
    entries = tuple(range(ndim)) if axis is None else axis if is_tuple_or_list(axis) else (axis,)
    if not all(map(is_int, entries)):
        raise ArgumentError("axis", rule, axis, "Pass an int or a tuple of ints.", TypeError)
    axes = tuple(operator.index(n) % ndim for n in entries if -ndim <= operator.index(n) < ndim)
    if len(set(axes)) != len(entries):
        raise ArgumentError("axis", rule, axis, "Name each axis of x once.")
    for entry in axes:
        if not is_int(shape[entry]):
            hint = "Axes that are not reduced may be symbolic."
            rule = f"of known size along axis {entry}"
            raise ArgumentError("x", rule, shape[entry], hint, attribute=f"shape[{entry}]")
    return axes


def _can_represent(dtype: DType, value: float) -> bool:
    """True if `dtype` can represent `value`; floats may be rounded and may overflow to infinity."""
    if dtype == jnp.bool_:
        return value in (0, 1)
    if not dtypes.is_float(dtype):
        info = jnp.iinfo(dtype)
        return bool(info.min <= value <= info.max and value == int(value))
    return bool(np.isnan(dtypes.float_constant(value, dtype).astype(np.float64))) == (
        value != value
    )


def _as_initial_scalar(initial: Any, dtype: DType) -> Array:
    """`initial` as a scalar array of `dtype`."""
    rule = "a number or an array without axes"
    initial = unwrap_array(initial)
    is_number = isinstance(initial, (bool, int, float))
    if not is_number and not is_array(initial):
        hint = "Pass a number."
        raise ArgumentError("initial", rule, initial, hint, TypeError, must_be_static=False)
    if not is_number and np.ndim(initial):
        hint = "For an array use jaxpool.maximum or jaxpool.minimum on the result."
        raise ArgumentError("initial", rule, np.shape(initial), hint, attribute="shape")
    is_masked = isinstance(initial, np.ma.MaskedArray)  # whose `item` ignores the mask
    is_numpy = isinstance(initial, (np.ndarray, np.generic)) and not is_masked
    scalar = initial.item() if is_numpy else initial
    if not isinstance(scalar, (bool, int, float)):
        array = as_real_array("initial", initial)
        if dtypes.is_float(array.dtype) and not dtypes.is_float(dtype):
            rule = f"of a type that {dtype} holds"
            raise ArgumentError("initial", rule, array.dtype, "Cast it.", attribute="dtype")
        return array.astype(dtype)
    with contextlib.suppress(OverflowError):  # an int too large for a float
        if _can_represent(dtype, scalar):
            is_float = dtypes.is_float(dtype)
            return jnp.asarray(dtypes.float_constant(scalar, dtype) if is_float else scalar, dtype)
    raise ArgumentError("initial", f"a number that {dtype} holds", scalar, "Pass another.")


def _reduce_extremum(
    kind: Kind,
    x: ArrayArgument,
    axis: AxisArgument,
    keepdims: bool,
    where: MaskArgument,
    initial: ArrayArgument | float | None,
    ties: Ties,
    autodiff: Autodiff,
) -> Array:
    x = as_array(x)
    axes = normalise_reduced_axes(axis, x.shape)
    check_fits_uint32_indices("x", [x.shape[entry] for entry in axes])
    check_bool("keepdims", keepdims)
    check_choice("ties", ties, ("split", "first", "last"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    mask = None if where is None else as_broadcast_mask(where, x.shape)
    if initial is None and where is not None:
        hint = "It is the result where nothing counts."
        raise ArgumentError("initial", "given where `where` is", None, hint)
    for entry in axes:
        if initial is None and x.shape[entry] == 0:
            rule = f"given to reduce axis {entry} of size 0"
            raise ArgumentError("initial", rule, None, "It is the result of no elements.")
    initial_scalar = None if initial is None else _as_initial_scalar(initial, x.dtype)
    y = max_or_min_by_type(kind, x, axes, ties, autodiff, keepdims, mask)
    if initial_scalar is None:
        return y
    return apply_extremum(kind, "first", [y, initial_scalar], autodiff=autodiff)


@public
def max(
    x: ArrayArgument,
    axis: AxisArgument = None,
    *,
    keepdims: bool = False,
    where: MaskArgument = None,
    initial: ArrayArgument | float | None = None,
    ties: Ties = "split",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element along axes.

    `y[i] = max over j of x[i, j]`, with i the remaining axes and j the reduced axes.

    Gradient: the cotangent is divided equally among the elements that attain the maximum, or goes to the element that
    `ties` selects. NaN is larger than every number: only NaNs get the cotangent then. -inf is an ordinary value.

    {reduced}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 3.0, 3.0], [5.0, 4.0, 2.0]])
      >>> jaxpool.max(x, axis=1)
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.max(x, axis=1).sum())(x)
      Array([[0. , 0.5, 0.5],
             [1. , 0. , 0. ]], dtype=float32)

    References:
      The arguments of `jax.numpy.max`, which also splits ties; its gradient at a NaN is NaN.
    """
    return _reduce_extremum("max", x, axis, keepdims, where, initial, ties, autodiff)


@public
def min(
    x: ArrayArgument,
    axis: AxisArgument = None,
    *,
    keepdims: bool = False,
    where: MaskArgument = None,
    initial: ArrayArgument | float | None = None,
    ties: Ties = "split",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the smallest element along axes.

    `y[i] = min over j of x[i, j]`, with i the remaining axes and j the reduced axes.

    Gradient: as in `max`, to the elements that attain the minimum. NaN is smaller than every number.

    {reduced}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[4, 3], [1, 2]])
      >>> jaxpool.min(x), jaxpool.min(x, axis=0, where=x > 1, initial=9)
      (Array(1, dtype=int32), Array([4, 2], dtype=int32))

    References:
      The arguments of `jax.numpy.min`.
    """
    return _reduce_extremum("min", x, axis, keepdims, where, initial, ties, autodiff)


@public
def maxout(x: ArrayArgument, groups: int, *, axis: int = -1, ties: Ties = "split") -> Array:
    """Computes the maximum of each group of neighbouring elements along an axis, the maxout unit.

    `y[..., g] = max over j < k of x[..., g * k + j]`, with G groups and `k = size / G`.

    Gradient: as in `max`, to the maxima of each group. Forward and reverse mode, to any order.

    Args:
      x: array of at least one axis; floats, integers or bool.
      groups: the number of outputs, a positive int that divides the size of the axis.
      axis: the axis along which elements are grouped, of known size.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last".

    Returns:
      Array of the shape of x with `groups` along the axis; the dtype of x.

    {wrong}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 5.0, 4.0])
      >>> jaxpool.maxout(x, 2)
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.maxout(x, 2).sum())(x)
      Array([0., 1., 1., 0.], dtype=float32)

    References:
      Goodfellow et al., Maxout Networks, arXiv:1302.4389.
    """
    x = as_array(x)
    if not is_int(axis):
        raise ArgumentError("axis", "an int", axis, "Call maxout once an axis.", TypeError)
    (int_axis,) = normalise_reduced_axes(axis, x.shape)
    sharding = sharding_from_type(x)
    num_shards = sharding.num_shards(int_axis) if sharding else 1
    size = x.shape[int_axis] * (num_shards if sharding and sharding.is_manual else 1)
    rule = f"a positive int that divides the axis of size {size}"
    rule += f", a multiple of its {num_shards} shards" if num_shards > 1 else ""
    hint, group_counts = "Each group has as many elements.", range(num_shards, size + 1, num_shards)
    int_hint = "Pass the number of outputs."
    num_groups = checked_int("groups", groups, rule, hint, group_counts, int_hint)
    if size % num_groups:
        raise ArgumentError("groups", rule, groups, hint)
    check_choice("ties", ties, ("split", "first", "last"))
    length = size // num_groups
    shape = (*x.shape[:int_axis], x.shape[int_axis] // length, length, *x.shape[int_axis + 1 :])
    grouped_x = lax.reshape(drop_unit_axes(sharding, x, (int_axis,)), shape)
    return max_or_min(grouped_x, (int_axis + 1,), "max", ties, "jvp")
