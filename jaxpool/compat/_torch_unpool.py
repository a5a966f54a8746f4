"""The max unpooling of `torch.nn.functional`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._api import argmax
from jaxpool._arguments.arrays import as_integer_array
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import check_divisible, sharding_from_type
from jaxpool._arguments.sizes import (
    check_fits_int32_indices,
    is_int,
    is_tuple_or_list,
    static_sizes,
)
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, IntOrInts
from jaxpool.compat._torch_public import make_pool


def _unpooled_sizes(
    x: Array, num_spatial_dims: int, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> tuple[int, ...]:
    """The sizes after unpooling: by default the sizes that the windows of the pool cover exactly.

    `output_size` must differ from the default by less than a stride.
    """
    window_sizes = args.ints_per_spatial_dim(
        "kernel_size", kernel_size, num_spatial_dims, accept_one_entry=False
    )
    strides = (
        window_sizes
        if stride is None
        else args.ints_per_spatial_dim("stride", stride, num_spatial_dims, accept_one_entry=False)
    )
    pads = args.ints_per_spatial_dim(
        "padding", padding, num_spatial_dims, min_value=-(2**31), accept_one_entry=False
    )
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    pooled_sizes = static_sizes(shape, args.spatial_axes(x, num_spatial_dims))
    default_sizes = [
        (size - 1) * step + width - 2 * pad
        for size, step, width, pad in zip(pooled_sizes, strides, window_sizes, pads, strict=True)
    ]
    if output_size is None:
        if min(default_sizes) < 1:
            rule = f"such that something is left; the sizes would be {tuple(default_sizes)}"
            raise ArgumentError("padding", rule, padding, "Use the padding of the pool.")
        return tuple(default_sizes)
    rule = f"None, or {num_spatial_dims} or {num_spatial_dims + 2} ints"
    hint = "Pass the shape of what was pooled."
    if not is_tuple_or_list(output_size) or not all(map(is_int, output_size)):
        raise ArgumentError("output_size", rule, output_size, hint, TypeError)
    sizes = tuple(map(operator.index, output_size))
    sizes = sizes[2:] if len(sizes) == num_spatial_dims + 2 else sizes
    if len(sizes) != num_spatial_dims:
        raise ArgumentError("output_size", rule, output_size, hint)
    for size, default_size, step in zip(sizes, default_sizes, strides, strict=True):
        if not max(0, default_size - step) < size < default_size + step:
            rule = f"less than a stride from {tuple(default_sizes)}, and positive"
            raise ArgumentError("output_size", rule, output_size, hint)
    return sizes


_MAX_UNPOOL_DOC = """\
Puts each element back where `max_pool{nd}` found it, as `torch.nn.functional.max_unpool{nd}`.

Of elements with the same index the last stays. Gradient: an element that stays gets the cotangent
at its index, and an element that was overwritten gets 0. PyTorch gives an overwritten element the
cotangent too, which is not the derivative of what it computes.

Args:
  input: array of floats {shape}.
  indices: integers of that shape, of any type; positions in the result. One out of range raises
    where its value is known, and is dropped where it is traced.
  kernel_size: of the pool: {sizes}.
  stride: of the pool; None is `kernel_size`.
  padding: of the pool.
  output_size: the sizes of the result, with or without N and C, each less than a stride from
    `(size - 1) * stride + kernel_size - 2 * padding`, which None stands for.

Returns:
  Array {targets} of the dtype of input, zeros elsewhere.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch as F
  >>> x, at = jnp.array([3.0, 5.0]).reshape{row}, jnp.array([1, 2]).reshape{row}
  >>> F.{name}(x, at, {window}).ravel()
  Array([0., 3., 5., 0.], dtype=float32)
"""


def _max_unpool(
    num_spatial_dims: int,
    input: Any,
    indices: Any,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    function_name = f"max_unpool{num_spatial_dims}d"
    x = args.as_array_of_dtypes(function_name, input, FLOAT_DTYPES)
    with args.name_torch_function_in_errors(function_name, x, kernel_size=kernel_size):
        args.check_shape(x, num_spatial_dims, x.ndim - 1)
        sizes = _unpooled_sizes(x, num_spatial_dims, kernel_size, stride, padding, output_size)
        check_fits_int32_indices("output_size", sizes)
        for axis, size in zip(args.spatial_axes(x, num_spatial_dims), sizes, strict=True):
            check_divisible(sharding_from_type(x), axis, size, "output_size", sizes)
        hint = (
            f"Pass the indices that max_pool{num_spatial_dims}d returned with input, and its sizes."
        )
        as_integer_array("indices", indices, x.shape, math.prod(sizes), hint, "input")
    return argmax.max_unpool(x, indices, sizes, axes=args.spatial_axes(x, num_spatial_dims))


max_unpool1d = make_pool(1, _max_unpool, _MAX_UNPOOL_DOC)
max_unpool2d = make_pool(2, _max_unpool, _MAX_UNPOOL_DOC)
max_unpool3d = make_pool(3, _max_unpool, _MAX_UNPOOL_DOC)
