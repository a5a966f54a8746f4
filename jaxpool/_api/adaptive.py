"""Public adaptive pooling, global pooling over whole axes, and spatial pyramid pooling, which joins adaptive pools."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

import jax
from jax import Array, lax

from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, as_array, as_broadcast_mask
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import sharding_from_type
from jaxpool._arguments.sizes import (
    Axes,
    Shape,
    check_bool,
    check_choice,
    check_fits_int32_indices,
    check_fits_uint32_indices,
    checked_tuple,
    is_int,
    normalise_axes,
    static_sizes,
)
from jaxpool._geometry.adaptive import OutputSizes, adaptive_window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Ties
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.adaptive_pool import AdaptiveKind, adaptive_pool
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.reduction import reduce_axes
from jaxpool._shards.adaptive import adaptive_pool_of_shards
from jaxpool._shards.split import all_gather_axes
from jaxpool._shards.whole import reduce_sharded


def _adaptive_pool(
    kind: AdaptiveKind,
    x: ArrayArgument,
    output_shape: OutputSizes,
    axes: Axes,
    autodiff: Autodiff,
    ties: Ties = "first",
) -> Any:
    """The adaptive pool of x of a `kind` that `adaptive_pool` names."""
    x = as_array(x)
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    window = adaptive_window(shape, output_shape, axes)
    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    if kind == "argmax":
        check_fits_int32_indices("x", window.input_shape)
    if sharding is None:
        return adaptive_pool(kind, window, ties, x, autodiff)
    return adaptive_pool_of_shards(kind, sharding, x, window, ties, autodiff)


@public
def adaptive_max_pool(
    x: ArrayArgument,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = max of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and `floor(j * W / M) <=
    w < ceil((j + 1) * W / M)`, with B batch, H W spatial, C channels, and N M the `output_shape`. Any number of axes
    can be pooled. Windows cover the input; neighbours may overlap, by one position if there are no more windows than
    positions. If N divides H and M divides W, this is `max_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: as in `max_pool`, to the selected element. NaN is larger than every number; -inf is an ordinary value.

    {x}, also bool (max is "or").
        Pooled axes have a known size of at least 1; batch and channel axes may have size 0.
      output_shape: the number of windows along each pooled axis, a positive int of at most the size of the axis plus
        2**20. None keeps the size of an axis. A single int needs `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last, in row-major order of `axes`.
    {selection}

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x.

    {empty}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])[:, None]
      >>> jaxpool.adaptive_max_pool(x, (3,)).ravel()
      Array([3., 5., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_max_pool(x, (3,)).sum())(x).ravel()
      Array([0., 1., 0., 2., 0.], dtype=float32)

    References:
      `torch.nn.functional.adaptive_max_pool2d` has the same windows, but selects the last NaN of a window.
    """
    y: Array = _adaptive_pool("max", x, output_shape, axes, autodiff, ties)
    return y


@public
def adaptive_max_pool_with_argmax(
    x: ArrayArgument,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each window and its position, for `output_shape` windows per axis.

    y is the result of `adaptive_max_pool`, and `indices[b, i, j, c] = h * W + w` for the selected element
    `x[b, h, w, c]`, with B batch, H W spatial, C channels. `max_unpool` takes these indices.

    Gradient: y has the gradient of `adaptive_max_pool`; the integers `indices` have no gradient. In a window with a
    NaN, `ties` selects a NaN and its index.

    {x}, also bool. The pooled axes have fewer than 2**31 positions.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes, as in `adaptive_max_pool`. Indices are row-major in the order of `axes`.
      ties: as in `max_pool_with_argmax`: the "first", the "last" or "split", for the cotangent and the index.
    {autodiff}

    Returns:
      y, the result of `adaptive_max_pool`, and `indices`, an int32 array of the same shape.

    {empty}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 6]])
      >>> y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (1, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 6]], dtype=int32), Array([[3, 5]], dtype=int32))

    References:
      `torch.nn.functional.adaptive_max_pool2d` with `return_indices=True`.
    """
    y, indices = _adaptive_pool("argmax", x, output_shape, axes, autodiff, ties)
    return y, indices


@public
def adaptive_avg_pool(
    x: ArrayArgument, output_shape: OutputSizes, *, axes: Axes = None, autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the average of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = mean of x[b, h, w, c]` over the windows of `adaptive_max_pool`. If N divides H and M divides W,
    with the letters used there, this is `avg_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up.

    {x}, also bool. Pooled axes have a known size of at least 1.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x, or of
      `jnp.mean(x)` for integers and bool.

    {empty}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.adaptive_avg_pool(x, (4,)).ravel()
      Array([1., 3., 6., 8.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_avg_pool(x, (2,)).sum())(x[:4]).ravel()
      Array([0.5, 0.5, 0.5, 0.5], dtype=float32)

    References:
      `torch.nn.functional.adaptive_avg_pool2d` has the same windows; `equinox.nn.AdaptiveAvgPool2d` has other windows
      if N does not divide H.
    """
    y: Array = _adaptive_pool("mean", x, output_shape, axes, autodiff)
    return y


