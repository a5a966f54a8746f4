"""Public max pooling with indices, flat and row-major over the pooled axes, and its inverse, `max_unpool`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jax import Array

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument, as_array, as_integer_array, concrete_values
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import sharding_from_type
from jaxpool._arguments.sizes import (
    Axes,
    IntOrInts,
    Padding,
    Shape,
    check_fits_int32_indices,
    checked_tuple,
    example_axes,
    ints_per_axis,
    is_int,
    normalise_axes,
)
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels.dtypes import Ties
from jaxpool._kernels.slices import reshard_like
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.select_pool import max_pool_with_position
from jaxpool._ops.unpool import Unpool
from jaxpool._shards.unpool import unpool
from jaxpool._shards.windowed import max_pool_with_position_of_shard


@public
def max_pool_with_argmax(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each window and its position in the input.

    `y = max_pool(x, window_shape, ...)` and `indices[b, i, j, c] = h * W + w` for the selected element
    `x[b, h, w, c]`, with the letters of `max_pool`. Any number of axes can be pooled.

    Gradient: y has the gradient of `max_pool`; the integers `indices` have no gradient. In a window with a NaN,
    `ties` selects a NaN and its index. An index never refers to padding, even if all elements are the lowest value.

    {x}, also bool. The pooled axes have fewer than 2**31 positions.
    {geometry} Indices are row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and the index: the "first" or the "last" in row-major order.
        "split" divides the cotangent among all equal elements and returns the index of the first element.
    {autodiff}

    Returns:
      y, an array of the shape that `max_pool` returns and of the dtype of x, and `indices`, an int32 array of the
      same shape: positions from 0 to the product of the unpadded pooled axes minus 1.

    {errors}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 5]], dtype=int32), Array([[3, 4]], dtype=int32))

    References:
      `torch.nn.functional.max_pool2d` with `return_indices=True`, which returns the last NaN of a window, but the
      first of equal numbers. The indices of `tf.nn.max_pool_with_argmax` count channels too.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    checked = check_input(x, arguments, ties=ties, autodiff=autodiff)
    check_fits_int32_indices("x", checked.window.input_shape)
    pools = max_pool_with_position, max_pool_with_position_of_shard
    return checked.run(*pools, checked.x, ties, autodiff=autodiff)


@public
def max_unpool(
    y: ArrayArgument, indices: ArrayArgument, spatial_shape: Sequence[int], *, axes: Axes = None
) -> Array:
    """Puts each element at its position from `max_pool_with_argmax`, and zeros elsewhere.

    `x[b, h, w, c] = y[b, i, j, c]` for the last (i, j) in row-major order with `indices[b, i, j, c] == h * W + w`,
    with B batch, H W spatial, C channels. Positions without an index get 0. Any number of axes can be unpooled.

    Gradient: an element of y gets the cotangent at its index. The gradient is 0 if a later element overwrites the
    position, or if the index was dropped. Forward mode has the same rule.

    Args:
      y: array of shape `(..., *pooled, C)`, or of any shape with `axes`; floats, integers or bool. If the type of y
        shows that `axes` are sharded, each index must be in the shard of its element or in a neighbouring shard.
        Windows no longer than a shard give such indices. Other indices raise an error, or are dropped if traced.
      indices: integers of the shape of y: flat row-major positions over `spatial_shape`. A concrete index that is out
        of range raises an error; a traced index out of range is dropped.
      spatial_shape: the sizes of `axes` in the result, a tuple with one positive int per axis.
      axes: the axes to unpool; None is the `len(spatial_shape)` axes before the last. Indices are row-major in them.

    Returns:
      Array of the shape of y, except that `axes` have the sizes `spatial_shape`; the dtype of y.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> jaxpool.max_unpool(y, indices, (2, 3), axes=(0, 1))
      Array([[0, 0, 0],
             [7, 5, 0]], dtype=int32)

    References:
      `torch.nn.functional.max_unpool2d`. With equal indices it is random, and overwritten elements get a gradient.
    """
    y = as_array(y, "y")
    rule, hint = "a tuple of positive ints, one an unpooled axis", "Pass a tuple such as (4, 4)."
    checked_shape = checked_tuple("spatial_shape", spatial_shape, rule, hint)
    num_axes = len(checked_shape)
    if num_axes == y.ndim > 2 and all(map(is_int, checked_shape)):
        _check_pooled_sizes_only(checked_shape, y.shape, axes)
    pooled_axes = normalise_axes(axes, y.ndim, num_axes, "y")
    sizes = ints_per_axis("spatial_shape", spatial_shape, num_axes, mention_int=False)
    check_fits_int32_indices("spatial_shape", sizes)
    if all(is_int(y.shape[axis]) for axis in pooled_axes):
        check_fits_int32_indices("y", [y.shape[axis] for axis in pooled_axes])
    hint = (
        "Pass the indices that max_pool_with_argmax returned with y, and the sizes that it pooled."
    )
    positions = as_integer_array("indices", indices, y.shape, math.prod(sizes), hint, "y")
    positions = reshard_like(positions, y)
    sharding = sharding_from_type(y)
    if sharding:
        values = concrete_values(indices)
        return unpool(sharding, y, positions, pooled_axes, sizes, values)
    return apply(Unpool(pooled_axes, sizes), y, positions)


def _check_pooled_sizes_only(spatial_shape: Sequence[int], shape: Shape, axes: Axes) -> None:
    """Raise if `spatial_shape` is the shape of the whole result instead of the sizes of its unpooled axes."""
    ndim = len(shape)
    pooled_axes = example_axes(ndim) if axes is None else normalise_axes(axes, ndim, None, "y")
    other_axes = [axis for axis in range(ndim) if axis not in pooled_axes]
    if other_axes and all(spatial_shape[axis] == shape[axis] for axis in other_axes):
        hint = f"Pass {tuple(spatial_shape[axis] for axis in pooled_axes)}."
        rule = "the sizes of unpooled axes alone"
        raise ArgumentError("spatial_shape", rule, spatial_shape, hint)
