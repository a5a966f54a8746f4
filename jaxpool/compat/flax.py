"""The pooling functions of `flax.linen` and `flax.nnx`, by our kernels.

They run the originals, which `flax` must be installed for: arguments, conventions and messages are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from jaxpool.compat import _originals

with _originals.extra("Flax", "flax"):
    # By name: a program may put ours in their place.
    from flax.linen.pooling import avg_pool as _avg_pool
    from flax.linen.pooling import max_pool as _max_pool
    from flax.linen.pooling import min_pool as _min_pool
    from flax.linen.pooling import pool as _pool

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]

Pads = str | Sequence[tuple[int, int]]


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable[[Any, Any], Any],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Pads,
) -> Array:
    """Reduces each window of `inputs` by `reduce_fn`, starting from `init`, as `flax.linen.pool`.

    `lax.max`, `lax.min` and `lax.add` from their identity run on our kernels, any other reduction is
    `lax.reduce_window` itself.

    Gradient: of a maximum or minimum to the first of equal elements. What differs from Flax: a NaN
    gets the cotangent of the window it wins; an element of -inf beside padding keeps its cotangent.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      init: where each reduction starts.
      reduce_fn: what joins two values.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: "SAME", "VALID", "SAME_LOWER", or one (low, high) pair per pooled axis, with at most one
        batch axis.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs. A window of padding
      alone gives `init`.

    Raises:
      AssertionError, TypeError, ValueError: what Flax refuses, in its words.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax import lax
      >>> from jaxpool.compat import flax
      >>> flax.pool(jnp.arange(4)[:, None], 0, lax.add, (2,), (2,), "VALID").ravel()
      Array([1, 5], dtype=int32)
    """
    return _originals.accelerated(_pool, inputs, init, reduce_fn, window_shape, strides, padding)


def max_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
) -> Array:
    """Computes the largest element of each window, as `flax.linen.max_pool`.

    Gradient: to the first of equal elements. What differs from Flax: a NaN gets the cotangent of the
    window it wins; an element of -inf beside padding keeps its cotangent; padding is never chosen in
    float8 types without an infinity either.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs.

    Raises:
      AssertionError, TypeError, ValueError: what Flax refuses, in its words.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([1., 3., 5., 7.], dtype=float32)
    """
    return _originals.pool(_max_pool, inputs, window_shape, strides, padding)


def min_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
) -> Array:
    """Computes the smallest element of each window, as `flax.nnx.min_pool`.

    Gradient: as of `max_pool`, to the first of equal elements, with the same differences.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs.

    Raises:
      AssertionError, TypeError, ValueError: what Flax refuses, in its words.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.min_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([0., 2., 4., 6.], dtype=float32)
    """
    return _originals.pool(_min_pool, inputs, window_shape, strides, padding)


def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """Computes the average of each window, as `flax.linen.avg_pool`.

    Gradient: each cotangent is spread evenly over its window. What differs from Flax: 8- and 16-bit
    floats are added in float32 and rounded once, forward and backward.

    Args:
      inputs: array `(..., *spatial, C)`, any number of batch axes or none.
      window_shape: tuple of one positive int per pooled axis.
      strides: tuple of one positive int per pooled axis; None is 1.
      padding: as in `pool`.
      count_include_pad: True divides by the size of the window, False by the number of real elements,
        which makes a window of padding alone NaN.

    Returns:
      Array of the shape of inputs but for the pooled axes. The dtype of inputs for floats, the default
      float type for integers; without `count_include_pad` at least float32, as Flax has it.

    Raises:
      AssertionError, TypeError, ValueError: what Flax refuses, in its words.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.avg_pool(jnp.arange(3.0)[:, None], (2,), (2,), "SAME", False).ravel()
      Array([0.5, 2. ], dtype=float32)
    """
    args = (inputs, window_shape, strides, padding, count_include_pad)
    return _originals.pool(_avg_pool, *args, divide="counted" if count_include_pad else "real")
