"""Public random pooling: fractional pools, with windows at random positions, and stochastic pooling.

This module draws the random numbers of the whole array from the key, so that sharded and unsharded calls agree. Ops
receive the random numbers as arrays.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax.sharding import reshard

from jaxpool._api.shared_text import fill_docstring_placeholders
from jaxpool._arguments.arrays import as_array, is_prng_key
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    IntOrInts,
    Padding,
    array_to_list,
    check_fits_int32_indices,
    ints_per_axis,
    is_tuple_or_list,
    normalise_axes,
    static_sizes,
)
from jaxpool._kernels.dtypes import accumulator_dtype, as_float, mean_dtype
from jaxpool._ops.fractional import FractionalAxis, FractionalMax, FractionalMean
from jaxpool._ops.random_pool import StochasticPool, apply_stochastic_pool, uniform_dtype
from jaxpool._shards.split import (
    ArraySharding,
    apply_on_shards,
    check_unsharded,
    sharding_from_type,
)
from jaxpool._shards.windowed import checked_array_and_windows


def check_prng_key(key: Any, rule: str, hint: str) -> None:
    """Raise unless `key` is one PRNG key: a typed key, or the uint32 words of a key of the default implementation."""
    if not is_prng_key(key):
        shown_value = (
            f"key={key.dtype}{list(key.shape)}"
            if hasattr(key, "dtype") and hasattr(key, "shape")
            else ""
        )
        raise ArgumentError(
            "key", rule, key, hint, TypeError, shown_value=shown_value, must_be_static=False
        )


@public
@fill_docstring_placeholders
def fractional_max_pool(
    key: Any,
    x: Any,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the largest element of windows at pseudo-random distances.

    `y[b, i, j, c] = max over (u, v) of x[b, start(i) + u, start(j) + v, c]` with
    `start(i) = int((i + r) * a) - int(r * a)`, `a = (L - k) / (n - 1)` and, for the last window,
    `start(n - 1) = L - k`. L is the size of the axis, k the size of a window, n the number of windows, B batch, C
    channels. r is uniform in [0, 1), drawn for each axis, batch entry and channel. Windows may overlap, and leave
    gaps if k < a.

    Gradient: as in `max_pool`, to the first of the largest elements in row-major order. NaN is larger than every
    number, and -inf is an ordinary value. Forward and reverse mode, to any order.

    {fractional}

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the windows do not fit.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.arange(10)[:, None]
      >>> jaxpool.fractional_max_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([1, 3, 4, 6, 7, 9], dtype=int32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. `torch.nn.functional.fractional_max_pool2d` has the same
      windows.
    """
    x, sharding, op, samples = _fractional_pool_inputs(key, x, window_shape, output_shape, axes)
    check_fits_int32_indices("x", op.window.input_shape)
    return apply_on_shards(op, sharding, x, *samples)


