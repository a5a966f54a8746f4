"""The windowed max, average and Lp pools of `torch.nn.functional`.

Lp pools add signed powers, unlike `jaxpool.lp_pool`.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_real_array, is_array, wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._arguments.sizes import check_bool, check_fits_int32_indices, is_int, is_tuple_or_list
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._ops.select_pool import max_pool_with_position, select_pool
from jaxpool._ops.sum_pool import Divisor, sum_pool
from jaxpool._shards.windowed import (
    max_pool_with_position_of_shard,
    pool_by_type,
    select_pool_of_shard,
    sum_pool_of_shard,
)
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import (
    FLOAT_DTYPES,
    INT_DTYPES,
    ORDERED_DTYPES,
    IntOrInts,
    ValuesOrValuesAndIndices,
)
from jaxpool.compat._torch_public import make_pool

_MAX_POOL_DOC = """\
Computes the largest element of each window, as `torch.nn.functional.max_pool{nd}`.

Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
Overlapping cotangents of 16-bit floats add in float32. Indices are int32.

Args:
  input: array {shape}; floats, and integers but for uint16 and wider, in 1d with
    `return_indices` alone.
  kernel_size: {sizes}.
  stride: {sizes}; None is `kernel_size`.
  padding: {sizes}, on both sides; at most half the window.
  dilation: {sizes}: the distance between neighbouring taps.
  ceil_mode: round the output size up; a window that would begin in the high padding is dropped.
  return_indices: whether to return positions too, flat in `{flat}`, for `max_unpool{nd}`.

Returns:
  Array {pooled} of the dtype of input; with
  `return_indices` a tuple of it and the positions.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or the output would be empty.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.array([1.0, 3.0, 5.0, 2.0]).reshape{row}, {window})[0].ravel()
  Array([3., 5.], dtype=float32)
"""


def _max_pool(
    num_spatial_dims: int,
    input: Any,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> ValuesOrValuesAndIndices:
    function_name = f"max_pool{num_spatial_dims}d"
    with name_function_in_errors(f"compat.torch.{function_name}"):
        return_indices = args.as_bool("return_indices", return_indices)
    int_dtypes = INT_DTYPES if num_spatial_dims > 1 or return_indices else ()  # as in PyTorch
    x = args.as_array_of_dtypes(function_name, input, (*FLOAT_DTYPES, *int_dtypes))
    with args.name_torch_function_in_errors(function_name, x, kernel_size=kernel_size):
        args.check_shape(x, num_spatial_dims, num_spatial_dims + 1)
        window = args.make_torch_window(
            x, num_spatial_dims, kernel_size, stride, padding, dilation, ceil_mode
        )
        if return_indices:
            check_fits_int32_indices("input", window.input_shape)
    if not return_indices:
        return _max_of_windows(x, window)
    pools = max_pool_with_position, max_pool_with_position_of_shard
    return pool_by_type(*pools, window, x, "last_nan")


def _max_of_windows(x: Array, window: Window) -> Array:
    """The largest element of each window. The first tied element or the last NaN is selected, as in PyTorch."""
    return pool_by_type(select_pool, select_pool_of_shard, window, x, "max", "last_nan")


max_pool1d = make_pool(1, _max_pool, _MAX_POOL_DOC)
max_pool2d = make_pool(2, _max_pool, _MAX_POOL_DOC)
max_pool3d = make_pool(3, _max_pool, _MAX_POOL_DOC)


def _sum_of_windows(x: Array, window: Window, divisor: Divisor) -> Array:
    return pool_by_type(sum_pool, sum_pool_of_shard, window, x, divisor)


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
        divisor = _divisor_rule(divisor_override, count_include_pad)
        if x.dtype in FLOAT_DTYPES:
            return _sum_of_windows(x, window, divisor)
        return jnp.trunc(_sum_of_windows(x.astype(jnp.float64), window, divisor)).astype(x.dtype)


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
        num_sizes = len(kernel_size) if is_tuple_or_list(kernel_size) else None
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
            return _max_of_windows(magnitude, window)
        return -_max_of_windows(-magnitude, window)
    dtype = x.dtype if x.dtype in FLOAT_DTYPES else jnp.dtype(np.float32)
    wide_x = x.astype(dtypes.accumulator_dtype(dtype))
    # Explicit transfers, which jax.transfer_guard("disallow") permits; numbers stay weakly typed.
    with np.errstate(over="ignore"):  # a large norm becomes infinite
        # The power with an int is a product, without a transfer.
        powers = wide_x ** (norm if isinstance(norm, int) else jax.device_put(norm))
        inverse_norm = jax.device_put(1 / norm)
    total = _sum_of_windows(powers, window, "not")
    zero, one = (jax.device_put(np.asarray(n, total.dtype)) for n in (0, 1))
    is_zero = total == zero  # the root is not differentiable at 0; PyTorch's gradient is 0
    root = jnp.where(is_zero, one, total) ** inverse_norm
    return jnp.where(is_zero, zero**inverse_norm, root).astype(dtype)


lp_pool1d = make_pool(1, _lp_pool, _LP_POOL_DOC)
lp_pool2d = make_pool(2, _lp_pool, _LP_POOL_DOC)
lp_pool3d = make_pool(3, _lp_pool, _LP_POOL_DOC)
