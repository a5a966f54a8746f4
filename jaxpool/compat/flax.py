"""The pooling functions of `flax.linen` and `flax.nnx`, by our kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool.compat._lax import Pads, Reducer, reduce_window, window_mean, window_sum

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]

PAIRS = "Pass 'SAME', 'VALID' or pairs such as ((1, 1), (1, 1))."


def _padding(padding: Any, rank: int, batch: int) -> Pads:
    """`padding` for every axis of an array with `batch` axes before the pooled ones."""
    if isinstance(padding, str):
        return padding
    rule = f"a string or one (low, high) pair for each of {rank} pooled axes"
    try:
        pairs = tuple(map(tuple, padding))
    except TypeError:
        raise ArgumentError("padding", rule, padding, PAIRS, TypeError) from None
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise ArgumentError("padding", rule, padding, PAIRS)
    if batch > 1:
        rule = "a string for an array of more than one batch axis"
        raise ArgumentError("padding", rule, padding, "Use jaxpool.max_pool, or jax.vmap.")
    return ((0, 0),) * batch + pairs + ((0, 0),)


def _every_axis(
    name: str, inputs: Any, window_shape: Any, strides: Any, padding: Any
) -> tuple[Array, Any, Any, Any]:
    """`inputs` as an array, and window, strides and padding for every axis of it, channels last."""
    with calling(f"compat.flax.{name}"):
        if not is_array(inputs):
            hint = "Pass jnp.asarray(inputs)."
            raise ArgumentError("inputs", "an array", inputs, hint, TypeError)
        x = jnp.asarray(inputs)
    with calling(f"compat.flax.{name}", **{"inputs.shape": x.shape}):
        if not isinstance(window_shape, tuple):
            rule = "a tuple, one int per pooled axis"
            hint = "Pass a tuple such as (2, 2)."
            raise ArgumentError("window_shape", rule, window_shape, hint, TypeError)
        rank = len(window_shape)
        batch = x.ndim - rank - 1
        if batch < 0:
            rule = f"at most {x.ndim - 1} long, the axes of `inputs` but for channels"
            hint = "Add a channel axis, inputs[..., None]."
            raise ArgumentError("window_shape", rule, window_shape, hint)
        steps = strides if is_array(strides) else strides or (1,) * rank
        if not isinstance(steps, tuple):
            rule = f"a tuple of {rank} ints, or None for 1"
            hint = "Pass a tuple such as (2, 2)."
            raise ArgumentError("strides", rule, strides, hint, TypeError)
        if len(steps) != rank:
            rule = f"as long as `window_shape`, {rank}"
            raise ArgumentError("strides", rule, strides, "Make the lengths agree.")
        pads = _padding(padding, rank, batch)
    ones = (1,) * batch
    return x, (*ones, *window_shape, 1), (*ones, *steps, 1), pads


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Reducer,
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
      strides: likewise; None is 1.
      padding: "SAME", "VALID", "SAME_LOWER", or one (low, high) pair per pooled axis, with at most one
        batch axis.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs. A window of padding
      alone gives `init`.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong length.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax import lax
      >>> from jaxpool.compat import flax
      >>> flax.pool(jnp.arange(4)[:, None], 0, lax.add, (2,), (2,), "VALID").ravel()
      Array([1, 5], dtype=int32)
    """
    x, *every = _every_axis("pool", inputs, window_shape, strides, padding)
    return reduce_window(x, init, reduce_fn, *every)


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
      strides: likewise; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong length.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.max_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([1., 3., 5., 7.], dtype=float32)
    """
    x, *every = _every_axis("max_pool", inputs, window_shape, strides, padding)
    return reduce_window(x, -jnp.inf, lax.max, *every)


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
      strides: likewise; None is 1.
      padding: as in `pool`.

    Returns:
      Array of the shape of inputs but for the pooled axes; the dtype of inputs.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong length.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.min_pool(jnp.arange(8.0).reshape(1, 8, 1), (2,), (2,)).ravel()
      Array([0., 2., 4., 6.], dtype=float32)
    """
    x, *every = _every_axis("min_pool", inputs, window_shape, strides, padding)
    return reduce_window(x, jnp.inf, lax.min, *every)


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
      strides: likewise; None is 1.
      padding: as in `pool`.
      count_include_pad: True divides by the size of the window, False by the number of real elements,
        which makes a window of padding alone NaN.

    Returns:
      Array of the shape of inputs but for the pooled axes. The dtype of inputs for floats, float32
      for integers; without `count_include_pad` at least float32, as Flax has it.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong length.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import flax
      >>> flax.avg_pool(jnp.arange(3.0)[:, None], (2,), (2,), "SAME", False).ravel()
      Array([0.5, 2. ], dtype=float32)
    """
    x, *every = _every_axis("avg_pool", inputs, window_shape, strides, padding)
    if count_include_pad:
        return window_mean(x, *every)
    batch = x.ndim - len(window_shape) - 1
    real = jnp.ones((*(1,) * batch, *x.shape[batch:-1], 1))
    counts = window_sum(real, *every)
    return (window_sum(x, *every) / counts).astype(jnp.promote_types(x.dtype, counts.dtype))