def _check_pooled_axes(axes: Axes, shape: Shape) -> tuple[int, ...]:
    """`axes` as non-negative ints; None is all axes of x except the first and the last."""
    if axes is None and len(shape) < 3:
        rule = "an array of at least 3 axes, batch, pooled and channels"
        hint = "Pass axes=... to pool an array without batch or channel axis."
        raise ArgumentError("x", rule, len(shape), hint, attribute="ndim")
    unchecked_axes = tuple(range(1, len(shape) - 1)) if axes is None else axes
    pooled_axes = normalise_axes(unchecked_axes, len(shape), None)
    static_sizes(shape, pooled_axes)
    return pooled_axes


def _global_pool(
    kind: Literal["max", "mean"],
    x: ArrayArgument,
    axes: Axes,
    where: MaskArgument,
    keepdims: bool,
    ties: Ties = "first",
) -> Array:
    x = as_array(x)
    pooled_axes = _check_pooled_axes(axes, x.shape)
    check_fits_uint32_indices("x", [x.shape[axis] for axis in pooled_axes])
    output_shape = [size for axis, size in enumerate(x.shape) if axis not in pooled_axes]
    mask = None if where is None else as_broadcast_mask(where, x.shape, output_shape=output_shape)
    check_bool("keepdims", keepdims)
    check_choice("ties", ties, ("first", "last", "split"))
    sharding = sharding_from_type(x)
    if sharding is None:
        return reduce_axes(kind, pooled_axes, ties, x, mask, keepdims)
    return reduce_sharded(kind, sharding, x, pooled_axes, mask, keepdims, ties)


@public
def global_max_pool(
    x: ArrayArgument,
    *,
    axes: Axes = None,
    where: MaskArgument = None,
    keepdims: bool = False,
    ties: Ties = "first",
) -> Array:
    """Computes the largest element over whole axes.

    `y[b, c] = max over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W spatial, C channels. Any
    number of axes can be pooled.

    Gradient: the cotangent goes to the selected element; excluded elements get 0, even NaN. NaN is larger than every
    number; -inf is an ordinary value. Forward and reverse mode, to any order.

    {whole}
      where: the elements to include, as in `max_pool`. Without a True the result is the lowest value of the dtype.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them ("split").

    Returns:
      Array of shape `(B, C)`, in general the shape of x without the pooled axes, or with size 1; the dtype of x.

    {empty}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_max_pool(x).ravel()
      Array([5., 9.], dtype=float32)
      >>> mask = jnp.arange(3) < jnp.array([1, 2])[:, None]
      >>> jaxpool.global_max_pool(x, where=mask[..., None]).ravel()
      Array([1., 4.], dtype=float32)

    References:
      `keras.layers.GlobalMaxPooling2D`; `where` as in `jax.numpy.max`.
    """
    return _global_pool("max", x, axes, where, keepdims, ties)


@public
def global_avg_pool(
    x: ArrayArgument, *, axes: Axes = None, where: MaskArgument = None, keepdims: bool = False
) -> Array:
    """Computes the average over whole axes.

    `y[b, c] = 1 / n * sum over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W spatial, C channels
    and n the number of terms. Any number of axes can be pooled.

    Gradient: every included element gets `dy / n`, and excluded elements get 0, even NaN. Forward and reverse mode,
    to any order, and `jax.linear_transpose`.

    {whole}
      where: the elements to include, as in `max_pool`. Without a True the result and the gradient are 0.

    Returns:
      Array of shape `(B, C)`, in general the shape of x without the pooled axes, or with size 1 for each; the dtype
      of x, or of `jnp.mean(x)` for integers and bool.

    {empty}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_avg_pool(x).ravel()
      Array([3., 5.], dtype=float32)

    References:
      `keras.layers.GlobalAveragePooling2D`; `where` as in `jax.numpy.mean`, which returns NaN without a True.
    """
    return _global_pool("mean", x, axes, where, keepdims)


