"""The fractional max pools of `torch.nn.functional`, whose windows lie at random distances."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array, lax

from jaxpool._api.random import check_key, fractional_op
from jaxpool._arguments.arrays import converted, is_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.coefficients import is_number
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_countable, is_sequence
from jaxpool._ops.apply import apply_given
from jaxpool._ops.random_pool import chance_dtype
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, Result, Sizes


def _outputs(x: Array, rank: int, output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    """How many windows along each pooled axis."""
    if output_size is not None:
        return args.sizes("output_size", output_size, rank, least=0, short=False)
    rule, hint = "given without `output_ratio`", "Pass one of the two."
    if output_ratio is None:
        raise ArgumentError("output_size", rule, None, hint)
    rule, hint = f"{rank} numbers", f"Pass a tuple such as {(0.5,) * rank}."
    one = is_number(output_ratio) and rank == 3
    ratios = (output_ratio,) * rank if one else output_ratio
    if not is_sequence(ratios):
        raise ArgumentError("output_ratio", rule, output_ratio, hint, TypeError)
    if len(ratios) < rank or (rank == 2 and len(ratios) > rank):
        raise ArgumentError("output_ratio", rule, output_ratio, hint)
    if not all(is_number(ratio) and math.isfinite(ratio) for ratio in ratios):
        raise ArgumentError("output_ratio", rule, output_ratio, hint, TypeError)
    pairs = zip(x.shape[x.ndim - rank :], ratios, strict=False)
    return args.sizes("output_ratio", [int(size * ratio) for size, ratio in pairs], rank, least=0)


def _check_fit(shape: Sequence[int], kernel: Sequence[int], outs: Sequence[int]) -> None:
    """Raises unless the windows fit: in 3d PyTorch wants an element to spare."""
    check_countable("input", shape)
    spare = int(len(shape) == 3)
    for size, width, out in zip(shape, kernel, outs, strict=True):
        if out + width - 1 + spare > size:
            rule = f"such that windows + kernel_size - 1 is at most {size - spare}, for size {size}"
            hint = "Ask for fewer windows, or smaller ones."
            raise ArgumentError("output_size", rule, out, hint)


def _samples(x: Array, rank: int, samples: Any, key: Any) -> Array:
    """The random numbers `(N, C, rank)` that place the windows."""
    batch = 1 if x.ndim == rank + 1 else x.shape[0]
    channels = x.shape[x.ndim - rank - 1]
    if samples is None:
        if key is None:
            rule = "given, or else `_random_samples`"
            raise ArgumentError("key", rule, None, "Pass jax.random.key(0), say.", TypeError)
        check_key(key, "a PRNG key", "Pass jax.random.key(0), say.")
        return jax.random.uniform(key, (batch, channels, rank), chance_dtype(x.dtype))
    rule = f"an array ({batch}, {channels}, {rank}) of the dtype of `input`"
    hint = f"Pass jax.random.uniform(key, ({batch}, {channels}, {rank}), input.dtype)."
    if not is_array(samples):
        raise ArgumentError("_random_samples", rule, samples, hint, TypeError)
    samples = converted("_random_samples", samples)
    if samples.dtype != x.dtype:
        raise ArgumentError("_random_samples", rule, samples.dtype, hint, TypeError)
    fits = samples.ndim == 3 and samples.shape[1:] == (channels, rank)
    if not fits or samples.shape[0] < batch:
        raise ArgumentError("_random_samples", rule, samples.shape, hint)
    return lax.stop_gradient(samples[:batch])  # PyTorch gives them none either


def _fractional(
    function: str,
    rank: int,
    input: Any,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: Any,
    _random_samples: Any,
    key: Any,
) -> Result:
    x = args.tensor(function, input, FLOATS)
    with args.call(function, x, kernel_size=kernel_size):
        return_indices = args.truth("return_indices", return_indices)
        args.check_shape(x, rank, x.ndim - 1)
        kernel = args.sizes("kernel_size", kernel_size, rank, short=False)
        outs = _outputs(x, rank, output_size, output_ratio)
        _check_fit(x.shape[x.ndim - rank :], kernel, outs)
        samples = _samples(x, rank, _random_samples, key)
        if 0 in outs:
            return args.no_windows(x, rank, outs, return_indices)
        where = args.spatial(x, rank)
        op = fractional_op(x.shape, kernel, outs, where, samples.dtype.name)
    lanes = (*x.shape[: x.ndim - rank], *(1,) * rank)
    each = [samples[..., axis].reshape(lanes) for axis in range(rank)]
    placed = each if rank == 3 else each[::-1]  # in 2d PyTorch's first number is that of the width
    op = dataclasses.replace(op, ties="last_nan")
    y, kept = apply_given(op, x, *placed)
    return (y, op.position(kept)) if return_indices else y


@public
def fractional_max_pool2d(
    input: Any,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: tuple[float, float] | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
    *,
    key: Any = None,
) -> Result:
    """Computes the largest element of windows at random distances, as `torch.nn.functional.fractional_max_pool2d`.

    The same `_random_samples` place the same windows as in PyTorch. Without them `key` is needed:
    there is no hidden generator.

    Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
    Indices are int32.

    Args:
      input: array of floats `(N, C, H, W)` or `(C, H, W)`.
      kernel_size: an int, or one an axis.
      output_size: how many windows, an int or one an axis.
      output_ratio: in its place, two numbers by which to multiply H and W.
      return_indices: whether to return positions too, flat in `H * W`.
      _random_samples: numbers in [0, 1) of the dtype of input, `(N, C, 2)`, width before height.
      key: a PRNG key to draw them with.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)` of the dtype of input; with
      `return_indices` a tuple of it and the positions.

    Raises:
      TypeError: an argument is of the wrong kind, or both `key` and `_random_samples` are missing.
      ValueError: an argument has a wrong value, or the windows do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> samples = jnp.full((1, 1, 2), 0.5)
      >>> F.fractional_max_pool2d(jnp.arange(15.0).reshape(1, 3, 5), 2, 2, _random_samples=samples)
      Array([[[ 6.,  9.],
              [11., 14.]]], dtype=float32)
    """
    options = (output_size, output_ratio, return_indices, _random_samples, key)
    return _fractional("fractional_max_pool2d", 2, input, kernel_size, *options)


@public
def fractional_max_pool3d(
    input: Any,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | tuple[float, float, float] | None = None,
    return_indices: bool = False,
    _random_samples: Any = None,
    *,
    key: Any = None,
) -> Result:
    """Computes the largest element of windows at random distances, as `torch.nn.functional.fractional_max_pool3d`.

    Args:
      input: array of floats `(N, C, D, H, W)` or `(C, D, H, W)`.
      kernel_size: an int, or one an axis.
      output_size: how many windows, an int or one an axis; with the window at most the input's size,
        where `fractional_max_pool2d` takes one more.
      output_ratio: in its place, a number or three by which to multiply D, H and W.
      return_indices: whether to return positions too, flat in `D * H * W`.
      _random_samples: numbers in [0, 1) of the dtype of input, `(N, C, 3)`, in the order of the axes.
      key: a PRNG key to draw them with.

    Returns:
      Array `(N, C, *output_size)`, or a tuple, as of `fractional_max_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind, or both `key` and `_random_samples` are missing.
      ValueError: an argument has a wrong value, or the windows do not fit.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.fractional_max_pool3d(jnp.ones((1, 4, 4, 4)), 2, 2, key=jax.random.key(0)).shape
      (1, 2, 2, 2)
    """
    options = (output_size, output_ratio, return_indices, _random_samples, key)
    return _fractional("fractional_max_pool3d", 3, input, kernel_size, *options)
