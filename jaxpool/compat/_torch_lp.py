"""The Lp pools of `torch.nn.functional`: sums of signed powers, unlike `jaxpool.lp_pool`."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array, real_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_sequence
from jaxpool._kernels import dtypes
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.pools import windowed
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOATS, INTS, ORDERED, Sizes
from jaxpool.compat._torch_max_pool import max_of


def _norm(norm_type: Any) -> Any:
    """`norm_type` as a number, or an array without axes."""
    rule, hint = "a number other than 0", "The Euclidean norm is 2."
    if isinstance(norm_type, (int, float)):
        if norm_type == 0 or (isinstance(norm_type, int) and abs(norm_type) >= 2**31):
            raise ArgumentError("norm_type", f"{rule}, if an int below 2**31", norm_type, hint)
        return norm_type
    if not is_array(norm_type):
        raise ArgumentError("norm_type", rule, norm_type, hint, TypeError)
    norm = real_array("norm_type", norm_type)
    if norm.ndim:
        raise ArgumentError("norm_type", rule, norm.shape, hint, TypeError, of="shape")
    return norm


def _lp_pool(
    function: str,
    rank: int,
    input: Any,
    norm_type: Any,
    kernel_size: Any,
    stride: Any,
    ceil_mode: Any,
) -> Array:
    x = args.tensor(function, input, ORDERED)
    with args.call(function, x, kernel_size=kernel_size):
        norm = _norm(norm_type)
        infinite = isinstance(norm, (int, float)) and abs(norm) == np.inf
        if is_sequence(kernel_size) and ((rank == 1 and not infinite) or len(kernel_size) != rank):
            rule = "an int" if rank == 1 else f"an int or {rank} ints"
            raise ArgumentError("kernel_size", rule, kernel_size, "Pass an int.", TypeError)
        if infinite:
            taken = (*FLOATS, *INTS) if rank > 1 else FLOATS
            if x.dtype not in taken:
                hint = "Convert it first."
                raise ArgumentError("input", "floats or integers", x.dtype, hint, TypeError)
        elif x.dtype not in FLOATS and isinstance(norm, int):
            rule = f"floats where `norm_type` is an int, {norm}"
            raise ArgumentError("input", rule, x.dtype, f"Pass norm_type={norm}.0.", TypeError)
        args.check_shape(x, rank, rank + 1)
        window = args.windows(x, rank, kernel_size, stride, ceil_mode=ceil_mode)
    if infinite:
        magnitude = x * lax.stop_gradient(lax.sign(x))  # whose gradient at 0 is PyTorch's, 0
        if norm > 0:
            return max_of(magnitude, window)
        return -max_of(-magnitude, window)
    dtype = x.dtype if x.dtype in FLOATS else jnp.dtype(np.float32)
    wide = x.astype(dtypes.accumulator(dtype))
    total = windowed(SumPool(window), wide**norm)
    empty = total == 0  # its root has no gradient; PyTorch's is 0
    root = jnp.where(empty, 1, total) ** (1 / norm)
    return jnp.where(empty, jnp.zeros_like(total) ** (1 / norm), root).astype(dtype)


@public
def lp_pool2d(
    input: Any,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Computes a power average of each window, as `torch.nn.functional.lp_pool2d`.

    `y = (sum of x^p over the window)^(1 / p)` with the powers signed: a negative sum gives NaN for
    most p. For p of inf it is the largest |x|, for -inf the smallest.

    Gradient: 0 where the sum is 0. What differs from PyTorch: a window cut off by `ceil_mode` is the
    norm of its elements, PyTorch scales it by the window's size over their number; 16-bit floats are
    computed in float32 and rounded once; with an int `norm_type` integers and bool are refused,
    PyTorch rounds their averages.

    Args:
      input: array `(N, C, H, W)` or `(C, H, W)`; floats, with a float `norm_type` integers and bool.
      norm_type: p, a number other than 0.
      kernel_size: an int, or one per axis.
      stride: likewise; None is `kernel_size`.
      ceil_mode: round the output size up.

    Returns:
      Array `(N, C, H_out, W_out)` or `(C, H_out, W_out)`; the dtype of input, float32 for integers.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.lp_pool2d(jnp.array([[[3.0, 0.0], [0.0, 4.0]]]), 2, 2)
      Array([[[5.]]], dtype=float32)
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


@public
def lp_pool1d(
    input: Any,
    norm_type: float,
    kernel_size: int,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Computes a power average of each window, as `torch.nn.functional.lp_pool1d`.

    Args:
      input: array `(N, C, L)` or `(C, L)`; dtypes and differences as in `lp_pool2d`.
      norm_type: p, a number other than 0.
      kernel_size: an int.
      stride: an int, alone or in a tuple; None is `kernel_size`.
      ceil_mode: round the output size up.

    Returns:
      Array `(N, C, L_out)` or `(C, L_out)`; the dtype of input, float32 for integers.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.lp_pool1d(jnp.array([[3.0, 4.0, 1.0]]), 2, 2)
      Array([[5.]], dtype=float32)
    """
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


@public
def lp_pool3d(
    input: Any,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Computes a power average of each window, as `torch.nn.functional.lp_pool3d`.

    Args:
      input: array `(N, C, D, H, W)` or `(C, D, H, W)`; dtypes and differences as in `lp_pool2d`.
      norm_type: p, a number other than 0.
      kernel_size: an int, or one per axis.
      stride: likewise; None is `kernel_size`.
      ceil_mode: round the output size up.

    Returns:
      Array `(N, C, D_out, H_out, W_out)` or without N; the dtype of input, float32 for integers.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the output would be empty.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as F
      >>> F.lp_pool3d(jnp.ones((1, 2, 2, 1)), 2, (2, 2, 1)).ravel()
      Array([2.], dtype=float32)
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)
