"""Pooling over whole axes, and the pyramid of ever finer grids."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

import jax
from jax import Array, lax

from jaxpool._api.reduce import mask_of
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    check_reducible,
    is_int,
    is_sequence,
    known_sizes,
    listed,
    normalise_axes,
)
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels import dtypes
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import apply, apply_given
from jaxpool._ops.reduction import MeanOver, reduce
from jaxpool._shards.adaptive import adaptive_pool
from jaxpool._shards.place import Place, gathered, place_by_type
from jaxpool._shards.whole import whole_pool


def inner_axes(axes: Any, shape: Sequence[Any]) -> tuple[int, ...]:
    """The pooled axes; None is all but the first and the last."""
    if axes is None and len(shape) < 3:
        rule = "an array of at least 3 axes, batch, pooled and channels"
        hint = "Pass axes=... to pool an array without batch or channel axis."
        raise ArgumentError("x", rule, len(shape), hint, of="ndim")
    inner = tuple(range(1, len(shape) - 1)) if axes is None else axes
    pooled = normalise_axes(inner, len(shape), None)
    known_sizes(shape, pooled)
    return pooled


def checked(
    x: Any, axes: Any, where: Any, keepdims: Any, ties: Any = "first"
) -> tuple[Array, tuple[int, ...], Array | None, Place | None]:
    """The input of a global pool, its pooled axes, its mask, of the rank of x, and where it lies."""
    x = as_array(x)
    pooled = inner_axes(axes, x.shape)
    check_reducible("x", [x.shape[axis] for axis in pooled])
    mask = None if where is None else mask_of(where, x.shape)
    if not isinstance(keepdims, bool):
        raise ArgumentError("keepdims", "True or False", keepdims, "Pass a bool.", TypeError)
    choice("ties", ties, ("first", "last", "split"))
    return x, pooled, mask, place_by_type(x)


@public
def global_max_pool(
    x: Any,
    *,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    keepdims: bool = False,
    ties: Ties = "first",
) -> Array:
    """Computes the largest element over whole axes.

    `y[b, c] = max over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W spatial,
    C channels; any number of pooled axes works alike.

    Gradient: the cotangent goes to the element that was chosen, all others get zeros, those that
    `where` leaves out in any case, whatever stands there. NaN is larger than every number. -inf is
    an ordinary value. Works in forward and reverse mode, to any order. The residual is one unsigned
    index per output element (with `ties="split"` it is x and y); no scatter.

    Args:
      x: array of shape `(B, *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool (where max is "or"). Pooled axes have a known size of at least 1.
      axes: the pooled axes; None is all but the first and the last. Row-major order follows `axes`.
      where: array of bools that broadcasts to x, the elements that count; None is all. Where it is
        False throughout, the result is the least value of the type (-inf, if there is one) and the
        gradient 0.
      keepdims: whether pooled axes stay, of size 1.
      ties: which of equal elements gets the cotangent: "first" or "last" in row-major order, or
        "split" among all.

    Returns:
      Array of shape `(B, C)`, or that of x without the pooled axes, or with each of size 1; the
      dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_max_pool(x).ravel()
      Array([5., 9.], dtype=float32)
      >>> length = jnp.array([1, 2])
      >>> mask = jnp.arange(3) < length[:, None]
      >>> jaxpool.global_max_pool(x, where=mask[..., None]).ravel()
      Array([1., 4.], dtype=float32)

    References:
      `keras.layers.GlobalMaxPooling2D`; `where` as in `jax.numpy.max`.
    """
    x, pooled, mask, place = checked(x, axes, where, keepdims, ties)
    if place:
        return whole_pool("max", place, x, pooled, mask, keepdims, ties)
    return reduce(x, pooled, "max", ties, "jvp", keepdims, mask)


@public
def global_avg_pool(
    x: Any, *, axes: tuple[int, ...] | None = None, where: Any = None, keepdims: bool = False
) -> Array:
    """Computes the average over whole axes.

    `y[b, c] = 1 / n * sum over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W
    spatial, C channels and n the number of elements that count; any number of pooled axes works
    alike.

    Gradient: `dy / n` to every element that counts, 0 to the others, whatever stands there. Works in
    forward and reverse mode, to any order, and under `jax.linear_transpose`. 8- and 16-bit floats are
    added in float32 and rounded once, forward and backward.

    Args:
      x: array of shape `(B, *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool. Pooled axes have a known size of at least 1.
      axes: the pooled axes; None is all but the first and the last.
      where: array of bools that broadcasts to x, the elements that count; None is all. Where it is
        False throughout, the result and the gradient are 0.
      keepdims: whether pooled axes stay, of size 1.

    Returns:
      Array of shape `(B, C)`, or that of x without the pooled axes, or with each of size 1; the
      dtype of x for floats, that of `jnp.mean` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_avg_pool(x).ravel()
      Array([3., 5.], dtype=float32)
      >>> mask = jnp.arange(3) < jnp.array([0, 2])[:, None]
      >>> jaxpool.global_avg_pool(x, where=mask[..., None]).ravel()
      Array([0., 3.], dtype=float32)

    References:
      `keras.layers.GlobalAveragePooling2D`; `where` as in `jax.numpy.mean`, which gives NaN where it
      is False throughout.
    """
    x, pooled, mask, place = checked(x, axes, where, keepdims)
    if place:
        return whole_pool("mean", place, x, pooled, mask, keepdims)
    given = () if mask is None else (mask,)
    op = MeanOver(pooled, tuple(x.shape[axis] for axis in pooled))
    y = apply_given(op, dtypes.as_float(x), *given)[0]
    return y if keepdims else lax.squeeze(y, pooled)


@public
def spatial_pyramid_pool(
    x: Any,
    levels: Sequence[int],
    *,
    kind: Literal["max", "avg"] = "max",
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes adaptive pools of several sizes, as one vector of a length that no input size changes.

    `y[b, (l, i, j, c)] = pool(x, (n_l, n_l))[b, i, j, c]`, with levels `n_l` from coarse to fine, the
    bins i j of each in row-major order, B batch and C channels, which vary fastest; any number of
    pooled axes works alike.

    Gradient: as of `adaptive_max_pool`, the first of equal elements, or of `adaptive_avg_pool`;
    the levels add up, 8- and 16-bit floats in float32, rounded once. Works in forward and reverse
    mode, to any order; averages under `jax.linear_transpose` too.

    Args:
      x: array of shape `(B, *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool. Pooled axes have a known size of at least 1.
      levels: a tuple of positive ints, how many windows each level has along every pooled axis.
        They are taken in ascending order.
      kind: "max" or "avg".
      axes: the pooled axes; None is all but the first and the last. Of the others the last one is
        the channel axis.

    Returns:
      Array of shape `(..., C * sum of n_l**k)`, k the number of pooled axes; the dtype of x, that of
      `jnp.mean` for averages of integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
      >>> jaxpool.spatial_pyramid_pool(x, (1, 2))
      Array([[15.,  5.,  7., 13., 15.]], dtype=float32)

    References:
      He et al., Spatial Pyramid Pooling in Deep Convolutional Networks, arXiv:1406.4729.
    """
    x = as_array(x)
    rule, hint = "a tuple of positive ints", "Pass a tuple such as (1, 2, 4)."
    levels = listed(levels)
    if not is_sequence(levels) or not all(is_int(level) for level in levels):
        raise ArgumentError("levels", rule, levels, hint, TypeError)
    counts = sorted(operator.index(level) for level in levels)
    if not counts or counts[0] < 1:
        raise ArgumentError("levels", rule, levels, hint)
    choice("kind", kind, ("max", "avg"))
    pooled = inner_axes(axes, x.shape)
    place = place_by_type(x)
    whole = place.whole(x.shape) if place else x.shape
    for which, level in enumerate(levels):
        adaptive_window(whole, level, pooled, argument=f"levels[{which}]")
    shards = [place.count(axis) for axis in pooled] if place else []
    for count in shards:
        if any(level != 1 and level % count for level in counts):
            rule = f"1, or sizes that the {count} shards of a pooled axis divide"
            hint = "Pass jax.reshard(x, spec), where spec has None for pooled axes."
            raise ArgumentError("levels", rule, levels, hint)
    rest = [axis for axis in range(x.ndim) if axis not in pooled]
    channels = rest[-1:]
    order = [*rest[:-1], *pooled, *channels]
    x, whole = lax.transpose(x, order), [whole[axis] for axis in order]
    place = place.permuted(order) if place else None
    spatial = tuple(range(len(rest) - len(channels), x.ndim - len(channels)))
    dtype = dtypes.float_dtype(x.dtype) if kind == "avg" else x.dtype
    x = dtypes.cast(x, dtypes.accumulator(dtype))  # where the cotangents of the levels add up
    parts = []
    for count in counts:
        window = adaptive_window(whole, count, spatial)
        if place:
            y = adaptive_pool("max" if kind == "max" else "mean", place, x, window)
        else:
            op = adaptive_max_op(window, "first") if kind == "max" else adaptive_avg_op(window)
            y = apply(op, "jvp", x)
        if place:  # cells and channels become one axis
            y = gathered(
                place.reduced(spatial) if count == 1 else place, y, range(spatial[0], y.ndim)
            )
        parts.append(_flattened(y, spatial[0]))
    return dtypes.cast(lax.concatenate(parts, parts[0].ndim - 1), dtype)


def _flattened(y: Array, first: int) -> Array:
    """y with the axes from `first` on as one, sharded as y along those before."""
    shape = (*y.shape[:first], math.prod(y.shape[first:]))
    if not is_sharded(y):
        return lax.reshape(y, shape)
    # Of axes of no element or of one jax cannot tell which of the result is which.
    known = jax.typeof(y).sharding
    spec = jax.sharding.PartitionSpec(*known.spec[:first], None)
    return lax.reshape(y, shape, out_sharding=known.update(spec=spec))
