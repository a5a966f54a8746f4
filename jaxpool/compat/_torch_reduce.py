"""Maxima, minima and medians of `torch` over all elements or along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import call_with_auto_sharding, check_unsharded
from jaxpool._arguments.sizes import (
    check_bool,
    check_fits_int32_indices,
    is_tuple_or_list,
    static_sizes,
)
from jaxpool._kernels.dtypes import Kind, is_float
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool._ops.rank_pool import LowerMedian
from jaxpool._ops.reduction import Reduction
from jaxpool._shards.whole import max_or_min_by_type
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, INT_DTYPES, ORDERED_DTYPES
from jaxpool.compat._torch_elementwise import maximum, minimum, promote_to_common_dtype
from jaxpool.compat._torch_public import make_extremum

_NOT_PASSED: Any = object()


class ValuesAndIndices(NamedTuple):
    """Selected values and their indices, like PyTorch's return types."""

    values: Array
    indices: Array


@jax.custom_jvp
def _replace_value(y: Array, new_y: Array) -> Array:
    """`new_y`, with the derivative of y."""
    return new_y


@_replace_value.defjvp
def _replace_value_jvp(
    primals: tuple[Array, Array], tangents: Sequence[Array]
) -> tuple[Array, Array]:
    return primals[1], tangents[0]


def values_and_indices(x: Array, values: Array, positions: Array, axis: int) -> ValuesAndIndices:
    """The elements of x at `positions`, which equal `values` except for the sign of a zero, and int32 positions."""
    indices = positions.astype(jnp.int32)
    gather = functools.partial(jnp.take_along_axis, axis=axis, mode="promise_in_bounds")
    elements = call_with_auto_sharding(gather, range(x.ndim), x, indices)
    return ValuesAndIndices(_replace_value(values, elements), indices)


def _check_nonempty_axes(x: Array, axes: Sequence[int]) -> None:
    if 0 in static_sizes(x.shape, axes, min_size=0):
        axes_text = f"axes {axes}" if len(axes) > 1 else f"axis {axes[0]}"
        rule = f"of at least one element along {axes_text}"
        hint = "An extreme of nothing is none."
        raise ArgumentError("input", rule, x.shape, hint, attribute="shape")


def _reduce_with_indices(
    function_name: str, make_op: Callable[..., Reduction], x: Array, dim: Any, keepdim: Any
) -> ValuesAndIndices:
    """The elements that `make_op(ties, axes, sizes)` selects along an axis, and the first index of each."""
    keepdim = False if keepdim is _NOT_PASSED else keepdim
    with args.name_torch_function_in_errors(function_name, x):
        axis = args.normalise_dim(dim, x.ndim)
        check_bool("keepdim", keepdim)
        if not x.ndim:
            return ValuesAndIndices(x, jnp.zeros((), jnp.int32))
        _check_nonempty_axes(x, [axis])
        check_fits_int32_indices("input", [x.shape[axis]])
        check_unsharded(x, axis, checks_types=False)
    op = make_op("first", (axis,), (x.shape[axis],))

    def select(x: Array) -> ValuesAndIndices:
        return values_and_indices(x, *apply_with_residual(op, x), axis)

    x_axes = [None if n == axis else n for n in range(x.ndim)]
    result = call_with_auto_sharding(select, x_axes, x)
    return result if keepdim else ValuesAndIndices(*[lax.squeeze(y, (axis,)) for y in result])


def _check_keepdim_has_dim(dim: Any, keepdim: Any) -> None:
    """Raise if `keepdim` is passed without an axis."""
    if keepdim is not _NOT_PASSED and dim is _NOT_PASSED:
        raise ArgumentError("keepdim", "given with `dim`", keepdim, "Name an axis.", TypeError)


