"""The windowed average pools of `torch.nn.functional`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.pools import windowed
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, Sizes


def _divisor(divisor: Any, count_include_pad: Any) -> Any:
    args.check_flag("count_include_pad", count_include_pad)
    if divisor is None:
        return "counted" if count_include_pad else "real"
    rule, hint = "an int other than 0, below 2**63, or None", "None divides by the count."
    if not is_int(divisor):
        raise ArgumentError("divisor_override", rule, divisor, hint, TypeError)
    if operator.index(divisor) == 0 or abs(operator.index(divisor)) >= 2**63:
        raise ArgumentError("divisor_override", rule, divisor, hint)
    return float(operator.index(divisor))


def _avg_pool(
    function: str,
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any = None,
) -> Array:
    x = args.tensor(function, input, (*FLOATS, np.dtype(np.int64)))
    with args.call(function, x, kernel_size=kernel_size):
        args.check_shape(x, rank, rank + 1)
        window = args.windows(x, rank, kernel_size, stride, padding, 1, ceil_mode)
        if rank == 3 and any(dim.window > dim.size for dim in window.dims):
            rule, hint = "at most the input, without its padding", "Use jaxpool.avg_pool."
            raise ArgumentError("kernel_size", rule, kernel_size, hint)
        op = SumPool(window, _divisor(divisor_override, count_include_pad))
        if x.dtype in FLOATS:
            return windowed(op, x)
        return jnp.trunc(windowed(op, x.astype(jnp.float64))).astype(x.dtype)


@public
def avg_pool2d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Computes the average of each window, as `torch.nn.functional.avg_pool2d`.

    Gradient: each cotangent is spread evenly over its window. What differs from PyTorch: 16-bit
    floats are added in float32 and rounded once, forward and backward.

    Args:
      input: array `(N, C, H, W)` or `(C, H, W)`; floats, or int64, which is rounded towards zero.
      kernel_size: an int, or one per axis.
      stride: likewise; None is `kernel_size`.
      padding: likewise, on both sides; at most half the window.
      ceil_mode: round the output size up; a window that would begin in the high padding is dropped.
      count_include_pad: True divides by the window, padding counted but a ceil overhang not; False
        by the number of real elements.
      divisor_override: an int other than 0 to divide by in place of a count.

    Returns:
      Array `(N, C, H_out, W_out)` or `(C, H_out, W_out)` of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.avg_pool2d(jnp.arange(8.0).reshape(1, 2, 4), 2)
      Array([[[2.5, 4.5]]], dtype=float32)
    """
    options = (padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool("avg_pool2d", 2, input, kernel_size, stride, *options)


@public
def avg_pool1d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Computes the average of each window, as `torch.nn.functional.avg_pool1d`.

    Args:
      input: array `(N, C, L)` or `(C, L)`; dtypes and differences as in `avg_pool2d`.
      kernel_size: an int, alone or in a tuple.
      stride: likewise; None is `kernel_size`.
      padding: likewise; at most half the window.
      ceil_mode: as in `avg_pool2d`.
      count_include_pad: as in `avg_pool2d`.

    Returns:
      Array `(N, C, L_out)` or `(C, L_out)` of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.avg_pool1d(jnp.arange(3.0)[None], 2, ceil_mode=True)
      Array([[0.5, 2. ]], dtype=float32)
    """
    return _avg_pool(
        "avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad
    )


@public
def avg_pool3d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Computes the average of each window, as `torch.nn.functional.avg_pool3d`.

    Args:
      input: array `(N, C, D, H, W)` or `(C, D, H, W)`; dtypes and differences as in `avg_pool2d`,
        and 16-bit floats on every device.
      kernel_size: an int, or one per axis, at most the input's size.
      stride: likewise; None is `kernel_size`.
      padding: likewise; at most half the window.
      ceil_mode: as in `avg_pool2d`.
      count_include_pad: as in `avg_pool2d`.
      divisor_override: as in `avg_pool2d`.

    Returns:
      Array `(N, C, D_out, H_out, W_out)` or without N, of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.avg_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), 2).ravel()
      Array([3.5], dtype=float32)
    """
    options = (padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool("avg_pool3d", 3, input, kernel_size, stride, *options)
