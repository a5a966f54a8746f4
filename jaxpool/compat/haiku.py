"""The pooling functions and modules of Haiku, computed by jaxpool's kernels.

These pools call the originals, so `dm-haiku` must be installed. Arguments, conventions and error messages are Haiku's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool.compat import _originals

with _originals.name_missing_extra_in_error("Haiku", "haiku"):
    import haiku as hk

# Bound at import, because a program may replace Haiku's functions with the functions below.
_max_pool, _avg_pool = hk.max_pool, hk.avg_pool
__all__ = ["AvgPool", "MaxPool", "avg_pool", "max_pool"]

IntOrInts = int | Sequence[int]


def max_pool(
    value: Any,
    window_shape: IntOrInts,
    strides: IntOrInts,
    padding: str,
    channel_axis: int | None = -1,
) -> Array:
    """Computes the largest element of each window, as `haiku.max_pool`.

    Gradient: to the first of tied elements. Unlike in Haiku, a NaN gets the cotangent of its window,
    and an element of -inf next to padding keeps its cotangent.

    Args:
      value: array of any shape.
      window_shape: an int for every axis but the first and `channel_axis`, or one int per axis,
        counted from the last: `(2, 2)` pools the last two axes. Haiku warns about an int other than 1, because it
        gives a wrong window under vmap.
      strides: as `window_shape`.
      padding: "SAME" or "VALID".
      channel_axis: an axis that an int does not apply to; None for no such axis.

    Returns:
      Array of the rank and dtype of value.

    Raises:
      AssertionError, TypeError, ValueError: Haiku's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import haiku
      >>> haiku.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2, 1), (2, 1), "VALID").ravel()
      Array([1., 3., 5., 7.], dtype=float32)
    """
    return _originals.pool_or_call_accelerated(
        _max_pool, value, window_shape, strides, padding, channel_axis
    )


def avg_pool(
    value: Any,
    window_shape: IntOrInts,
    strides: IntOrInts,
    padding: str,
    channel_axis: int | None = -1,
) -> Array:
    """Computes the average of the real elements of each window, as `haiku.avg_pool`.

    Gradient: each cotangent is spread evenly over the real elements of its window. Unlike in Haiku, 8- and 16-bit
    floats are added in float32 and rounded once, forward and backward.

    Args:
      value: array of any shape.
      window_shape: as in `max_pool`.
      strides: as in `max_pool`.
      padding: "SAME" or "VALID"; padding of "SAME" is not counted.
      channel_axis: as in `max_pool`.

    Returns:
      Array of the rank of value; the dtype of value for floats, the default float dtype for integers.

    Raises:
      AssertionError, TypeError, ValueError: Haiku's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import haiku
      >>> haiku.avg_pool(jnp.arange(3.0).reshape(1, 3, 1), (2, 1), (2, 1), "SAME").ravel()
      Array([0.5, 2. ], dtype=float32)
    """
    args = (value, window_shape, strides, padding, channel_axis)
    return _originals.pool_or_call_accelerated(_avg_pool, *args, divisor_rule="real")


class MaxPool(hk.MaxPool):
    """`max_pool` as a module, in place of `haiku.MaxPool`, with the differences of `max_pool`.

    Takes the arguments of `max_pool` after the array, and `name=None`, the name of the module.

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


class AvgPool(hk.AvgPool):
    """`avg_pool` as a module, in place of `haiku.AvgPool`, with the differences of `avg_pool`.

    Takes the arguments of `avg_pool` after the array, and `name=None`, the name of the module.

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