def _max_or_min(
    kind: Kind,
    input: Any,
    dim: Any = _NOT_PASSED,
    keepdim: Any = _NOT_PASSED,
    *,
    other: Any = _NOT_PASSED,
) -> Array | ValuesAndIndices:
    # A NumPy int is an axis. An array without axes is an operand, as in PyTorch.
    is_operand = is_array(dim) and not isinstance(dim, np.integer)
    if is_operand and other is _NOT_PASSED and keepdim is _NOT_PASSED:
        dim, other = _NOT_PASSED, dim
    x = args.as_array_of_dtypes(kind, input, ORDERED_DTYPES)
    names = [name for name, value in (("dim", dim), ("other", other)) if value is not _NOT_PASSED]
    with args.name_torch_function_in_errors(kind, x):
        if len(names) == 2:
            hint = "Pass one of the two."
            raise ArgumentError("other", "missing where `dim` is given", "both", hint, TypeError)
        _check_keepdim_has_dim(dim, keepdim)
    if names == ["dim"]:
        make_op = functools.partial(Reduction, kind)
        return _reduce_with_indices(kind, make_op, x, dim, keepdim)
    if names == ["other"]:
        operands = promote_to_common_dtype(kind, x, other)
        return maximum(*operands) if kind == "max" else minimum(*operands)
    return _reduce_axes(kind, kind, x, tuple(range(x.ndim)), False)


def _reduce_axes(
    function_name: str, kind: Kind, x: Array, axes: tuple[int, ...], keepdim: bool
) -> Array:
    """The maximum or minimum over `axes`; tied elements share the cotangent."""
    with args.name_torch_function_in_errors(function_name, x):
        _check_nonempty_axes(x, axes)
    return max_or_min_by_type(kind, x, axes, "split", "jvp", keepdim)


def _reduce_dims(function_name: str, kind: Kind, input: Any, dim: Any, keepdim: Any) -> Array:
    """The maximum or minimum over an axis, over several axes, or over all axes."""
    x = args.as_array_of_dtypes(function_name, input, ORDERED_DTYPES)
    with args.name_torch_function_in_errors(function_name, x):
        check_bool("keepdim", keepdim)
        entries = tuple(dim) if is_tuple_or_list(dim) else () if dim is None else (dim,)
        axes = [args.normalise_dim(entry, x.ndim) for entry in entries] or list(range(x.ndim))
        if len(set(axes)) != len(axes):
            raise ArgumentError("dim", "distinct axes", dim, "Name each axis once.")
    return _reduce_axes(function_name, kind, x, tuple(axes) if x.ndim else (), keepdim)


def _extremum_along_axes(
    kind: Kind, input: Any, dim: int | Sequence[int] | None = (), keepdim: bool = False
) -> Array:
    return _reduce_dims(f"a{kind}", kind, input, dim, keepdim)


_MAX_DOC = """\
Computes the {largest} element of all, along an axis, or of two arrays, as `torch.{name}`.

`{name}(input)`, `{name}(input, dim, keepdim=False)` or `{name}(input, other)`.

Gradient: without `dim`, tied elements share the cotangent equally, and NaNs tie with each other. With `dim`, the
first tied element or the first NaN gets the cotangent. With `other`, see `{maximum}`. Indices are int32. There is
no `out`, because jax arrays are immutable.

Args:
  input: array of any shape; floats, integers or bool.
  dim: an axis.
  keepdim: whether the axis stays, with size 1.
  other: an array, instead of `dim`.

Returns:
  Array without axes; with `dim`, a named tuple `(values, indices)`; with `other`, the result of `{maximum}`.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or there is no element.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch
  >>> values, indices = torch.{name}(jnp.array([[2.0, {tied}.0, {tied}.0]]), dim=1)
  >>> values, indices
  (Array([{tied}.], dtype=float32), Array([1], dtype=int32))
"""
_AMAX_DOC = """\
Computes the {largest} element along axes, as `torch.{name}`.

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
  >>> torch.{name}(jnp.array([[{tied}, 2], [2, {tied}]]), dim=0)
  Array([{tied}, {tied}], dtype=int32)
"""
max = args.accept_numpy_keywords(make_extremum("max", _max_or_min, _MAX_DOC))
min = args.accept_numpy_keywords(make_extremum("min", _max_or_min, _MAX_DOC))
amax = args.accept_numpy_keywords(make_extremum("amax", _extremum_along_axes, _AMAX_DOC))
amin = args.accept_numpy_keywords(make_extremum("amin", _extremum_along_axes, _AMAX_DOC))


class MinAndMax(NamedTuple):
    """The smallest and the largest elements, like PyTorch's return type."""

    min: Array
    max: Array


