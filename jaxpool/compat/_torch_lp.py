"""The Lp pools of `torch.nn.functional`: sums of signed powers, unlike `jaxpool.lp_pool`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_real_array, is_array, wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_tuple_or_list
from jaxpool._kernels import dtypes
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.windowed import apply_by_type
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, INT_DTYPES, ORDERED_DTYPES, IntOrInts
from jaxpool.compat._torch_max_pool import torch_max_pool
from jaxpool.compat._torch_public import make_pool


def _check_norm_type(norm_type: Any) -> Any:
    """`norm_type` as a number, or an array without axes."""
    rule, hint = "a number other than 0", "The Euclidean norm is 2."
    if isinstance(norm_type, (int, float)):
        if norm_type == 0 or (isinstance(norm_type, int) and abs(norm_type) >= 2**31):
            raise ArgumentError("norm_type", f"{rule}, if an int below 2**31", norm_type, hint)
        return norm_type
    if not is_array(norm_type):
        raise ArgumentError("norm_type", rule, norm_type, hint, TypeError)
    norm = as_real_array("norm_type", norm_type)
    if norm.ndim:
        raise ArgumentError("norm_type", rule, norm.shape, hint, TypeError, attribute="shape")
    return norm


_LP_POOL_DOC = """\
Computes a power average of each window, as `torch.nn.functional.lp_pool{nd}`.

`y = (sum of x^p over the window)^(1 / p)` with the powers signed: a negative sum gives NaN for
most p. For p of inf it is the largest |x|, for -inf the smallest.

Gradient: 0 where the sum is 0. What differs from PyTorch: a window cut off by `ceil_mode` is the
norm of its elements, PyTorch scales it by the window's size over their number; 16-bit floats are
computed in float32 and rounded once; with an int `norm_type` integers and bool are refused,
PyTorch rounds their averages.

Args:
  input: array {shape}; floats, with a float `norm_type` integers and bool.
  norm_type: p, a number other than 0.
  kernel_size: an int; in 2d and 3d also one per axis.
  stride: {sizes}; None is `kernel_size`.
  ceil_mode: round the output size up.

Returns:
  Array {pooled}; the dtype of input, float32 for integers.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or the output would be empty.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.array([3.0, 4.0, 0.0, 2.0]).reshape{row}, 2, {window}).ravel()
  Array([5., 2.], dtype=float32)
"""


def _lp_pool(
    num_spatial_dims: int,
    input: Any,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Array:
    function_name = f"lp_pool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, ORDERED_DTYPES)
    with args.name_torch_function_in_errors(function_name, x, kernel_size=kernel_size):
        norm = _check_norm_type(norm_type)
        is_infinite = isinstance(norm, (int, float)) and abs(norm) == np.inf
        num_sizes = len(kernel_size) if is_tuple_or_list(kernel_size) else None  # type: ignore[arg-type]
        if num_sizes is not None and (
            (num_spatial_dims == 1 and not is_infinite) or num_sizes != num_spatial_dims
        ):
            rule = "an int" if num_spatial_dims == 1 else f"an int or {num_spatial_dims} ints"
            raise ArgumentError("kernel_size", rule, kernel_size, "Pass an int.", TypeError)
        if is_infinite:
            accepted_dtypes = (*FLOAT_DTYPES, *INT_DTYPES) if num_spatial_dims > 1 else FLOAT_DTYPES
            if x.dtype not in accepted_dtypes:
                raise wrong_dtype_error("input", "floats or integers", x)
        elif x.dtype not in FLOAT_DTYPES and isinstance(norm, int):
            rule = f"floats where `norm_type` is an int, {norm}"
            raise wrong_dtype_error("input", rule, x, f"Pass norm_type={norm}.0.")
        args.check_shape(x, num_spatial_dims, num_spatial_dims + 1)
        window = args.make_torch_window(
            x, num_spatial_dims, kernel_size, stride, ceil_mode=ceil_mode
        )
    if is_infinite:
        magnitude = x * lax.stop_gradient(lax.sign(x))  # |x| with gradient 0 at 0, as in PyTorch
        if norm > 0:
            return torch_max_pool(magnitude, window)
        return -torch_max_pool(-magnitude, window)
    dtype = x.dtype if x.dtype in FLOAT_DTYPES else jnp.dtype(np.float32)
    wide_x = x.astype(dtypes.accumulator_dtype(dtype))
    total = apply_by_type(SumPool(window), wide_x**norm)
    is_zero = total == 0  # the root is not differentiable at 0; PyTorch's gradient is 0
    root = jnp.where(is_zero, 1, total) ** (1 / norm)
    return jnp.where(is_zero, jnp.zeros_like(total) ** (1 / norm), root).astype(dtype)


lp_pool1d = make_pool(1, _lp_pool, _LP_POOL_DOC)
lp_pool2d = make_pool(2, _lp_pool, _LP_POOL_DOC)
lp_pool3d = make_pool(3, _lp_pool, _LP_POOL_DOC)
