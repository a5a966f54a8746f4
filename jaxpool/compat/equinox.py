"""The pooling layers of `equinox.nn`, computed by jaxpool's kernels.

Each class is a subclass of its original, with the same arguments, fields and pytree, and its own `__call__`. Windowed
pools call the original layers, so conventions and error messages are Equinox's.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array, not_an_array_error
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._geometry.window import Axis, Window
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Op
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool.compat import _originals

with _originals.name_missing_extra_in_error("Equinox", "equinox"):
    import equinox as eqx

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AdaptivePool",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Pool",
]


def _layer_name(layer: eqx.Module) -> str:
    return f"compat.equinox.{type(layer).__name__}"


def _as_unbatched_array(layer: eqx.Module, x: Any) -> Array:
    """The input of a layer as an array."""
    with name_function_in_errors(_layer_name(layer)):
        if not is_array(x):
            raise not_an_array_error("x", x)
    return jnp.asarray(x)


class Pool(eqx.nn.Pool):
    """Reduces each window by `operation`, starting from `init`, as `equinox.nn.Pool`.

    `lax.max`, `lax.min` and `lax.add` with their identity as `init` run on jaxpool's kernels. Any other operation runs
    as `lax.reduce_window`.

    Gradient: of a maximum or minimum, to the first of tied elements. Unlike in Equinox, a NaN gets the cotangent of its
    window, and an element of -inf next to padding keeps its cotangent.

    Args:
      init: the initial value of each reduction.
      operation: a function that combines two values.
      num_spatial_dims: the number of pooled axes.
      kernel_size: the size of the window, an int or one per axis.
      stride: an int or one per axis.
      padding: an int, or one int or (low, high) pair per axis; none larger than the window.
      use_ceil: whether the output size rounds up.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax import lax
      >>> from jaxpool.compat.equinox import Pool
      >>> Pool(0, lax.add, num_spatial_dims=1, kernel_size=2, stride=2)(jnp.arange(4)[None])
      Array([[1, 5]], dtype=int32)
    """

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        """The reduced windows of one example `(C, *spatial)`; `key` is not used."""
        y = self._pool_with_one_op(x, "not")
        return _originals.call_accelerated(super().__call__, x) if y is None else y

    def _pool_with_one_op(self, x: Array, divisor_rule: _originals.DivisorRule) -> Array | None:
        sizes = (self.num_spatial_dims, self.kernel_size, self.stride, self.padding, self.use_ceil)
        args = (self.init, self.operation, *sizes)
        return _originals.pool_with_one_op(
            _call_original_pool, x, *args, divisor_rule=divisor_rule, channels_moved_last=True
        )


_OriginalPool = eqx.nn.Pool  # bound at import, because a program may replace it with `Pool`


def _call_original_pool(x: Array, *args: Any) -> Array:
    """Run `equinox.nn.Pool`, which moves channels to the last axis and then pools."""
    y: Array = _OriginalPool(*args)(x)
    return y


class _MeanPool(Pool):
    """Window sums divided by the size of the window."""

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        """The average of each window of one example `(C, *spatial)`; `key` is not used."""
        y = self._pool_with_one_op(x, "counted")
        return _originals.call_accelerated(super(Pool, self).__call__, x) if y is None else y


class MaxPool1d(Pool, eqx.nn.MaxPool1d):
    """The largest element of each window of `(C, L)`, as `equinox.nn.MaxPool1d`.

    Takes `kernel_size`, `stride=1`, `padding=0` and `use_ceil=False`, as in `Pool`, with its differences from Equinox.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat.equinox import MaxPool1d
      >>> MaxPool1d(2, 2)(jnp.arange(4.0)[None])
      Array([[1., 3.]], dtype=float32)
    """


class MaxPool2d(Pool, eqx.nn.MaxPool2d):
    """The largest element of each window of `(C, H, W)`, as `equinox.nn.MaxPool2d`; see `MaxPool1d`."""


class MaxPool3d(Pool, eqx.nn.MaxPool3d):
    """The largest element of each window of `(C, D, H, W)`, as `equinox.nn.MaxPool3d`; see `MaxPool1d`."""


class AvgPool1d(_MeanPool, eqx.nn.AvgPool1d):
    """The average of each window of `(C, L)`, as `equinox.nn.AvgPool1d`.

    Takes `kernel_size`, `stride=1`, `padding=0` and `use_ceil=False`, as in `Pool`. The divisor counts padding,
    including the padding that `use_ceil` adds. Unlike in Equinox, 8- and 16-bit floats are added in float32 and rounded
    once, forward and backward.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat.equinox import AvgPool1d
      >>> AvgPool1d(2, 2)(jnp.arange(4.0)[None])
      Array([[0.5, 2.5]], dtype=float32)
    """


class AvgPool2d(_MeanPool, eqx.nn.AvgPool2d):
    """The average of each window of `(C, H, W)`, as `equinox.nn.AvgPool2d`; see `AvgPool1d`."""


class AvgPool3d(_MeanPool, eqx.nn.AvgPool3d):
    """The average of each window of `(C, D, H, W)`, as `equinox.nn.AvgPool3d`; see `AvgPool1d`."""


class AdaptivePool(eqx.nn.AdaptivePool):
    """Applies `operation` to `target_shape` windows, axis by axis, as `equinox.nn.AdaptivePool`.

    Along an axis of length L, the first `L % n` of n windows are one element longer than the other windows. Windows do
    not overlap, unlike in PyTorch.

    `jnp.max`, `jnp.min` and `jnp.mean` run on jaxpool's kernels. Any other operation runs in Equinox.

    Gradient: tied elements of a maximum or minimum share the cotangent, axis by axis. Unlike in Equinox, NaNs get the
    cotangent of the window that they make NaN. In Equinox, the whole window gets NaN.

    Args:
      target_shape: the number of windows, an int or one per axis.
      num_spatial_dims: the number of pooled axes.
      operation: a reduction of a vector.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat.equinox import AdaptivePool
      >>> AdaptivePool(4, num_spatial_dims=1, operation=jnp.max)(jnp.arange(10.0)[None])
      Array([[2., 5., 7., 9.]], dtype=float32)
    """

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        """The reduced windows of one example `(C, *spatial)`; `key` is not used."""
        x = _as_unbatched_array(self, x)
        is_supported = any(self.operation is op for op in (jnp.max, jnp.min, jnp.mean))
        if not is_supported or not jnp.isdtype(x.dtype, ("bool", "integral", "real floating")):
            return super().__call__(x)
        with name_function_in_errors(_layer_name(self), **{"x.shape": x.shape}):
            num_axes = len(self.target_shape)
            if x.ndim != num_axes + 1:
                rule, hint = (
                    f"one example of {num_axes + 1} axes, channels first",
                    "Use jax.vmap over a batch.",
                )
                raise ArgumentError("x", rule, x.ndim, hint, attribute="ndim")
            sizes = [operator.index(out) for out in self.target_shape]
            if not all(1 <= out <= size for out, size in zip(sizes, x.shape[1:], strict=True)):
                rule, hint = "ints from 1 to the size of each pooled axis", "Ask for fewer windows."
                raise ArgumentError("target_shape", rule, self.target_shape, hint)
        for axis, out in enumerate(sizes, 1):
            x = _pool_axis(x, axis, out, self.operation)
        return x


def _pool_axis(x: Array, axis: int, num_windows: int, operation: Any) -> Array:
    """Pool x with `num_windows` windows along `axis`; the longer windows come first."""
    if operation is jnp.mean:
        x = x.astype(jax.eval_shape(jnp.mean, x).dtype)
    width, num_longer = divmod(x.shape[axis], num_windows)
    boundary = num_longer * (width + 1)
    parts = [(lax.slice_in_dim(x, boundary, None, axis=axis), width, num_windows - num_longer)]
    if num_longer:
        parts.insert(0, (lax.slice_in_dim(x, 0, boundary, axis=axis), width + 1, num_longer))
    pooled_parts = []
    for part, width, n in parts:
        window = Window((Axis(axis, part.shape[axis], width, width, 1, 0, 0, n),))
        op: Op = SumPool(window, "counted")
        if operation is not jnp.mean:
            op = pool_op(window, "max" if operation is jnp.max else "min", "split")
        pooled_parts.append(apply(op, part))
    return lax.concatenate(pooled_parts, axis)


class AdaptiveAvgPool1d(AdaptivePool, eqx.nn.AdaptiveAvgPool1d):
    """The averages of `target_shape` windows of `(C, L)`, as in Equinox; see `AdaptivePool`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat.equinox import AdaptiveAvgPool1d
      >>> AdaptiveAvgPool1d(2)(jnp.arange(3.0)[None])
      Array([[0.5, 2. ]], dtype=float32)
    """


class AdaptiveAvgPool2d(AdaptivePool, eqx.nn.AdaptiveAvgPool2d):
    """The averages of windows of `(C, H, W)`, as in Equinox; see `AdaptivePool`."""


class AdaptiveAvgPool3d(AdaptivePool, eqx.nn.AdaptiveAvgPool3d):
    """The averages of windows of `(C, D, H, W)`, as in Equinox; see `AdaptivePool`."""


class AdaptiveMaxPool1d(AdaptivePool, eqx.nn.AdaptiveMaxPool1d):
    """The largest elements of `target_shape` windows of `(C, L)`, as in Equinox; see `AdaptivePool`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat.equinox import AdaptiveMaxPool1d
      >>> AdaptiveMaxPool1d(2)(jnp.arange(3.0)[None])
      Array([[1., 2.]], dtype=float32)
    """


class AdaptiveMaxPool2d(AdaptivePool, eqx.nn.AdaptiveMaxPool2d):
    """The largest elements of windows of `(C, H, W)`, as in Equinox; see `AdaptivePool`."""


class AdaptiveMaxPool3d(AdaptivePool, eqx.nn.AdaptiveMaxPool3d):
    """The largest elements of windows of `(C, D, H, W)`, as in Equinox; see `AdaptivePool`."""
