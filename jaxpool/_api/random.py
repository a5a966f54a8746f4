"""Pooling with chance: windows of random place, and random elements of windows."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax.sharding import reshard

from jaxpool._api.shared_text import filled
from jaxpool._api.windowed import checked
from jaxpool._arguments.arrays import as_array, is_key
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    Ints,
    Padding,
    check_countable,
    is_int,
    is_sequence,
    listed,
    normalise_axes,
    per_axis,
)
from jaxpool._kernels.dtypes import as_float
from jaxpool._ops.apply import apply_given
from jaxpool._ops.fractional import Fractional, FractionalMean, FractionalPool, RandomAxis
from jaxpool._ops.random_pool import (
    StochasticPool,
    chance_dtype,
    drawn,
    weight_dtype,
)
from jaxpool._shards.place import on_shards, place_by_type
from jaxpool._shards.split import check_whole
from jaxpool._shards.whole import Local


def check_key(key: Any, rule: str, hint: str) -> None:
    """Raises unless `key` is one PRNG key, typed or of the raw words of the default kind."""
    if not is_key(key):
        got = (
            f"key={key.dtype}{list(key.shape)}"
            if hasattr(key, "dtype") and hasattr(key, "shape")
            else ""
        )
        raise ArgumentError("key", rule, key, hint, TypeError, got=got, static=False)


@public
@filled
def fractional_max_pool(
    key: Any,
    x: Any,
    window_shape: Ints,
    output_shape: tuple[int, ...],
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the largest element of windows that lie at pseudo-random distances.

    `y[b, i, j, c] = max over (u, v) of x[b, start(i) + u, start(j) + v, c]` with
    `start(i) = int((i + r) * a) - int(r * a)`, `a = (L - k) / (n - 1)` and, for the last window,
    `start(n - 1) = L - k`; L is the size of the axis, k the window along it, n the number of
    windows, B batch, H W spatial, C channels. r is uniform in [0, 1), drawn for each axis of each
    batch entry and channel. Windows may overlap and, where k < a, leave gaps.

    Gradient: the cotangent of each output goes to the element that was chosen, the first of equal
    ones in row-major order, overlapping windows add up, all others get zeros. NaN is larger than
    every number; -inf is an ordinary value. Kept are an unsigned index for each place at which a
    window can begin, and where they begin. 8- and 16-bit floats add in float32 and are rounded
    once. Forward and reverse mode, to any order; no scatter.

    {fractional}

    Returns:
      Array of the shape of x but for the pooled axes, of the sizes `output_shape`; the dtype of x.

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
      Graham, Fractional Max-Pooling, arXiv:1412.6071; the windows of
      `torch.nn.functional.fractional_max_pool2d`.
    """
    x, op, samples = _placed(key, x, window_shape, output_shape, axes)
    check_countable("x", op.window.input_shape)
    return _of_shards(op, x, samples)


