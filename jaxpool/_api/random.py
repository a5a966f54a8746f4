"""Public random pooling. The random numbers are those of the whole array, also if it is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import (
    ArrayArgument,
    as_array,
    as_jax_array,
    is_prng_key,
    key_source_hint,
    replicated,
    unwrap_array,
)
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import check_unsharded, sharding_from_type
from jaxpool._arguments.sizes import (
    Axes,
    IntOrInts,
    Padding,
    Shape,
    check_fits_int32_indices,
    checked_tuple,
    ints_per_axis,
    normalise_axes,
    static_sizes,
)
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels.dtypes import accumulator_dtype, as_float, mean_dtype
from jaxpool._kernels.slices import reshard_like
from jaxpool._ops.apply import apply
from jaxpool._ops.expected_value_pool import ExpectedValuePool
from jaxpool._ops.fractional import FractionalAxis, FractionalMax, FractionalMean
from jaxpool._ops.random_pool import StochasticPool, uniform_dtype
from jaxpool._ops.ranged import apply_ranged
from jaxpool._shards.split import on_shards

# Eager calls are compiled: outside of a program, `jax.random.uniform` transfers its bounds to the device.
uniform = jax.jit(jax.random.uniform, static_argnums=(1, 2), inline=True)


def as_prng_key(key: object, rule: str, hint: str) -> Array:
    """`key` as an array. Raises unless it is one typed key, or the words of a raw key of the default implementation."""
    if is_prng_key(key):
        return as_jax_array("key", key)
    array, shown_value, source_hint = unwrap_array(key), "", key_source_hint(key)
    if hasattr(type(array), "dtype"):
        shown_value = f"key={array.dtype}{list(array.shape)}"
    elif source_hint:
        shown_value = f"key of type {type(key).__name__}"
        if isinstance(key, type):
            shown_value = f"the class {key.__name__}"
    hint = source_hint or hint
    raise ArgumentError(
        "key", rule, key, hint, TypeError, shown_value=shown_value, must_be_static=False
    )


@public
def fractional_max_pool(
    key: ArrayArgument,
    x: ArrayArgument,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: Axes = None,
) -> Array:
    """Computes the largest element of windows at pseudo-random distances.

    `y[b, i, j, c] = max over (u, v) of x[b, start(i) + u, start(j) + v, c]` with
    `start(i) = int((i + r) * a) - int(r * a)`, `a = (L - k) / (n - 1)` and, for the last window,
    `start(n - 1) = L - k`. L is the size of the axis, k the size of a window, n the number of windows, B batch, C
    channels. r is uniform in [0, 1), drawn for each axis, batch entry and channel. Windows may overlap, and leave
    gaps if k < a.

    Gradient: as in `max_pool`, to the first of the largest elements in row-major order. NaN is larger than every
    number, and -inf is an ordinary value. Forward and reverse mode, to any order.

    {fractional}.

    {wrong}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10)[:, None]
      >>> jaxpool.fractional_max_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([1, 3, 4, 6, 7, 9], dtype=int32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. `torch.nn.functional.fractional_max_pool2d` has equal windows.
    """
    return _fractional_pool(FractionalMax, key, x, window_shape, output_shape, axes)


@public
def fractional_avg_pool(
    key: ArrayArgument,
    x: ArrayArgument,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: Axes = None,
) -> Array:
    """Computes the average of windows at pseudo-random distances.

    `y[b, i, j, c] = mean over (u, v) of x[b, start(i) + u, start(j) + v, c]`, with the windows that
    `fractional_max_pool` has for the same key.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up. Forward
    and reverse mode, to any order.

    {fractional}, or of `jnp.mean(x)` for integers and bool.

    {wrong}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.fractional_avg_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([0.5, 2.5, 3.5, 5.5, 6.5, 8.5], dtype=float32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. In `tf.nn.fractional_avg_pool` windows differ in length, and
      all channels share them.
    """
    return _fractional_pool(FractionalMean, key, x, window_shape, output_shape, axes)


def _fractional_pool(
    op_type: type[FractionalMax | FractionalMean],
    key: ArrayArgument,
    x: ArrayArgument,
    *geometry: Any,
) -> Array:
    """The fractional pool of x; `geometry` are the arguments of `fractional_axes` after the shape."""
    key = as_prng_key(key, "a PRNG key", "Pass jax.random.key(0), say.")
    x = as_array(x)
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    op = op_type(fractional_axes(shape, *geometry))
    check_unsharded(x, *op.window.axes)
    if op_type is FractionalMax:
        check_fits_int32_indices("x", op.window.input_shape)
    random_shape = [1 if axis in op.window.axes else size for axis, size in enumerate(shape)]
    samples = uniform(replicated(key), (len(op.dims), *random_shape), uniform_dtype(x.dtype))
    x = x if op_type is FractionalMax else as_float(x)
    if sharding is None:
        return apply(op, x, *[reshard_like(u, x) for u in samples])
    local_samples = map(sharding.local_shard, samples)
    return on_shards(apply, sharding, x, *local_samples, settings=(op,))


def fractional_axes(
    shape: Shape,
    window_shape: IntOrInts,
    output_shape: Sequence[int],
    axes: Axes,
    random_dtype: str = "float32",
) -> tuple[FractionalAxis, ...]:
    """The pooled axes of an array of `shape`; `random_dtype` is the dtype of the random numbers."""
    rule, hint = "a tuple of positive ints, one per pooled axis", "Pass a tuple such as (4, 4)."
    num_axes = len(checked_tuple("output_shape", output_shape, rule, hint))
    pooled_axes = normalise_axes(axes, len(shape), num_axes)
    window_sizes = ints_per_axis("window_shape", window_shape, num_axes)
    output_sizes = ints_per_axis("output_shape", output_shape, num_axes, mention_int=False)
    sizes = static_sizes(shape, pooled_axes, min_size=0)
    dims = []
    for axis, size, width, out in zip(pooled_axes, sizes, window_sizes, output_sizes, strict=True):
        if width > size:
            rule = f"at most the input, {size} along axis {axis}"
            raise ArgumentError("window_shape", rule, window_shape, "Use a smaller window.")
        if out > size - width + 1:
            rule = f"at most size - window + 1, {size - width + 1} along axis {axis}"
            hint = "Ask for fewer windows, or smaller ones."
            raise ArgumentError("output_shape", rule, output_shape, hint)
        check_fits_int32_indices("x", (size,))
        dims.append(FractionalAxis(axis, size, width, out, random_dtype))
    return tuple(dims)


@public
def stochastic_pool(
    key: ArrayArgument | None,
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    axes: Axes = None,
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

    {x}, also bool.
      key: a PRNG key such as `jax.random.key(0)`, which always draws the same elements, or None for the mean.
    {sizes}

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for the mean of integers or bool.

    {errors}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 0.0, 2.0])[:, None]
      >>> jaxpool.stochastic_pool(jax.random.key(0), x, (2,), (2,)).ravel()
      Array([3., 2.], dtype=float32)
      >>> jaxpool.stochastic_pool(None, x, (2,), (2,)).ravel()
      Array([2.5, 2. ], dtype=float32)

    References:
      Zeiler and Fergus, Stochastic Pooling for Regularization of Deep Convolutional Neural Networks, arXiv:1301.3557.
    """
    if key is not None:
        hint = "Pass jax.random.key(0), say, or None to evaluate."
        key = as_prng_key(key, "a PRNG key or None", hint)
    checked = check_input(x, WindowArguments(window_shape, strides, padding, axes=axes))
    x, window = checked.x, checked.window
    if key is None:
        return checked.apply(apply_ranged, ExpectedValuePool(window), as_float(x))
    sharding = None if checked.shards is None else checked.shards.sharding
    global_shape = sharding.global_shape(x.shape) if sharding else x.shape
    weight_dtype = accumulator_dtype(mean_dtype(x.dtype))
    sample = uniform(replicated(key), window.pooled_shape(global_shape), weight_dtype)
    sample = sharding.local_shard(sample) if sharding else sample
    return checked.apply(apply, StochasticPool(window), x, sample)
