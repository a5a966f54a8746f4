"""The running maxima, minima and logsumexp of `torch`."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.decorator import public
from jaxpool._arguments.sharding import check_unsharded
from jaxpool._arguments.sizes import check_fits_int32_indices, static_sizes
from jaxpool._kernels.dtypes import Kind
from jaxpool._ops.apply import apply_with_residual
from jaxpool._ops.cumulative import RunningExtremum, running_logsumexp
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, ORDERED_DTYPES
from jaxpool.compat._torch_public import make_extremum
from jaxpool.compat._torch_reduce import ValuesAndIndices, values_and_indices


def _cumulative_extremum(kind: Kind, input: Any, dim: int) -> ValuesAndIndices:
    function_name = f"cum{kind}"
    x = args.as_array_of_dtypes(function_name, input, ORDERED_DTYPES)
    with args.name_torch_function_in_errors(function_name, x):
        axis = args.normalise_dim(dim, x.ndim)
        if x.ndim:
            check_fits_int32_indices("input", static_sizes(x.shape, (axis,), min_size=0))
            check_unsharded(x, axis, checks_types=False)
    if not x.ndim or 0 in x.shape:
        return ValuesAndIndices(x, jnp.zeros(x.shape, jnp.int32))
    selected = apply_with_residual(RunningExtremum(kind, "last", axis, False), x)
    return values_and_indices(x, *selected, axis)


_CUMMAX_DOC = """\
Computes the running {maximum} along an axis, as `torch.{name}`.

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
  >>> torch.{name}(jnp.array([2, {tied}, {tied}, 2]), dim=0).indices
  Array([0, 1, 2, 2], dtype=int32)
"""
cummax = args.accept_numpy_keywords(make_extremum("cummax", _cumulative_extremum, _CUMMAX_DOC))
cummin = args.accept_numpy_keywords(make_extremum("cummin", _cumulative_extremum, _CUMMAX_DOC))


@args.accept_numpy_keywords
@public
def logcumsumexp(input: Any, dim: int) -> Array:
    """Computes the logarithm of the running sum of exponentials along an axis, as `torch.logcumsumexp`.

    `y[i] = log(sum over j <= i of exp(x[j]))`. Each sum is scaled by its largest element, so nothing overflows.

    Gradient: `dx[j] = sum over i >= j of dy[i] * exp(x[j] - y[i])`, by a reverse scan that does not overflow for any
    signs of the cotangents. If all elements of a sum are -inf, or some are +inf, these elements have equal shares.
    PyTorch gives NaN there. 16-bit floats are computed in float32 and rounded once.

    Args:
      input: array of any shape; floats, not complex numbers.
      dim: an axis.

    Returns:
      Array of the shape and dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: `dim` is not an axis of input, or the axis has a symbolic size.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.logcumsumexp(jnp.array([0.0, 0.0, 2.0]), dim=0).round(3)
      Array([0.   , 0.693, 2.24 ], dtype=float32)
    """
    x = args.as_array_of_dtypes("logcumsumexp", input, FLOAT_DTYPES)
    with args.name_torch_function_in_errors("logcumsumexp", x):
        axis = args.normalise_dim(dim, x.ndim)
        if x.ndim:
            static_sizes(x.shape, (axis,), min_size=0)
            check_unsharded(x, axis, checks_types=False)
    if not x.ndim or 0 in x.shape:
        return x
    return running_logsumexp(x, axis)
