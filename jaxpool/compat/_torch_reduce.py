"""Maxima and minima of `torch` along axes, and running maxima and minima."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_fits_int32_indices, is_tuple_or_list, static_sizes
from jaxpool._kernels.dtypes import Kind
from jaxpool._ops.apply import apply_with_residual
from jaxpool._ops.cumulative import Running
from jaxpool._ops.reduction import Reduction, reduce
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import ORDERED
from jaxpool.compat._torch_elementwise import maximum, minimum, pair

MISSING: Any = object()


class Chosen(NamedTuple):
    """Selected values and their indices, like PyTorch's return types."""

    values: Array
    indices: Array


def _check_filled(x: Array, axes: Sequence[int]) -> None:
    if 0 in static_sizes(x.shape, axes, min_size=0):
        along = f"axes {axes}" if len(axes) > 1 else f"axis {axes[0]}"
        rule = f"of at least one element along {along}"
        raise ArgumentError(
            "input", rule, x.shape, "An extreme of nothing is none.", attribute="shape"
        )


def along(function: str, op: Callable[..., Reduction], x: Array, dim: Any, keepdim: Any) -> Chosen:
    """The elements that `op(ties, axes, sizes)` selects along an axis, and the indices of the first tied elements."""
    keepdim = False if keepdim is MISSING else keepdim
    with args.call(function, x):
        axis = args.axis_of(dim, x.ndim)
        args.check_flag("keepdim", keepdim)
        if not x.ndim:
            return Chosen(x, jnp.zeros((), jnp.int32))
        _check_filled(x, [axis])
        check_fits_int32_indices("input", [x.shape[axis]])
    values, rank = apply_with_residual(op("first", (axis,), (x.shape[axis],)), "jvp", x)
    indices = rank.astype(jnp.int32)
    if keepdim:
        return Chosen(values, indices)
    return Chosen(lax.squeeze(values, (axis,)), lax.squeeze(indices, (axis,)))


def check_named(dim: Any, keepdim: Any) -> None:
    """Raise if `keepdim` is passed without an axis."""
    if keepdim is not MISSING and dim is MISSING:
        raise ArgumentError("keepdim", "given with `dim`", keepdim, "Name an axis.", TypeError)


def _extreme(
    function: str, kind: Kind, input: Any, dim: Any, keepdim: Any, other: Any
) -> Array | Chosen:
    if is_array(dim) and other is MISSING and keepdim is MISSING and not _is_index(dim):
        dim, other = MISSING, dim
    x = args.tensor(function, input, ORDERED)
    passed = [name for name, value in (("dim", dim), ("other", other)) if value is not MISSING]
    with args.call(function, x):
        if len(passed) == 2:
            hint = "Pass one of the two."
            raise ArgumentError("other", "missing where `dim` is given", "both", hint, TypeError)
        check_named(dim, keepdim)
    if passed == ["dim"]:
        return along(function, functools.partial(Reduction, kind), x, dim, keepdim)
    if passed == ["other"]:
        return (maximum if kind == "max" else minimum)(*pair(function, x, other))
    return _over(function, kind, x, tuple(range(x.ndim)), False)


def _is_index(value: Any) -> bool:
    """Whether `value` is an axis, such as a NumPy int. An array without axes is an operand, as in PyTorch."""
    return isinstance(value, np.integer) or not hasattr(value, "shape")


def _over(function: str, kind: Kind, x: Array, axes: tuple[int, ...], keepdim: bool) -> Array:
    """The maximum or minimum over `axes`; tied elements share the cotangent."""
    with args.call(function, x):
        _check_filled(x, axes)
    return reduce(x, axes, kind, "split", "jvp", keepdim)


@args.also_numpy
@public
def max(
    input: Any, dim: Any = MISSING, keepdim: Any = MISSING, *, other: Any = MISSING
) -> Array | Chosen:
    """Computes the largest element of all, along an axis, or of two arrays, as `torch.max`.

    `max(input)`, `max(input, dim, keepdim=False)` or `max(input, other)`.

    Gradient: without `dim`, tied elements share the cotangent equally, and NaNs tie with each other. With `dim`, the
    first tied element or the first NaN gets the cotangent. With `other`, see `maximum`. Indices are int32. There is
    no `out`, because jax arrays are immutable.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis.
      keepdim: whether the axis stays, with size 1.
      other: an array, instead of `dim`.

    Returns:
      Array without axes; with `dim`, a named tuple `(values, indices)`; with `other`, the result of `maximum`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or there is no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> values, indices = torch.max(jnp.array([[1.0, 3.0, 3.0]]), dim=1)
      >>> values, indices
      (Array([3.], dtype=float32), Array([1], dtype=int32))
    """
    return _extreme("max", "max", input, dim, keepdim, other)