@args.accept_numpy_keywords
@public
def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> MinAndMax:
    """Computes the smallest and the largest element, of all or along an axis, as `torch.aminmax`.

    Gradient: tied elements share the cotangent of each result equally, as in `amax`.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis; None is all axes.
      keepdim: whether reduced axes stay, with size 1.

    Returns:
      A named tuple `(min, max)` of arrays of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a reduced axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.aminmax(jnp.array([[1, 3], [2, 0]]), dim=0)
      MinAndMax(min=Array([1, 0], dtype=int32), max=Array([2, 3], dtype=int32))
    """
    x = args.as_array_of_dtypes("aminmax", input, ORDERED_DTYPES)
    with args.name_torch_function_in_errors("aminmax", x):
        if is_tuple_or_list(dim):
            raise ArgumentError("dim", "an axis or None", dim, "Use amin and amax.", TypeError)
    extrema = (_reduce_dims("aminmax", kind, x, dim, keepdim) for kind in ("min", "max"))
    return MinAndMax(*extrema)


def _median(
    function_name: str, input: Any, dim: Any, keepdim: Any, ignores_nan: bool
) -> Array | ValuesAndIndices:
    x = args.as_array_of_dtypes(function_name, input, (*FLOAT_DTYPES, *INT_DTYPES))
    op = functools.partial(LowerMedian, "max", ignores_nan=ignores_nan)
    if dim is not _NOT_PASSED:
        return _reduce_with_indices(function_name, op, x, dim, keepdim)
    with args.name_torch_function_in_errors(function_name, x):
        _check_keepdim_has_dim(dim, keepdim)
        check_unsharded(x, *range(x.ndim), checks_types=False)
    if 0 in x.shape:
        empty_value = np.nan if is_float(x.dtype) else jnp.iinfo(x.dtype).min
        return jnp.full((), empty_value, x.dtype)

    def median_of_all(x: Array) -> Array:
        flat_x = lax.reshape(x, (x.size,))
        return lax.squeeze(apply(op("split", (0,), flat_x.shape), flat_x), (0,))

    return call_with_auto_sharding(median_of_all, (), x)


@args.accept_numpy_keywords
@public
def median(
    input: Any, dim: Any = _NOT_PASSED, keepdim: Any = _NOT_PASSED
) -> Array | ValuesAndIndices:
    """Computes the median of all elements, or along an axis, as `torch.median`.

    `median(input)` or `median(input, dim, keepdim=False)`. The median of an even number of elements is the lower of the
    two middle elements. If an element is NaN, the median is NaN.

    Gradient: without `dim`, the elements equal to the median share the cotangent equally, and NaNs tie with each other.
    With `dim`, the element at `indices` gets the cotangent. It is the first of equal elements, which PyTorch does not
    specify, or the first NaN, as in PyTorch. Indices are int32.

    Args:
      input: array of any shape; floats or integers.
      dim: an axis.
      keepdim: whether the axis stays, with size 1.

    Returns:
      Array without axes; with `dim`, a named tuple `(values, indices)`. The median of no elements is NaN, or the lowest
      value of an integer dtype.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> values, indices = torch.median(jnp.array([[4.0, 1.0, 3.0, 2.0]]), dim=1)
      >>> values, indices
      (Array([2.], dtype=float32), Array([3], dtype=int32))
    """
    return _median("median", input, dim, keepdim, False)


@args.accept_numpy_keywords
@public
def nanmedian(
    input: Any, dim: Any = _NOT_PASSED, keepdim: Any = _NOT_PASSED
) -> Array | ValuesAndIndices:
    """Computes the median of the elements that are not NaN, of all or along an axis, as `torch.nanmedian`.

    If all elements are NaN, the median is NaN. Gradient and indices as in `median`.

    Args:
      input: array of any shape; floats or integers.
      dim: an axis.
      keepdim: whether the axis stays, with size 1.

    Returns:
      Array without axes; with `dim`, a named tuple `(values, indices)`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.nanmedian(jnp.array([4.0, jnp.nan, 1.0, 3.0]))
      Array(3., dtype=float32)
    """
    return _median("nanmedian", input, dim, keepdim, True)