@public
@fill_docstring_placeholders
def fractional_avg_pool(
    key: Any,
    x: Any,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the average of windows at pseudo-random distances.

    `y[b, i, j, c] = mean over (u, v) of x[b, start(i) + u, start(j) + v, c]`, with the windows that
    `fractional_max_pool` has for the same key.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up. Forward
    and reverse mode, to any order.

    {fractional}

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x, or of
      `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or the windows do not fit.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.fractional_avg_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([0.5, 2.5, 3.5, 5.5, 6.5, 8.5], dtype=float32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. In `tf.nn.fractional_avg_pool` windows differ in length, and
      all channels share them.
    """
    x, sharding, op, samples = _fractional_pool_inputs(key, x, window_shape, output_shape, axes)
    return apply_on_shards(FractionalMean(op.dims), sharding, as_float(x), *samples)


def _fractional_pool_inputs(
    key: Any, x: Any, window_shape: Any, output_shape: Any, axes: Any
) -> tuple[Array, ArraySharding | None, FractionalMax, list[Array]]:
    """x as an array, its sharding, the op of the max pool, and the random numbers that set window starts per axis."""
    check_prng_key(key, "a PRNG key", "Pass jax.random.key(0), say.")
    x = as_array(x)
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    op = make_fractional_op(shape, window_shape, output_shape, axes)
    check_unsharded(x, *op.window.axes)
    random_shape = [1 if axis in op.window.axes else size for axis, size in enumerate(shape)]
    samples = jax.random.uniform(key, (len(op.dims), *random_shape), uniform_dtype(x.dtype))
    return x, sharding, op, [sharding.local_shard(u) if sharding else u for u in samples]


def make_fractional_op(
    shape: tuple[Any, ...],
    window_shape: Any,
    output_shape: Any,
    axes: Any,
    random_dtype: str = "float32",
) -> FractionalMax:
    """The op of a fractional pool over an array of `shape`, with checked arguments.

    `random_dtype` is the dtype of the random numbers.
    """
    output_shape = array_to_list(output_shape)
    if not is_tuple_or_list(output_shape) or not output_shape:
        rule = "a tuple of positive ints, one per pooled axis"
        error_type = ValueError if is_tuple_or_list(output_shape) else TypeError
        hint = "Pass a tuple such as (4, 4)."
        raise ArgumentError("output_shape", rule, output_shape, hint, error_type)
    num_axes = len(output_shape)
    pooled_axes = normalise_axes(axes, len(shape), num_axes)
    window_sizes = ints_per_axis("window_shape", window_shape, num_axes)
    output_sizes = ints_per_axis("output_shape", output_shape, num_axes, accept_int=False)
    sizes = static_sizes(shape, pooled_axes, min_size=0)
    for axis, size, width, out in zip(pooled_axes, sizes, window_sizes, output_sizes, strict=True):
        if width > size:
            rule = f"at most the input, {size} along axis {axis}"
            raise ArgumentError("window_shape", rule, window_shape, "Use a smaller window.")
        if out > size - width + 1:
            rule = f"at most size - window + 1, {size - width + 1} along axis {axis}"
            hint = "Ask for fewer windows, or smaller ones."
            raise ArgumentError("output_shape", rule, output_shape, hint)
        check_fits_int32_indices("x", (size,))
    dims = [
        FractionalAxis(*fields, random_dtype)
        for fields in zip(pooled_axes, sizes, window_sizes, output_sizes, strict=True)
    ]
    return FractionalMax(tuple(dims))


@public
@fill_docstring_placeholders
def stochastic_pool(
    key: Any,
    x: Any,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Draws one element of each window, with a probability proportional to its value.

    `y[b, i, j, c] = x[b, i * s - p + u, j * s - p + v, c]` with (u, v) drawn with the probability `w[u, v] / sum(w)`,
    where `w[u, v] = max(x[b, i * s - p + u, j * s - p + v, c], 0)`, with the letters of `max_pool`. Overlapping
    windows draw independently. With `key=None`, for evaluation, y is the mean of a draw, `sum(w * x) / sum(w)`. A
    window whose weights are all 0 gives its first real element; padding is never drawn. In float32 an element with
    less than about 1e-7 of the weight may never be drawn.

    Gradient: the cotangent of a draw goes to the drawn element, and overlapping windows add up. With `key=None` the
    gradient is the derivative of the formula, 0 for elements of weight 0. NaN is drawn before +inf, and +inf before
    any number; the mean is NaN or +inf then. Forward and reverse mode, to any order.

    Args:
      key: a PRNG key such as `jax.random.key(0)`, which always draws the same elements, or None for the weighted
        mean.
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for the mean of integers or
      bool.

    {errors}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([1.0, 3.0, 0.0, 2.0])[:, None]
      >>> jaxpool.stochastic_pool(jax.random.key(0), x, (2,), (2,)).ravel()
      Array([3., 2.], dtype=float32)
      >>> jaxpool.stochastic_pool(None, x, (2,), (2,)).ravel()
      Array([2.5, 2. ], dtype=float32)

    References:
      Zeiler and Fergus, Stochastic Pooling for Regularization of Deep Convolutional Neural
      Networks, arXiv:1301.3557.
    """
    if key is not None:
        rule, hint = ("a PRNG key or None", "Pass jax.random.key(0), say, or None to evaluate.")
        check_prng_key(key, rule, hint)
    x, windows = checked_array_and_windows(x, window_shape, strides, padding, axes=axes)
    x_sharding = windows.sharding
    samples: list[Array] = []
    if key is not None:
        shape = windows.window.pooled_shape(
            x_sharding.global_shape(x.shape) if x_sharding else x.shape
        )
        samples = [jax.random.uniform(key, shape, accumulator_dtype(mean_dtype(x.dtype)))]
        samples = [x_sharding.local_shard(sample) for sample in samples] if x_sharding else samples
    sharding = jax.typeof(x).sharding
    if x_sharding is None and any(sharding.spec):  # x is sharded along axes of symbolic sizes
        samples = [reshard(sample, sharding) for sample in samples]
    return windows.apply(apply_stochastic_pool, StochasticPool(windows.window), x, *samples)