@public
def spatial_pyramid_pool(
    x: ArrayArgument,
    levels: Sequence[int],
    *,
    kind: Literal["max", "avg"] = "max",
    axes: Axes = None,
) -> Array:
    """Computes adaptive pools of several sizes, joined into a vector whose length does not depend on the size of x.

    `y[b, (l, i, j, c)] = pool(x, (n_l, n_l))[b, i, j, c]`, with levels `n_l` from coarse to fine, windows (i, j) in
    row-major order, B batch and C channels, which vary fastest. Any number of axes can be pooled.

    Gradient: as in `adaptive_max_pool` with `ties="first"`, or as in `adaptive_avg_pool`. Cotangents of the levels
    add up. Forward and reverse mode, to any order; averages also support `jax.linear_transpose`.

    Args:
      x: array of shape `(B, *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Pooled axes have a
        known size of at least 1.
      levels: a tuple of positive ints, the number of windows of each level along every pooled axis, in any order. The
        output has the levels in ascending order.
      kind: "max" or "avg".
      axes: the pooled axes; None is all except the first and the last. The last other axis is the channel axis.

    Returns:
      Array of shape `(..., C * sum of n_l**k)`, with k the number of pooled axes; the dtype of x, or of `jnp.mean(x)`
      for averages of integers and bool.

    {empty}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
      >>> jaxpool.spatial_pyramid_pool(x, (1, 2))
      Array([[15.,  5.,  7., 13., 15.]], dtype=float32)

    References:
      He et al., Spatial Pyramid Pooling in Deep Convolutional Networks, arXiv:1406.4729.
    """
    x = as_array(x)
    rule, hint = "a tuple of positive ints", "Pass a tuple such as (1, 2, 4)."
    checked_levels = checked_tuple("levels", levels, rule, hint)
    if not all(map(is_int, checked_levels)):
        raise ArgumentError("levels", rule, levels, hint, TypeError)
    sorted_levels = sorted(map(operator.index, checked_levels))
    if sorted_levels[0] < 1:
        raise ArgumentError("levels", rule, levels, hint)
    check_choice("kind", kind, ("max", "avg"))
    pooled_axes = _check_pooled_axes(axes, x.shape)
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    for index, level in enumerate(checked_levels):
        adaptive_window(shape, level, pooled_axes, arg_name=f"levels[{index}]")
    for axis in pooled_axes:
        count = sharding.num_shards(axis) if sharding else 1
        if any(level != 1 and level % count for level in sorted_levels):
            rule = f"1, or sizes that the {count} shards of a pooled axis divide"
            hint = "Pass jax.reshard(x, spec), where spec has None for pooled axes."
            raise ArgumentError("levels", rule, levels, hint)
    other_axes = [axis for axis in range(x.ndim) if axis not in pooled_axes]
    axis_order = [*other_axes[:-1], *pooled_axes, *other_axes[-1:]]
    x, shape = lax.transpose(x, axis_order), tuple(shape[axis] for axis in axis_order)
    sharding = sharding.permute_axes(axis_order) if sharding else None
    first_axis = len(other_axes[:-1])
    spatial_axes = tuple(range(first_axis, first_axis + len(pooled_axes)))
    dtype = dtypes.mean_dtype(x.dtype) if kind == "avg" else x.dtype
    # The cotangents of the levels are added in the dtype of x, so x gets the accumulator dtype.
    x = dtypes.cast(x, dtypes.accumulator_dtype(dtype))
    level_outputs = []
    for count in sorted_levels:
        window = adaptive_window(shape, count, spatial_axes)
        level_kind: AdaptiveKind = "max" if kind == "max" else "mean"
        if sharding is None:
            y = adaptive_pool(level_kind, window, "first", x)
        else:
            y = adaptive_pool_of_shards(level_kind, sharding, x, window)
            # Cells and channels are joined into one axis, which is not sharded.
            y_sharding = sharding.replicate_axes(spatial_axes) if count == 1 else sharding
            y = all_gather_axes(y_sharding, y, range(first_axis, y.ndim))
        level_outputs.append(_flatten_axes_from(y, first_axis))
    return dtypes.cast(lax.concatenate(level_outputs, level_outputs[0].ndim - 1), dtype)


def _flatten_axes_from(y: Array, first_axis: int) -> Array:
    """Flatten axis `first_axis` of y and all later axes into one axis. The earlier axes keep their sharding."""
    shape = (*y.shape[:first_axis], math.prod(y.shape[first_axis:]))
    if not is_sharded(y):
        return lax.reshape(y, shape)
    # jax cannot infer the sharding of a reshape if axes have size 0 or 1.
    sharding = jax.typeof(y).sharding
    spec = jax.sharding.PartitionSpec(*sharding.spec[:first_axis], None)
    return lax.reshape(y, shape, out_sharding=sharding.update(spec=spec))
