"""The fractional max pools of `torch.nn.functional`, with windows at random positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import Array, lax

from jaxpool._api.random import as_prng_key, fractional_axes, uniform
from jaxpool._arguments.arrays import as_jax_array, is_array, is_number, wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import check_unsharded
from jaxpool._arguments.sizes import check_fits_int32_indices, is_tuple_or_list
from jaxpool._ops.apply import apply_with_residual
from jaxpool._ops.fractional import FractionalMax
from jaxpool._ops.random_pool import uniform_dtype
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, IntOrInts, ValuesOrValuesAndIndices
from jaxpool.compat._torch_public import make_pool


def _output_sizes(
    x: Array, num_spatial_dims: int, output_size: Any, output_ratio: Any
) -> tuple[int, ...]:
    """The number of windows along each pooled axis."""
    if output_size is not None:
        return args.ints_per_spatial_dim(
            "output_size", output_size, num_spatial_dims, min_value=0, accept_one_entry=False
        )
    if output_ratio is None:
        rule = "given without `output_ratio`"
        raise ArgumentError("output_size", rule, None, "Pass one of the two.")
    rule = f"{num_spatial_dims} numbers"
    hint = f"Pass a tuple such as {(0.5,) * num_spatial_dims}."
    is_single = is_number(output_ratio) and num_spatial_dims == 3
    ratios = (output_ratio,) * num_spatial_dims if is_single else output_ratio
    if not is_tuple_or_list(ratios):
        raise ArgumentError("output_ratio", rule, output_ratio, hint, TypeError)
    if len(ratios) < num_spatial_dims or (num_spatial_dims == 2 and len(ratios) > num_spatial_dims):
        raise ArgumentError("output_ratio", rule, output_ratio, hint)
    if not all(is_number(ratio) and math.isfinite(ratio) for ratio in ratios):
        raise ArgumentError("output_ratio", rule, output_ratio, hint, TypeError)
    pairs = zip(x.shape[x.ndim - num_spatial_dims :], ratios, strict=False)
    return args.ints_per_spatial_dim(
        "output_ratio", [int(size * ratio) for size, ratio in pairs], num_spatial_dims, min_value=0
    )


def _check_windows_fit(
    spatial_shape: Sequence[int], kernel_size: Sequence[int], output_size: Sequence[int]
) -> None:
    """Raise unless the windows fit. In 3d, PyTorch requires one spare element per axis."""
    check_fits_int32_indices("input", spatial_shape)
    num_spare = int(len(spatial_shape) == 3)
    for size, width, out in zip(spatial_shape, kernel_size, output_size, strict=True):
        if out + width - 1 + num_spare > size:
            rule = f"such that windows + kernel_size - 1 is at most {size - num_spare}, for size {size}"
            hint = "Ask for fewer windows, or smaller ones."
            raise ArgumentError("output_size", rule, out, hint)


def _random_samples_or_draw(x: Array, num_spatial_dims: int, samples: Any, key: Any) -> Array:
    """The random numbers `(N, C, num_spatial_dims)` that determine the positions of the windows."""
    batch = 1 if x.ndim == num_spatial_dims + 1 else x.shape[0]
    channels = x.shape[x.ndim - num_spatial_dims - 1]
    if samples is None:
        if key is None:
            rule = "given, or else `_random_samples`"
            raise ArgumentError("key", rule, None, "Pass jax.random.key(0), say.", TypeError)
        key = as_prng_key(key, "a PRNG key", "Pass jax.random.key(0), say.")
        return uniform(key, (batch, channels, num_spatial_dims), uniform_dtype(x.dtype))
    rule = f"an array ({batch}, {channels}, {num_spatial_dims}) of the dtype of `input`"
    hint = f"Pass jax.random.uniform(key, ({batch}, {channels}, {num_spatial_dims}), input.dtype)."
    if not is_array(samples):
        raise ArgumentError("_random_samples", rule, samples, hint, TypeError)
    samples = as_jax_array("_random_samples", samples)
    if samples.dtype != x.dtype:
        raise wrong_dtype_error("_random_samples", rule, samples, hint)
    fits = samples.ndim == 3 and samples.shape[1:] == (channels, num_spatial_dims)
    if not fits or samples.shape[0] < batch:
        raise ArgumentError("_random_samples", rule, samples.shape, hint, attribute="shape")
    return lax.stop_gradient(samples[:batch])  # PyTorch has no gradient for samples either


_FRACTIONAL_MAX_POOL_DOC = """\
Computes the largest element of windows at random distances, as `torch.nn.functional.fractional_max_pool{nd}`.

