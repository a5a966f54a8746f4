"""The adaptive pools of `torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import check_countable, is_sequence
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.positions import window_position
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import apply, apply_kept
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, Result, Sizes

Targets = int | Sequence[int | None]


def _targets(x: Array, rank: int, output_size: Any) -> tuple[int, ...]:
    """How many windows along each pooled axis; None keeps an axis, but for a single one."""
    entries = list(output_size) if is_sequence(output_size) else output_size
    if isinstance(entries, list) and rank > 1:
        kept = zip(entries, x.shape[x.ndim - rank :], strict=False)
        entries[:rank] = [size if entry is None else entry for entry, size in kept]
    return args.sizes("output_size", entries, rank, least=0, short=rank == 1)


def _adaptive_max_pool(
    function: str, rank: int, input: Any, output_size: Any, return_indices: Any
) -> Result:
    x = args.tensor(function, input, FLOATS)
    with args.call(function, x, output_size=output_size):
        return_indices = args.truth("return_indices", return_indices)
        args.check_shape(x, rank, x.ndim - 1)
        outs = _targets(x, rank, output_size)
        check_countable("input", x.shape[x.ndim - rank :])
        if 0 in outs:
            return args.no_windows(x, rank, outs, return_indices)
        window = adaptive_window(x.shape, outs, args.spatial(x, rank))
    op = adaptive_max_op(window, "last_nan")
    if not return_indices:
        return apply(op, "jvp", x)
    y, tap = apply_kept(op, "jvp", x)
    return y, window_position(tap, window)


@public
def adaptive_max_pool2d(input: Any, output_size: Targets, return_indices: bool = False) -> Result:
    """Computes the largest element of each of some windows, as `torch.nn.functional.adaptive_max_pool2d`.

    Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
    Overlapping cotangents of 16-bit floats add in float32. Indices are int32.

    Args:
      input: array of floats `(N, C, H, W)` or `(C, H, W)`.
      output_size: how many windows, an int or one an axis; None keeps an axis.
      return_indices: whether to return positions too, flat in `H * W`.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)` of the dtype of input; with
      `return_indices` a tuple of it and the positions.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_max_pool2d(jnp.arange(10.0).reshape(1, 2, 5), (1, 4))
      Array([[[6., 7., 8., 9.]]], dtype=float32)
    """
    return _adaptive_max_pool("adaptive_max_pool2d", 2, input, output_size, return_indices)


@public
def adaptive_max_pool1d(input: Any, output_size: Sizes, return_indices: bool = False) -> Result:
    """Computes the largest element of each of some windows, as `torch.nn.functional.adaptive_max_pool1d`.

    Args:
      input: array of floats `(N, C, L)` or `(C, L)`.
      output_size: how many windows, an int, alone or in a tuple.
      return_indices: whether to return positions along L too.

    Returns:
      Array `(N, C, output_size)` or `(C, output_size)`, or a tuple, as of `adaptive_max_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_max_pool1d(jnp.arange(10.0)[None], 4)
      Array([[2., 4., 7., 9.]], dtype=float32)
    """
    return _adaptive_max_pool("adaptive_max_pool1d", 1, input, output_size, return_indices)


@public
def adaptive_max_pool3d(input: Any, output_size: Targets, return_indices: bool = False) -> Result:
    """Computes the largest element of each of some windows, as `torch.nn.functional.adaptive_max_pool3d`.

    Args:
      input: array of floats `(N, C, D, H, W)` or `(C, D, H, W)`.
      output_size: how many windows, an int or one an axis; None keeps an axis.
      return_indices: whether to return positions too, flat in `D * H * W`.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)`, or a tuple, as of `adaptive_max_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_max_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), (1, 1, 2)).ravel()
      Array([6., 7.], dtype=float32)
    """
    return _adaptive_max_pool("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _adaptive_avg_pool(function: str, rank: int, input: Any, output_size: Any) -> Array:
    x = args.tensor(function, input, FLOATS)
    with args.call(function, x, output_size=output_size):
        args.check_shape(x, rank, x.ndim - 1 if rank == 3 else rank)
        outs = _targets(x, rank, output_size)
        if 0 in outs:
            return jnp.zeros((*x.shape[: x.ndim - rank], *outs), x.dtype)
        window = adaptive_window(x.shape, outs, args.spatial(x, rank))
    return apply(adaptive_avg_op(window), "jvp", x)


@public
def adaptive_avg_pool2d(input: Any, output_size: Targets) -> Array:
    """Computes the average of each of some windows, as `torch.nn.functional.adaptive_avg_pool2d`.

    Gradient: each cotangent is spread evenly over its window. What differs from PyTorch: 16-bit
    floats are added in float32 and rounded once, forward and backward.

    Args:
      input: array of floats `(N, C, H, W)` or `(C, H, W)`.
      output_size: how many windows, an int or one an axis; None keeps an axis.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)` of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_avg_pool2d(jnp.arange(8.0).reshape(1, 2, 4), (None, 1)).ravel()
      Array([1.5, 5.5], dtype=float32)
    """
    return _adaptive_avg_pool("adaptive_avg_pool2d", 2, input, output_size)


@public
def adaptive_avg_pool1d(input: Any, output_size: Sizes) -> Array:
    """Computes the average of each of some windows, as `torch.nn.functional.adaptive_avg_pool1d`.

    Args:
      input: array of floats `(N, C, L)` or `(C, L)`.
      output_size: how many windows, an int, alone or in a tuple.

    Returns:
      Array `(N, C, output_size)` or `(C, output_size)`, as of `adaptive_avg_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_avg_pool1d(jnp.arange(3.0)[None], 2)
      Array([[0.5, 1.5]], dtype=float32)
    """
    return _adaptive_avg_pool("adaptive_avg_pool1d", 1, input, output_size)


@public
def adaptive_avg_pool3d(input: Any, output_size: Targets) -> Array:
    """Computes the average of each of some windows, as `torch.nn.functional.adaptive_avg_pool3d`.

    Args:
      input: array of floats `(N, C, D, H, W)` or `(C, D, H, W)`.
      output_size: how many windows, an int or one an axis; None keeps an axis.

    Returns:
      Array `(N, C, *output_size)` or `(C, *output_size)`, as of `adaptive_avg_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.adaptive_avg_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), 1).ravel()
      Array([3.5], dtype=float32)
    """
    return _adaptive_avg_pool("adaptive_avg_pool3d", 3, input, output_size)
