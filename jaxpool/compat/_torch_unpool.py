"""The max unpooling of `torch.nn.functional`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._api.argmax import check_indices, max_unpool
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_countable, is_int, is_sequence, known_sizes
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, Sizes


def _unpooled(
    x: Array, rank: int, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> tuple[int, ...]:
    """The sizes after unpooling: those that a pool without a rest would have had, or `output_size` near them."""
    kernel = args.sizes("kernel_size", kernel_size, rank, short=False)
    strides = kernel if stride is None else args.sizes("stride", stride, rank, short=False)
    pads = args.sizes("padding", padding, rank, least=-(2**31), short=False)
    pooled = known_sizes(x.shape, args.spatial(x, rank))
    usual = [
        (size - 1) * step + width - 2 * pad
        for size, step, width, pad in zip(pooled, strides, kernel, pads, strict=True)
    ]
    if output_size is None:
        if min(usual) < 1:
            rule = f"such that something is left; the sizes would be {tuple(usual)}"
            raise ArgumentError("padding", rule, padding, "Use the padding of the pool.")
        return tuple(usual)
    rule = f"None, or {rank} or {rank + 2} ints"
    hint = "Pass the shape of what was pooled."
    if not is_sequence(output_size) or not all(map(is_int, output_size)):
        raise ArgumentError("output_size", rule, output_size, hint, TypeError)
    sizes = tuple(map(operator.index, output_size))
    sizes = sizes[2:] if len(sizes) == rank + 2 else sizes
    if len(sizes) != rank:
        raise ArgumentError("output_size", rule, output_size, hint)
    for size, middle, step in zip(sizes, usual, strides, strict=True):
        if not max(0, middle - step) < size < middle + step:
            rule = f"less than a stride from {tuple(usual)}, and positive"
            raise ArgumentError("output_size", rule, output_size, hint)
    return sizes


def _max_unpool(
    function: str,
    rank: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Array:
    x = args.tensor(function, input, FLOATS)
    at = as_array(f"compat.torch.{function}", indices, "indices")
    with args.call(function, x, kernel_size=kernel_size):
        args.check_shape(x, rank, x.ndim - 1)
        sizes = _unpooled(x, rank, kernel_size, stride, padding, output_size)
        check_countable("output_size", sizes)
        check_indices(at, indices, x, math.prod(sizes), "input", f"max_pool{rank}d")
    return max_unpool(x, indices, sizes, axes=args.spatial(x, rank))


@public
def max_unpool2d(
    input: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Puts each element back where `max_pool2d` found it, as `torch.nn.functional.max_unpool2d`.

    Of elements with the same index the last stays. Gradient: each element, also one that was
    overwritten, gets the cotangent at its index.

    Args:
      input: array of floats `(N, C, H, W)` or `(C, H, W)`.
      indices: integers of that shape, of any type; positions in the result. One out of range raises
        where its value is known, and is dropped where it is traced.
      kernel_size: of the pool: an int, or one per axis.
      stride: of the pool; None is `kernel_size`.
      padding: of the pool.
      output_size: the sizes of the result, with or without N and C, each less than a stride from
        `(size - 1) * stride + kernel_size - 2 * padding`, which None stands for.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)` of the dtype of input, zeros elsewhere.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.max_unpool2d(jnp.array([[[4.0, 5.0]]]), jnp.array([[[4, 6]]]), 2)
      Array([[[0., 0., 0., 0.],
              [4., 0., 5., 0.]]], dtype=float32)
    """
    return _max_unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


@public
def max_unpool1d(
    input: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Puts each element back where `max_pool1d` found it, as `torch.nn.functional.max_unpool1d`.

    Args:
      input: array of floats `(N, C, L)` or `(C, L)`.
      indices: as in `max_unpool2d`.
      kernel_size: of the pool.
      stride: of the pool; None is `kernel_size`.
      padding: of the pool.
      output_size: `(L_out,)` or `(N, C, L_out)`, as in `max_unpool2d`.

    Returns:
      Array `(N, C, L_out)` or `(C, L_out)` of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.max_unpool1d(jnp.array([[3.0, 5.0]]), jnp.array([[1, 2]]), 2)
      Array([[0., 3., 5., 0.]], dtype=float32)
    """
    return _max_unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


@public
def max_unpool3d(
    input: Any,
    indices: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Puts each element back where `max_pool3d` found it, as `torch.nn.functional.max_unpool3d`.

    Args:
      input: array of floats `(N, C, D, H, W)` or `(C, D, H, W)`.
      indices: as in `max_unpool2d`.
      kernel_size: of the pool: an int, or one per axis.
      stride: of the pool; None is `kernel_size`.
      padding: of the pool.
      output_size: three sizes, or five with N and C, as in `max_unpool2d`.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)` of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.max_unpool3d(jnp.ones((1, 1, 1, 1)), jnp.full((1, 1, 1, 1), 7), 2).ravel()
      Array([0., 0., 0., 0., 0., 0., 0., 1.], dtype=float32)
    """
    return _max_unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
