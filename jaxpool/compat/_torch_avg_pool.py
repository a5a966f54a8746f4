"""The windowed average pools of `torch.nn.functional`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_bool, is_int
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.windowed import apply_by_type
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, IntOrInts
from jaxpool.compat._torch_public import make_pool


def _divisor_rule(divisor: Any, count_include_pad: Any) -> Any:
    check_bool("count_include_pad", count_include_pad)
    if divisor is None:
        return "counted" if count_include_pad else "real"
    rule, hint = "an int other than 0, below 2**63, or None", "None divides by the count."
    if not is_int(divisor):
        raise ArgumentError("divisor_override", rule, divisor, hint, TypeError)
    if operator.index(divisor) == 0 or abs(operator.index(divisor)) >= 2**63:
        raise ArgumentError("divisor_override", rule, divisor, hint)
    return float(operator.index(divisor))


_AVG_POOL_DOC = """\
Computes the average of each window, as `torch.nn.functional.avg_pool{nd}`.

Gradient: each cotangent is spread evenly over its window. What differs from PyTorch: 16-bit
floats are added in float32 and rounded once, forward and backward.

Args:
  input: array {shape}; floats, or int64, which is rounded towards zero.
  kernel_size: {sizes}; in 3d at most the input's size.
  stride: {sizes}; None is `kernel_size`.
  padding: {sizes}, on both sides; at most half the window.
  ceil_mode: round the output size up; a window that would begin in the high padding is dropped.
  count_include_pad: True divides by the window, padding counted but a ceil overhang not; False
    by the number of real elements.
  divisor_override: in 2d and 3d alone, an int other than 0 to divide by in place of a count.

Returns:
  Array {pooled} of the dtype of input.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or the output would be empty.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.array([1.0, 3.0, 5.0, 2.0]).reshape{row}, {window}).ravel()
  Array([2. , 3.5], dtype=float32)
"""


def _avg_pool(
    num_spatial_dims: int,
    input: Any,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    function_name = f"avg_pool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, (*FLOAT_DTYPES, np.dtype(np.int64)))
    with args.name_torch_function_in_errors(function_name, x, kernel_size=kernel_size):
        args.check_shape(x, num_spatial_dims, num_spatial_dims + 1)
        window = args.make_torch_window(
            x, num_spatial_dims, kernel_size, stride, padding, 1, ceil_mode
        )
        if num_spatial_dims == 3 and any(dim.window > dim.size for dim in window.dims):
            rule, hint = "at most the input, without its padding", "Use jaxpool.avg_pool."
            raise ArgumentError("kernel_size", rule, kernel_size, hint)
        op = SumPool(window, _divisor_rule(divisor_override, count_include_pad))
        if x.dtype in FLOAT_DTYPES:
            return apply_by_type(op, x)
        return jnp.trunc(apply_by_type(op, x.astype(jnp.float64))).astype(x.dtype)


def _avg_pool1d(
    num_spatial_dims: int,
    input: Any,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """The 1d pool, which has no `divisor_override` in PyTorch."""
    return _avg_pool(
        num_spatial_dims, input, kernel_size, stride, padding, ceil_mode, count_include_pad
    )


avg_pool1d = make_pool(1, _avg_pool1d, _AVG_POOL_DOC)
avg_pool2d = make_pool(2, _avg_pool, _AVG_POOL_DOC)
avg_pool3d = make_pool(3, _avg_pool, _AVG_POOL_DOC)
