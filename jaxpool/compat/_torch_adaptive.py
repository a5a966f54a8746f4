"""The adaptive pools of `torch.nn.functional`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.sharding import (
    call_with_auto_sharding,
    check_unsharded,
    sharding_from_type,
)
from jaxpool._arguments.sizes import check_fits_int32_indices, is_tuple_or_list
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import AdaptiveWindow
from jaxpool._ops.adaptive_pool import AdaptiveKind, adaptive_pool
from jaxpool._shards.adaptive import adaptive_pool_of_shards
from jaxpool._shards.split import drop_unit_axes
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, ValuesOrValuesAndIndices
from jaxpool.compat._torch_public import make_pool

OutputSizes = int | Sequence[int | None]


def _output_sizes(x: Array, num_spatial_dims: int, output_size: Any) -> tuple[int, ...]:
    """The number of windows along each pooled axis. None keeps the size of an axis, except in 1d."""
    entries = list(output_size) if is_tuple_or_list(output_size) else output_size
    if isinstance(entries, list) and num_spatial_dims > 1:
        pairs = zip(entries, x.shape[x.ndim - num_spatial_dims :], strict=False)
        entries[:num_spatial_dims] = [size if entry is None else entry for entry, size in pairs]
    return args.ints_per_spatial_dim(
        "output_size",
        entries,
        num_spatial_dims,
        min_value=0,
        accept_one_entry=num_spatial_dims == 1,
    )


def _pool_by_type(kind: AdaptiveKind, window: AdaptiveWindow, x: Array) -> Any:
    """The adaptive pool of x, of each shard if shards divide the output sizes; otherwise XLA partitions the pool."""
    sharding = sharding_from_type(x)
    pool = functools.partial(adaptive_pool, kind, window, "last_nan")
    if sharding is None or all(sharding.num_shards(axis) == 1 for axis in window.axes):
        return pool(drop_unit_axes(sharding, x, window.axes))
    uneven_axes = [dim.axis for dim in window.dims if dim.out % sharding.num_shards(dim.axis)]
    if not uneven_axes:
        return adaptive_pool_of_shards(kind, sharding, x, window, "last_nan")
    x_axes = [None if axis in uneven_axes else axis for axis in range(x.ndim)]
    return call_with_auto_sharding(pool, x_axes, x)


_ADAPTIVE_MAX_POOL_DOC = """\
Computes the largest element of each of some windows, as `torch.nn.functional.adaptive_max_pool{nd}`.

Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
Overlapping cotangents of 16-bit floats add in float32. Indices are int32.

Args:
  input: array of floats {shape}.
  output_size: how many windows, {sizes}; in 2d and 3d None keeps an axis.
  return_indices: whether to return positions too, flat in `{flat}`.

Returns:
  Array {targets} of the dtype of input; with
  `return_indices` a tuple of it and the positions.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.arange(6.0).reshape{row}, {window}).ravel()
  Array([2., 5.], dtype=float32)
"""


def _adaptive_max_pool(
    num_spatial_dims: int, input: Any, output_size: OutputSizes, return_indices: bool = False
) -> ValuesOrValuesAndIndices:
    function_name = f"adaptive_max_pool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, FLOAT_DTYPES)
    with args.name_torch_function_in_errors(function_name, x, output_size=output_size):
        return_indices = args.as_bool("return_indices", return_indices)
        args.check_shape(x, num_spatial_dims, x.ndim - 1)
        output_sizes = _output_sizes(x, num_spatial_dims, output_size)
        check_fits_int32_indices("input", x.shape[x.ndim - num_spatial_dims :])
        if 0 in output_sizes:
            return args.empty_pool_result(x, num_spatial_dims, output_sizes, return_indices)
        window = adaptive_window(x.shape, output_sizes, args.spatial_axes(x, num_spatial_dims))
        check_unsharded(x, *window.axes, checks_types=False)
    return _pool_by_type("argmax" if return_indices else "max", window, x)


_ADAPTIVE_AVG_POOL_DOC = """\
Computes the average of each of some windows, as `torch.nn.functional.adaptive_avg_pool{nd}`.

Gradient: each cotangent is spread evenly over its window. What differs from PyTorch: 16-bit
floats are added in float32 and rounded once, forward and backward.

Args:
  input: array of floats {shape}.
  output_size: how many windows, {sizes}; in 2d and 3d None keeps an axis.

Returns:
  Array {targets} of the dtype of input.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.arange(6.0).reshape{row}, {window}).ravel()
  Array([1., 4.], dtype=float32)
"""


def _adaptive_avg_pool(num_spatial_dims: int, input: Any, output_size: OutputSizes) -> Array:
    function_name = f"adaptive_avg_pool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, FLOAT_DTYPES)
    with args.name_torch_function_in_errors(function_name, x, output_size=output_size):
        args.check_shape(
            x, num_spatial_dims, x.ndim - 1 if num_spatial_dims == 3 else num_spatial_dims
        )
        output_sizes = _output_sizes(x, num_spatial_dims, output_size)
        if 0 in output_sizes:
            return jnp.zeros((*x.shape[: x.ndim - num_spatial_dims], *output_sizes), x.dtype)
        window = adaptive_window(x.shape, output_sizes, args.spatial_axes(x, num_spatial_dims))
        check_unsharded(x, *window.axes, checks_types=False)
    return _pool_by_type("mean", window, x)


adaptive_max_pool1d = make_pool(1, _adaptive_max_pool, _ADAPTIVE_MAX_POOL_DOC)
adaptive_max_pool2d = make_pool(2, _adaptive_max_pool, _ADAPTIVE_MAX_POOL_DOC)
adaptive_max_pool3d = make_pool(3, _adaptive_max_pool, _ADAPTIVE_MAX_POOL_DOC)
adaptive_avg_pool1d = make_pool(1, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL_DOC)
adaptive_avg_pool2d = make_pool(2, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL_DOC)
adaptive_avg_pool3d = make_pool(3, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL_DOC)
