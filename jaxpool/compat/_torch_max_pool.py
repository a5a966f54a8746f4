"""The windowed max pools of `torch.nn.functional`."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._arguments.errors import name_function_in_errors
from jaxpool._arguments.sizes import check_fits_int32_indices
from jaxpool._geometry.window import Window
from jaxpool._ops.select_pool import SelectPool
from jaxpool._shards.split import shard_pool_by_window
from jaxpool._shards.windowed import apply_by_type, max_pool_with_position
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, INT_DTYPES, IntOrInts, ValuesOrValuesAndIndices
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
        return torch_max_pool(x, window)
    return shard_pool_by_window(x, window).run(max_pool_with_position, x, "last_nan")


def torch_max_pool(x: Array, window: Window) -> Array:
    """The largest element of each window. The first tied element or the last NaN is selected, as in PyTorch."""
    return apply_by_type(SelectPool(window, "max", "last_nan"), x)


max_pool1d = make_pool(1, _max_pool, _MAX_POOL_DOC)
max_pool2d = make_pool(2, _max_pool, _MAX_POOL_DOC)
max_pool3d = make_pool(3, _max_pool, _MAX_POOL_DOC)
