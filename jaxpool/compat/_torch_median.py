"""The medians of `torch`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.calls import public
from jaxpool._kernels.dtypes import is_float
from jaxpool._ops.apply import apply
from jaxpool._ops.rank_pool import LowerMedian
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, INT_DTYPES
from jaxpool.compat._torch_reduce import (
    NOT_PASSED,
    ValuesAndIndices,
    check_keepdim_has_dim,
    reduce_with_indices,
)


def _median(
    function_name: str, input: Any, dim: Any, keepdim: Any, ignores_nan: bool
) -> Array | ValuesAndIndices:
    x = args.as_array_of_dtypes(function_name, input, (*FLOAT_DTYPES, *INT_DTYPES))
    op = functools.partial(LowerMedian, "max", ignores_nan=ignores_nan)
    if dim is not NOT_PASSED:
        return reduce_with_indices(function_name, op, x, dim, keepdim)
    with args.name_torch_function_in_errors(function_name, x):
        check_keepdim_has_dim(dim, keepdim)
    if 0 in x.shape:
        empty_value = np.nan if is_float(x.dtype) else jnp.iinfo(x.dtype).min
        return jnp.full((), empty_value, x.dtype)
    flat_x = lax.reshape(x, (x.size,))
    return lax.squeeze(apply(op("split", (0,), flat_x.shape), "jvp", flat_x), (0,))


@args.accept_numpy_keywords
@public
def median(
    input: Any, dim: Any = NOT_PASSED, keepdim: Any = NOT_PASSED
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
    input: Any, dim: Any = NOT_PASSED, keepdim: Any = NOT_PASSED
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
