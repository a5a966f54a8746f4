"""The adaptive pools of `torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.sizes import check_fits_int32_indices, is_tuple_or_list
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.positions import window_position
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, Result
from jaxpool.compat._torch_rank import of_rank

Targets = int | Sequence[int | None]


def _targets(x: Array, rank: int, output_size: Any) -> tuple[int, ...]:
    """The number of windows along each pooled axis. None keeps the size of an axis, except in 1d."""
    entries = list(output_size) if is_tuple_or_list(output_size) else output_size
    if isinstance(entries, list) and rank > 1:
        pairs = zip(entries, x.shape[x.ndim - rank :], strict=False)
        entries[:rank] = [size if entry is None else entry for entry, size in pairs]
    return args.sizes("output_size", entries, rank, least=0, short=rank == 1)


_ADAPTIVE_MAX_POOL = """\
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
    rank: int, input: Any, output_size: Targets, return_indices: bool = False
) -> Result:
    function = f"adaptive_max_pool{rank}d"
    x = args.tensor(function, input, FLOATS)
    with args.call(function, x, output_size=output_size):
        return_indices = args.truth("return_indices", return_indices)
        args.check_shape(x, rank, x.ndim - 1)
        outs = _targets(x, rank, output_size)
        check_fits_int32_indices("input", x.shape[x.ndim - rank :])
        if 0 in outs:
            return args.no_windows(x, rank, outs, return_indices)
        window = adaptive_window(x.shape, outs, args.spatial(x, rank))
    op = adaptive_max_op(window, "last_nan")
    if not return_indices:
        return apply(op, "jvp", x)
    y, tap = apply_with_residual(op, "jvp", x)
    return y, window_position(tap, window)


_ADAPTIVE_AVG_POOL = """\
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


def _adaptive_avg_pool(rank: int, input: Any, output_size: Targets) -> Array:
    function = f"adaptive_avg_pool{rank}d"
    x = args.tensor(function, input, FLOATS)
    with args.call(function, x, output_size=output_size):
        args.check_shape(x, rank, x.ndim - 1 if rank == 3 else rank)
        outs = _targets(x, rank, output_size)
        if 0 in outs:
            return jnp.zeros((*x.shape[: x.ndim - rank], *outs), x.dtype)
        window = adaptive_window(x.shape, outs, args.spatial(x, rank))
    return apply(adaptive_avg_op(window), "jvp", x)


adaptive_max_pool1d = of_rank(1, _adaptive_max_pool, _ADAPTIVE_MAX_POOL)
adaptive_max_pool2d = of_rank(2, _adaptive_max_pool, _ADAPTIVE_MAX_POOL)
adaptive_max_pool3d = of_rank(3, _adaptive_max_pool, _ADAPTIVE_MAX_POOL)
adaptive_avg_pool1d = of_rank(1, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL)
adaptive_avg_pool2d = of_rank(2, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL)
adaptive_avg_pool3d = of_rank(3, _adaptive_avg_pool, _ADAPTIVE_AVG_POOL)
