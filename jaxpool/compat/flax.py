"""The pooling functions of `flax.linen` and `flax.nnx`, computed by jaxpool's kernels.

These functions call the originals, so `flax` must be installed. Arguments, conventions and error messages are Flax's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from jaxpool.compat import _originals

with _originals.name_missing_extra_in_error("Flax", "flax"):
    # Bound at import, because a program may replace Flax's functions with the functions below.
    from flax.linen.pooling import avg_pool as _avg_pool
    from flax.linen.pooling import max_pool as _max_pool
    from flax.linen.pooling import min_pool as _min_pool
    from flax.linen.pooling import pool as _pool

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]

FlaxPadding = str | Sequence[tuple[int, int]]


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable[[Any, Any], Any],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: FlaxPadding,
) -> Array:
    """Reduces each window of `inputs` by `reduce_fn`, starting from `init`, as `flax.linen.pool`.

    `lax.max`, `lax.min` and `lax.add` with their identity as `init` run on jaxpool's kernels. Any other reduction runs
    as `lax.reduce_window`.

    Gradient: of a maximum or minimum, to the first of tied elements. Unlike in Flax, a NaN gets the cotangent of its
    window, and an element of -inf next to padding keeps its cotangent.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      init: the initial value of each reduction.
      reduce_fn: a function that combines two values.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: "SAME", "VALID", "SAME_LOWER", or one (low, high) pair per pooled axis, with at most one
        batch axis.

    Returns:
      Array of the shape of inputs except for the pooled axes; the dtype of inputs. A window of only padding gives
      `init`.

    Raises:
      AssertionError, TypeError, ValueError: Flax's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax import lax
      >>> from jaxpool.compat import flax
      >>> flax.pool(jnp.arange(4)[:, None], 0, lax.add, (2,), (2,), "VALID").ravel()
      Array([1, 5], dtype=int32)
    """
    return _originals.call_accelerated(
        _pool, inputs, init, reduce_fn, window_shape, strides, padding
    )


def max_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: FlaxPadding = "VALID",
) -> Array:
    """Computes the largest element of each window, as `flax.linen.max_pool`.

    Gradient: to the first of tied elements. Unlike in Flax, a NaN gets the cotangent of its window,
    and an element of -inf next to padding keeps its cotangent. Padding is never selected, also in float8 dtypes without
    infinity.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs except for the pooled axes; the dtype of inputs.

    Raises:
      AssertionError, TypeError, ValueError: Flax's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([1., 3., 5., 7.], dtype=float32)
    """
    return _originals.pool_or_call_accelerated(_max_pool, inputs, window_shape, strides, padding)


def min_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: FlaxPadding = "VALID",
) -> Array:
    """Computes the smallest element of each window, as `flax.nnx.min_pool`.

    Gradient: to the first of tied elements, with the differences from Flax of `max_pool`.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs except for the pooled axes; the dtype of inputs.

    Raises:
      AssertionError, TypeError, ValueError: Flax's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.min_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([0., 2., 4., 6.], dtype=float32)
    """
    return _originals.pool_or_call_accelerated(_min_pool, inputs, window_shape, strides, padding)


def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: FlaxPadding = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """Computes the average of each window, as `flax.linen.avg_pool`.

    Gradient: each cotangent is spread evenly over its window. Unlike in Flax, 8- and 16-bit floats are added in float32
    and rounded once, forward and backward.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.
      count_include_pad: True divides by the size of the window, False by the number of real elements,
        which makes a window of only padding NaN.

    Returns:
      Array of the shape of inputs except for the pooled axes. The dtype is that of inputs for floats, and the default
      float dtype for integers. Without `count_include_pad` it is at least float32, as in Flax.

    Raises:
      AssertionError, TypeError, ValueError: Flax's errors for invalid arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.avg_pool(jnp.arange(3.0)[:, None], (2,), (2,), "SAME", False).ravel()
      Array([0.5, 2. ], dtype=float32)
    """
    args = (inputs, window_shape, strides, padding, count_include_pad)
    return _originals.pool_or_call_accelerated(
        _avg_pool, *args, divisor_rule="counted" if count_include_pad else "real"
    )