@args.also_numpy
@public
def min(
    input: Any, dim: Any = MISSING, keepdim: Any = MISSING, *, other: Any = MISSING
) -> Array | Chosen:
    """Computes the smallest element of all, along an axis, or of two arrays, as `torch.min`.

    `min(input)`, `min(input, dim, keepdim=False)` or `min(input, other)`. Gradient as in `max`.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis.
      keepdim: whether the axis stays, with size 1.
      other: an array, instead of `dim`.

    Returns:
      Array without axes; with `dim`, a named tuple `(values, indices)`; with `other`, the result of `minimum`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or there is no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.min(jnp.array([4, 2, 3]))
      Array(2, dtype=int32)
    """
    return _extreme("min", "min", input, dim, keepdim, other)


def over_dims(function: str, kind: Kind, input: Any, dim: Any, keepdim: Any) -> Array:
    x = args.tensor(function, input, ORDERED)
    with args.call(function, x):
        args.check_flag("keepdim", keepdim)
        entries = tuple(dim) if is_tuple_or_list(dim) else () if dim is None else (dim,)
        axes = [args.axis_of(entry, x.ndim) for entry in entries] or list(range(x.ndim))
        if len(set(axes)) != len(axes):
            raise ArgumentError("dim", "distinct axes", dim, "Name each axis once.")
    return _over(function, kind, x, tuple(axes) if x.ndim else (), keepdim)


@args.also_numpy
@public
def amax(input: Any, dim: int | Sequence[int] | None = (), keepdim: bool = False) -> Array:
    """Computes the largest element along axes, as `torch.amax`.

    Gradient: tied elements share the cotangent equally. Unlike PyTorch, NaNs tie with each other and share the
    cotangent. In PyTorch, all elements that are reduced with a NaN get NaN.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis or distinct axes; () or None is all axes.
      keepdim: whether reduced axes stay, with size 1.

    Returns:
      Array without the reduced axes; the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a reduced axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.amax(jnp.array([[1, 3], [2, 0]]), dim=0)
      Array([2, 3], dtype=int32)
    """
    return over_dims("amax", "max", input, dim, keepdim)


@args.also_numpy
@public
def amin(input: Any, dim: int | Sequence[int] | None = (), keepdim: bool = False) -> Array:
    """Computes the smallest element along axes, as `torch.amin`. Gradient as in `amax`.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis or distinct axes; () or None is all axes.
      keepdim: whether reduced axes stay, with size 1.

    Returns:
      Array without the reduced axes; the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a reduced axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.amin(jnp.array([[1, 3], [2, 0]]), dim=0)
      Array([1, 0], dtype=int32)
    """
    return over_dims("amin", "min", input, dim, keepdim)


def _running(function: str, kind: Kind, input: Any, dim: Any) -> Chosen:
    x = args.tensor(function, input, ORDERED)
    with args.call(function, x):
        axis = args.axis_of(dim, x.ndim)
        if x.ndim:
            check_fits_int32_indices("input", static_sizes(x.shape, (axis,), min_size=0))
    if not x.ndim or 0 in x.shape:
        return Chosen(x, jnp.zeros(x.shape, jnp.int32))
    values, index = apply_with_residual(Running(kind, "last", axis, False), "jvp", x)
    return Chosen(values, index.astype(jnp.int32))


@args.also_numpy
@public
def cummax(input: Any, dim: int) -> Chosen:
    """Computes the running maximum along an axis, as `torch.cummax`.

    Gradient: to the last of tied elements so far, or to the last NaN so far. Indices are int32.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis.

    Returns:
      A named tuple `(values, indices)` of the shape of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: `dim` is not an axis of input.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.cummax(jnp.array([1, 3, 3, 2]), dim=0).indices
      Array([0, 1, 2, 2], dtype=int32)
    """
    return _running("cummax", "max", input, dim)


@args.also_numpy
@public
def cummin(input: Any, dim: int) -> Chosen:
    """Computes the running minimum along an axis, as `torch.cummin`. Gradient as in `cummax`.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis.

    Returns:
      A named tuple `(values, indices)` of the shape of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: `dim` is not an axis of input.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.cummin(jnp.array([2, 3, 2, 1]), dim=0).values
      Array([2, 2, 2, 1], dtype=int32)
    """
    return _running("cummin", "min", input, dim)