The same `_random_samples` place the same windows as in PyTorch. Without them `key` is needed:
there is no hidden generator.

Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
Indices are int32.

Args:
  input: array of floats {shape}.
  kernel_size: {sizes}.
  output_size: how many windows, {sizes}; in 3d with the window at most the input's size, where
    2d takes one more.
  output_ratio: in its place, numbers by which to multiply the pooled sizes; in 3d also one.
  return_indices: whether to return positions too, flat in `{flat}`.
  _random_samples: numbers in [0, 1) of the dtype of input, one per axis for each N and C; in 2d
    width before height, in 3d in the order of the axes.
  key: a PRNG key to draw them with.

Returns:
  Array {targets} of the dtype of input; with
  `return_indices` a tuple of it and the positions.

Raises:
  TypeError: an argument is of the wrong kind, or both `key` and `_random_samples` are missing.
  ValueError: an argument has a wrong value, or the windows do not fit.

Example:
  >>> import jax, jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> F.{name}(jnp.ones({large}), 2, 3, key=jax.random.key(0)).shape
  {small}
"""


def _fractional_max_pool(
    num_spatial_dims: int,
    input: Any,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
    *,
    key: Any = None,
) -> ValuesOrValuesAndIndices:
    function_name = f"fractional_max_pool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, FLOAT_DTYPES)
    with args.name_torch_function_in_errors(function_name, x, kernel_size=kernel_size):
        return_indices = args.as_bool("return_indices", return_indices)
        args.check_shape(x, num_spatial_dims, x.ndim - 1)
        window_sizes = args.ints_per_spatial_dim(
            "kernel_size", kernel_size, num_spatial_dims, accept_one_entry=False
        )
        output_sizes = _output_sizes(x, num_spatial_dims, output_size, output_ratio)
        _check_windows_fit(x.shape[x.ndim - num_spatial_dims :], window_sizes, output_sizes)
        samples = _random_samples_or_draw(x, num_spatial_dims, _random_samples, key)
        if 0 in output_sizes:
            return args.empty_pool_result(x, num_spatial_dims, output_sizes, return_indices)
        axes = args.spatial_axes(x, num_spatial_dims)
        check_unsharded(x, *axes)
        dims = fractional_axes(x.shape, window_sizes, output_sizes, axes, samples.dtype.name)
    sample_shape = (*x.shape[: x.ndim - num_spatial_dims], *(1,) * num_spatial_dims)
    samples_by_axis = [
        lax.index_in_dim(samples, axis, axis=-1).reshape(sample_shape)
        for axis in range(num_spatial_dims)
    ]
    # In 2d, PyTorch's first number is for the width.
    ordered_samples = samples_by_axis if num_spatial_dims == 3 else samples_by_axis[::-1]
    op = FractionalMax(dims, "last_nan")
    y, residual = apply_with_residual(op, x, *ordered_samples)
    return (y, op.position(residual)) if return_indices else y


fractional_max_pool2d = make_pool(2, _fractional_max_pool, _FRACTIONAL_MAX_POOL_DOC)
fractional_max_pool3d = make_pool(3, _fractional_max_pool, _FRACTIONAL_MAX_POOL_DOC)
