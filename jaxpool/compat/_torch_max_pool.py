"""The windowed max pools of `torch.nn.functional`."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import calling
from jaxpool._arguments.sizes import check_countable
from jaxpool._geometry.window import Window
from jaxpool._kernels.positions import window_position
from jaxpool._ops.apply import apply_kept
from jaxpool._ops.select_pool import SelectPool
from jaxpool._shards.pools import Argmax, windowed
from jaxpool._shards.split import by_window
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, INTS, Result, Sizes


def _max_pool(
    function: str,
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any,
    return_indices: Any,
) -> Result:
    """Max pools of any rank. PyTorch has the 1d one without indices for floats alone."""
    with calling(f"compat.torch.{function}"):
        return_indices = args.truth("return_indices", return_indices)
    integers = INTS if rank > 1 or return_indices else ()
    x = args.tensor(function, input, (*FLOATS, *integers))
    with args.call(function, x, kernel_size=kernel_size):
        args.check_shape(x, rank, rank + 1)
        window = args.windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        if return_indices:
            check_countable("input", window.input_shape)
    split = by_window(x, window)
    if not return_indices:
        return max_of(x, window)
    if split and split.shards.halos:
        found: Result = split.run(Argmax, x, "last_nan")
        return found
    y, tap = apply_kept(SelectPool(window, "max", "last_nan"), "jvp", x)
    return y, window_position(tap, window)


def max_of(x: Array, window: Window) -> Array:
    """The largest element of each window, chosen as PyTorch chooses."""
    return windowed(SelectPool(window, "max", "last_nan"), x)


@public
def max_pool2d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Result:
    """Computes the largest element of each window, as `torch.nn.functional.max_pool2d`.

    Gradient: to the first of equal elements in row-major order, but to the last NaN of a window.
    Overlapping cotangents of 16-bit floats add in float32. Indices are int32.

    Args:
      input: array `(N, C, H, W)` or `(C, H, W)`; floats, and integers but for uint16 and wider.
      kernel_size: an int, or one an axis.
      stride: likewise; None is `kernel_size`.
      padding: likewise, on both sides; at most half the window.
      dilation: likewise, the distance between neighbouring taps.
      ceil_mode: round the output size up; a window that would begin in the high padding is dropped.
      return_indices: whether to return positions too, flat in `H * W`, for `max_unpool2d`.

    Returns:
      Array `(N, C, H_out, W_out)` or `(C, H_out, W_out)` of the dtype of input; with
      `return_indices` a tuple of it and the positions.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> x = jnp.array([[[1.0, 3.0, 2.0, 2.0], [4.0, 0.0, 5.0, 1.0]]])
      >>> F.max_pool2d(x, 2, return_indices=True)
      (Array([[[4., 5.]]], dtype=float32), Array([[[4, 6]]], dtype=int32))
    """
    options = (padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, *options)


@public
def max_pool1d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Result:
    """Computes the largest element of each window, as `torch.nn.functional.max_pool1d`.

    Args:
      input: array `(N, C, L)` or `(C, L)`; floats, with `return_indices` integers too.
      kernel_size: an int, alone or in a tuple.
      stride: likewise; None is `kernel_size`.
      padding: likewise; at most half the window.
      dilation: likewise.
      ceil_mode: as in `max_pool2d`.
      return_indices: whether to return positions along L too.

    Returns:
      Array `(N, C, L_out)` or `(C, L_out)`, or a tuple, as of `max_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.max_pool1d(jnp.array([[1.0, 3.0, 2.0]]), 2, stride=1)
      Array([[3., 3.]], dtype=float32)
    """
    options = (padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool1d", 1, input, kernel_size, stride, *options)


@public
def max_pool3d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Result:
    """Computes the largest element of each window, as `torch.nn.functional.max_pool3d`.

    Args:
      input: array `(N, C, D, H, W)` or `(C, D, H, W)`; dtypes as in `max_pool2d`.
      kernel_size: an int, or one an axis.
      stride: likewise; None is `kernel_size`.
      padding: likewise; at most half the window.
      dilation: likewise.
      ceil_mode: as in `max_pool2d`.
      return_indices: whether to return positions too, flat in `D * H * W`.

    Returns:
      Array `(N, C, D_out, H_out, W_out)`, or a tuple, as of `max_pool2d`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.max_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), 2).ravel()
      Array([7.], dtype=float32)
    """
    options = (padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, *options)