@public
@filled
def fractional_avg_pool(
    key: Any,
    x: Any,
    window_shape: Ints,
    output_shape: tuple[int, ...],
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the average of windows that lie at pseudo-random distances.

    `y[b, i, j, c] = mean over (u, v) of x[b, start(i) + u, start(j) + v, c]`; the same key places
    the windows as in `fractional_max_pool`.

    Gradient: each cotangent is spread evenly over its window; overlapping windows add up. The random
    numbers are kept, not x. 8- and 16-bit floats add in float32 and are rounded once. Forward and
    reverse mode, to any order; no scatter.

    {fractional}

    Returns:
      Array of the shape of x but for the pooled axes, of the sizes `output_shape`; the dtype of x,
      but that of `jnp.mean` for integers or bool.

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
      Graham, Fractional Max-Pooling, arXiv:1412.6071. The windows of `tf.nn.fractional_avg_pool` are
      of different lengths and the same for all channels.
    """
    x, op, samples = _placed(key, x, window_shape, output_shape, axes)
    x = as_float(x)
    return _of_shards(FractionalMean(op.dims), x, samples)


def _placed(
    key: Any, x: Any, window_shape: Any, output_shape: Any, axes: Any
) -> tuple[Array, FractionalPool, Array]:
    """The input, the op of the maximum, and the random numbers that place its windows."""
    check_key(key, "a PRNG key", "Pass jax.random.key(0), say.")
    x = as_array(x)
    place = place_by_type(x)
    whole = place.whole(x.shape) if place else x.shape
    op = fractional_op(whole, window_shape, output_shape, axes)
    check_whole(x, *op.window.axes)
    lanes = [1 if axis in op.window.axes else size for axis, size in enumerate(whole)]
    return x, op, jax.random.uniform(key, (len(op.dims), *lanes), chance_dtype(x.dtype))


def _of_shards(op: Fractional, x: Array, samples: Array) -> Array:
    """What the op gives of x, on each device where x is sharded along other axes."""
    place = place_by_type(x)
    if place is None:
        return apply_given(op, x, *samples)[0]
    y: Array = on_shards(Local(op), place, x, *map(place.part, samples))
    return y


def fractional_op(
    shape: tuple[Any, ...],
    window_shape: Any,
    output_shape: Any,
    axes: Any,
    chance: str = "float32",
) -> FractionalPool:
    """The arguments of a fractional pool over an array of `shape`, checked; `chance` as in `RandomAxis`."""
    output_shape = listed(output_shape)
    if not is_sequence(output_shape) or not output_shape:
        rule = "a tuple of positive ints, one per pooled axis"
        kind = ValueError if is_sequence(output_shape) else TypeError
        hint = "Pass a tuple such as (4, 4)."
        raise ArgumentError("output_shape", rule, output_shape, hint, kind)
    rank = len(output_shape)
    where = normalise_axes(axes, len(shape), rank)
    window = per_axis("window_shape", window_shape, rank)
    outs = per_axis("output_shape", output_shape, rank, or_int=False)
    for axis, width, out in zip(where, window, outs, strict=True):
        if not is_int(shape[axis]):
            hint = "Batch and channel axes may be symbolic, pooled axes not."
            rule = f"of known size along pooled axis {axis}"
            raise ArgumentError("x", rule, shape[axis], hint, of=f"shape[{axis}]")
        if width > shape[axis]:
            rule = f"at most the input, {shape[axis]} along axis {axis}"
            raise ArgumentError("window_shape", rule, window_shape, "Use a smaller window.")
        if out > shape[axis] - width + 1:
            rule = f"at most size - window + 1, {shape[axis] - width + 1} along axis {axis}"
            hint = "Ask for fewer windows, or smaller ones."
            raise ArgumentError("output_shape", rule, output_shape, hint)
    sizes = [int(shape[axis]) for axis in where]
    for size in sizes:
        check_countable("x", (size,))
    dims = [RandomAxis(*each, chance) for each in zip(where, sizes, window, outs, strict=True)]
    return FractionalPool(tuple(dims))


@public
def stochastic_pool(
    key: Any,
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Draws one element of each window, in proportion to its value.

    `y[b, i, j, c] = x[b, i * s - p + u, j * s - p + v, c]` with (u, v) drawn with the probability
    `w[u, v] / sum(w)`, where `w[u, v] = max(x[b, i * s - p + u, j * s - p + v, c], 0)`, with B
    batch, H W spatial, C channels, strides s, low padding p and taps u, v inside the window. Every
    window draws for itself, also where windows overlap. With `key=None`, for evaluation, the mean
    of a draw: `y = sum(w * x) / sum(w)`. A window whose weights are all 0 gives its first element,
    both ways. One uniform number decides each window: in float32 an element whose share of the sum is
    below about 1e-7 may never be drawn.

    Gradient: of a draw, the cotangent goes to the element drawn, overlapping windows add up, all
    others get zeros; the residual is one unsigned index per output element. With `key=None` it is
    the derivative of the formula, 0 for elements of weight 0; kept are x and the output. Padding is
    never drawn and weighs nothing. A NaN in a window is drawn before all else and makes the mean NaN;
    so does +inf before all numbers, and the mean is +inf. 8- and 16-bit floats are weighed and added
    in float32 and rounded once. Forward and reverse mode, to any order; no scatter.

    Args:
      key: a PRNG key, as of `jax.random.key(0)`, or None to take the weighted mean. The same key
        draws the same elements.
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x, but that of `jnp.mean`
      for the mean of integers or bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

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
        rule, hint = "a PRNG key or None", "Pass jax.random.key(0), say, or None to evaluate."
        check_key(key, rule, hint)
    geometry: dict[str, Any] = {"strides": strides, "padding": padding, "axes": axes}
    x, window, split = checked(x, window_shape, **geometry)
    op = StochasticPool(window)
    chance: tuple[Array, ...] = ()
    if key is not None:
        whole = split.place.whole(x.shape) if split else x.shape
        chance = (jax.random.uniform(key, window.pooled(whole), weight_dtype(x.dtype)),)
    if split:
        y: Array = split.apply(drawn, op, x, *map(split.place.part, chance))
        return y
    lies = jax.typeof(x).sharding
    if any(lies.spec):  # along axes of symbolic sizes, of which there is no split
        chance = tuple(reshard(each, lies) for each in chance)
    return drawn(op, x, *chance)
