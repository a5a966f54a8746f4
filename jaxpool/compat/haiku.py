"""The pooling functions and modules of Haiku, by our kernels. The modules need `dm-haiku`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import haiku as hk
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool.compat._lax import reduce_window, window_mean, window_sum

__all__ = ["AvgPool", "MaxPool", "avg_pool", "max_pool"]

Sizes = int | Sequence[int]


def _every_axis(
    argument: str, shape: tuple[Any, ...], size: Any, channel_axis: Any
) -> tuple[int, ...]:
    """`size` for every axis: an int counts for all but the first and the channels, fewer entries for the last ones."""
    ndim = len(shape)
    if isinstance(size, int):
        if channel_axis and not abs(channel_axis) < ndim:
            rule = f"None or an int from {1 - ndim} to {ndim - 1}"
            raise ArgumentError("channel_axis", rule, channel_axis, "Name an axis of `value`.")
        if channel_axis and channel_axis < 0:
            channel_axis += ndim
        return (1, *(1 if axis == channel_axis else size for axis in range(1, ndim)))
    rule = f"an int or at most {ndim} ints"
    try:
        sizes = tuple(size)
    except TypeError:
        raise ArgumentError(
            argument, rule, size, "Pass a tuple such as (2, 2, 1).", TypeError
        ) from None
    if len(sizes) > ndim:
        raise ArgumentError(argument, rule, size, "Pass one for each axis of `value`.")
    return (1,) * (ndim - len(sizes)) + sizes


def _arguments(
    name: str, value: Any, window_shape: Any, strides: Any, padding: Any, channel_axis: Any
) -> tuple[Array, Any, Any, Any]:
    """`value` as an array, and window, strides and padding for every axis of it."""
    with calling(f"compat.haiku.{name}"):
        if padding not in ("SAME", "VALID"):
            raise ArgumentError("padding", "'SAME' or 'VALID'", padding, "Pass one of the two.")
    if any(isinstance(size, int) and size != 1 for size in (window_shape, strides)):
        message = (
            f"jaxpool.compat.haiku.{name}: an int for `window_shape` or `strides` counts the axes that "
            "it sees, one too few under vmap. Pass a size for each axis of one example, (3, 3, 1), say; "
            "axes before those are batch axes."
        )
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    value = jnp.asarray(value)
    with calling(f"compat.haiku.{name}", **{"value.shape": value.shape}):
        window = _every_axis("window_shape", value.shape, window_shape, channel_axis)
        steps = _every_axis("strides", value.shape, strides, channel_axis)
    return value, window, steps, padding


def max_pool(
    value: Any,
    window_shape: Sizes,
    strides: Sizes,
    padding: str,
    channel_axis: int | None = -1,
) -> Array:
    """Computes the largest element of each window, as `haiku.max_pool`.

    Gradient: to the first of equal elements. What differs from Haiku: a NaN gets the cotangent of
    the window it wins; an element of -inf beside padding keeps its cotangent.

    Args:
      value: array of any shape.
      window_shape: an int for every axis but the first and `channel_axis`, or one int per axis,
        counted from the last: `(2, 2)` pools the last two axes. An int other than 1 warns, as it
        goes wrong under vmap.
      strides: likewise.
      padding: "SAME" or "VALID".
      channel_axis: the axis that an int leaves alone; None for no such axis.

    Returns:
      Array of the rank and dtype of value.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import haiku
      >>> haiku.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2, 1), (2, 1), "VALID").ravel()
      Array([1., 3., 5., 7.], dtype=float32)
    """
    value, *every = _arguments("max_pool", value, window_shape, strides, padding, channel_axis)
    return reduce_window(value, -jnp.inf, lax.max, *every)


def avg_pool(
    value: Any,
    window_shape: Sizes,
    strides: Sizes,
    padding: str,
    channel_axis: int | None = -1,
) -> Array:
    """Computes the average of the real elements of each window, as `haiku.avg_pool`.

    Gradient: each cotangent is spread evenly over the real elements of its window. What differs from
    Haiku: 8- and 16-bit floats are added in float32 and rounded once, forward and backward.

    Args:
      value: array of any shape.
      window_shape: as in `max_pool`.
      strides: as in `max_pool`.
      padding: "SAME" or "VALID"; what "SAME" pads is not counted.
      channel_axis: as in `max_pool`.

    Returns:
      Array of the rank of value; the dtype of value for floats, float32 for integers.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import haiku
      >>> haiku.avg_pool(jnp.arange(3.0).reshape(1, 3, 1), (2, 1), (2, 1), "SAME").ravel()
      Array([0.5, 2. ], dtype=float32)
    """
    value, *every = _arguments("avg_pool", value, window_shape, strides, padding, channel_axis)
    if padding == "VALID":
        return window_mean(value, *every)
    total = window_sum(value, *every)
    sizes = [1 if window == 1 else size for size, window in zip(value.shape, every[0], strict=True)]
    mean = total / window_sum(jnp.ones(sizes, total.dtype), *every)
    return mean.astype(value.dtype) if jnp.issubdtype(value.dtype, jnp.floating) else mean


class _Pool(hk.Module):
    """What both modules keep."""

    def __init__(
        self,
        window_shape: Sizes,
        strides: Sizes,
        padding: str,
        channel_axis: int | None = -1,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.window_shape = window_shape
        self.strides = strides
        self.padding = padding
        self.channel_axis = channel_axis


class MaxPool(_Pool):
    """`max_pool` as a module, in place of `haiku.MaxPool`; the same differences.

    Args:
      window_shape: as in `max_pool`.
      strides: as in `max_pool`.
      padding: "SAME" or "VALID".
      channel_axis: as in `max_pool`.
      name: of the module.

    Example:
      >>> import haiku as hk
      >>> import jax, jax.numpy as jnp
      >>> from jaxpool.compat.haiku import MaxPool
      >>> net = hk.without_apply_rng(hk.transform(lambda x: MaxPool((2, 1), (2, 1), "SAME")(x)))
      >>> x = jnp.arange(3.0).reshape(1, 3, 1)
      >>> net.apply(net.init(jax.random.key(0), x), x).ravel()
      Array([1., 2.], dtype=float32)
    """

    def __call__(self, value: Any) -> Array:
        """The largest element of each window of value."""
        return max_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)


class AvgPool(_Pool):
    """`avg_pool` as a module, in place of `haiku.AvgPool`; the same differences.

    Args:
      window_shape: as in `max_pool`.
      strides: as in `max_pool`.
      padding: "SAME" or "VALID"; what "SAME" pads is not counted.
      channel_axis: as in `max_pool`.
      name: of the module.

    Example:
      >>> import haiku as hk
      >>> import jax, jax.numpy as jnp
      >>> from jaxpool.compat.haiku import AvgPool
      >>> net = hk.without_apply_rng(hk.transform(lambda x: AvgPool((2, 1), (2, 1), "SAME")(x)))
      >>> x = jnp.arange(3.0).reshape(1, 3, 1)
      >>> net.apply(net.init(jax.random.key(0), x), x).ravel()
      Array([0.5, 2. ], dtype=float32)
    """

    def __call__(self, value: Any) -> Array:
        """The average of the real elements of each window of value."""
        return avg_pool(value, self.window_shape, self.strides, self.padding, self.channel_axis)
