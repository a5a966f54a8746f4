"""Public pooling over boxes of images: `roi_align`, also over a feature pyramid, and `roi_max_pool`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.box_arguments import (
    as_boxes,
    check_images_and_boxes,
    check_num_cells,
    check_positive_number,
    check_spatial_scale,
)
from jaxpool._api.max_pool import max_pool
from jaxpool._arguments.arrays import ArrayArgument, as_array
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError, short_repr
from jaxpool._arguments.sharding import call_with_auto_sharding, context_axes
from jaxpool._arguments.sizes import (
    IntOrInts,
    check_bool,
    check_choice,
    check_fits_int32_indices,
    checked_int,
    fits_int32,
    is_int,
    is_tuple_or_list,
)
from jaxpool._kernels.dtypes import Ties, accumulator_dtype, float_constant, full, mean_dtype
from jaxpool._ops.apply import apply
from jaxpool._ops.box_max import BoxMax
from jaxpool._ops.box_mean import BoxMean, apply_box_mean
from jaxpool._plan.boxes import boxes_in_memory, gathers_points

# Added to a level before rounding down, as in torchvision, so that rounding errors do not lower a whole-number level.
_LEVEL_ROUNDING_MARGIN = 1e-6


def _pool_box_cells(
    function: Callable[..., Array], op: BoxMean, boxes: Array, xs: Sequence[Array], *args: Array
) -> Array:
    """`function(*xs, *args)` for the cells of `op`, reshaped to the leading axes of `boxes`."""
    if 0 in boxes.shape or 0 in xs[0].shape:
        shape = (*boxes.shape[:-1], *op.output_shape, xs[0].shape[-1])
        return full(shape, 0, mean_dtype(xs[0].dtype))
    y = call_with_auto_sharding(function, (None, None, None, -1), *xs, *args)
    return y.reshape(*boxes.shape[:-1], *y.shape[1:])


def _make_box_mean_op(
    output_shape: IntOrInts, samples: object, spatial_scale: object, aligned: bool
) -> BoxMean:
    """Check the arguments of `roi_align` that do not depend on x or boxes, and return the op."""
    num_cells, rule = check_num_cells("output_shape", output_shape), "an int from 1 to 1024"
    num_samples = checked_int("samples", samples, rule, "Pass 2, say.", range(1, 1025))
    scale = check_spatial_scale(spatial_scale)
    check_bool("aligned", aligned)
    offset, min_length = (0.5, None) if aligned else (0.0, 1.0)
    return BoxMean(num_cells, scale, num_samples, offset, min_length)


@public
def roi_align(
    x: ArrayArgument,
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    kind: Literal["avg", "max"] = "avg",
) -> Array:
    """Computes the average or maximum of interpolated points in each cell of boxes (y0, x0, y1, x1).

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = sum over (h, w) of down[k, i, h] * across[k, j, w] * x[b_k, h, w, c]`, with K boxes, cells (i, j),
    rows H, columns W, channels C. `down` and `across` are the weights of bilinear interpolation at `samples` evenly
    spaced points per cell and axis. A point more than a pixel outside the image counts as 0, a nearer point as the
    nearest pixel. NaN and infinities of x reach the cells whose points have such a neighbour. A box without area, or
    with `y1 < y0` or `x1 < x0`, gives 0; without `aligned` the box is extended to at least one pixel from (y0, x0).

    Gradient: the derivative of the formula with respect to x and the boxes; at the centre of a pixel, boxes get the
    derivative from the right. For "max" the cotangent goes to the first of the largest points. NaN and infinities of
    x count as 0 in the gradient of boxes. Forward and reverse mode, to any order.

    {boxes}
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: True counts coordinates from the corner of a pixel, so half a pixel is subtracted. False counts from
        its centre, and a box is at least one pixel long.
      kind: "avg" or "max" of the points of a cell.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x, or of `jnp.mean(x)` for integers and bool.

    {wrong}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, boxes = jnp.arange(16.0).reshape(4, 4, 1), jnp.array([[0.0, 0.0, 4.0, 4.0]])
      >>> jaxpool.roi_align(x, boxes, 2)[0, ..., 0]
      Array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
      >>> jax.grad(lambda boxes: jaxpool.roi_align(x, boxes, 1).sum())(boxes + 0.25)
      Array([[2. , 0.5, 2. , 0.5]], dtype=float32)

    References:
      He et al., Mask R-CNN, arXiv:1703.06870; `torchvision.ops.roi_align`, which has a gradient for x only, and
      interpolates x for a box without area. "max" is as in MMCV and OpenVINO; ONNX compares weighted pixels.
    """
    x, boxes = as_array(x), as_boxes(boxes)
    op = _make_box_mean_op(output_shape, samples, spatial_scale, aligned)
    check_choice("kind", kind, ("avg", "max"))
    xs, flat_boxes, image_indices = check_images_and_boxes({"x": x}, boxes, batch_indices)

    def pool_cells(x: Array, *extra_args: Array) -> Array:
        if kind == "max":
            return _max_of_sample_points(op, x, *extra_args)
        return apply_box_mean(op, [x], *extra_args)

    return _pool_box_cells(pool_cells, op, boxes, xs, flat_boxes, image_indices)


def _max_of_sample_points(op: BoxMean, x: Array, boxes: Array, image_indices: Array) -> Array:
    """The maximum of the sample points of each cell. If the points need much memory, the boxes are pooled in chunks."""
    window_shape = (op.samples or 1,) * 2
    num_points = (op.output_shape[0] * window_shape[0], op.output_shape[1] * window_shape[1])
    point_op = dataclasses.replace(op, output_shape=num_points, samples=1)

    def max_of_boxes(extra_args: Sequence[Array]) -> Array:
        points = apply_box_mean(point_op, [x], *extra_args)
        # `jaxpool.sharded` sets the sharding of x in the context, but the points are not sharded like x.
        with context_axes(None):
            return max_pool(points, window_shape, window_shape, autodiff="jvp")

    num_boxes = chunk_size = boxes.shape[0]
    if not gathers_points(op.samples) and is_int(x.shape[-1]):
        chunk_size = boxes_in_memory(num_points, x.shape[-1])
    if chunk_size >= num_boxes:
        return max_of_boxes((boxes, image_indices))
    num_chunks = -(-num_boxes // chunk_size)

    def split_into_chunks(array: Array) -> Array:
        pad_widths = ((0, num_chunks * chunk_size - num_boxes), *((0, 0),) * (array.ndim - 1))
        return jnp.pad(array, pad_widths).reshape(num_chunks, chunk_size, *array.shape[1:])

    chunked_args = split_into_chunks(boxes), split_into_chunks(image_indices)
    chunks = lax.map(jax.checkpoint(max_of_boxes), chunked_args)
    return chunks.reshape(num_chunks * chunk_size, *chunks.shape[2:])[:num_boxes]


@public
def multilevel_roi_align(
    features: Sequence[ArrayArgument],
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 0.25,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
    samples: int = 2,
    aligned: bool = True,
) -> Array:
    """Computes `roi_align` of each box (y0, x0, y1, x1) in the level of a feature pyramid that suits its size.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here. A box of height h and width w in
    pixels of the image is pooled from level `k = floor(canonical_level + log2(sqrt(h * w) / canonical_size))`. If
    there is no level k, the finest or the coarsest level is used. A pixel of level k covers `2**k` pixels.

    Gradient: as in `roi_align` of the selected level, with respect to the features and the boxes. The choice of the
    level has no gradient. Forward and reverse mode, to any order.

    Args:
      features: a list or tuple of arrays (B, H, W, C), or (H, W, C) for one image, one array per level, the finest
        first. The arrays have floats, integers or bool, one dtype and one number of channels. Channels come last.
      boxes: array of shape (B, K, 4) or (..., K, 4) in pixels of the image, as in `roi_align`. A box with `y1 <= y0`
        or `x1 <= x0` gives 0.
      output_shape: the number of cells down and across a box, an int or two ints.
      batch_indices: integers of shape (..., K), the image of each box, as in `roi_align`.
      spatial_scale: pixels of the first level per pixel of the image: 2**-k for level k. Each level halves the scale.
      canonical_size: the size of a box, in pixels of the image, that is pooled from `canonical_level`.
      canonical_level: an int from -1024 to 1024, 4 as in the paper.
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: as in `roi_align`.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of the features, or of their `jnp.mean` for integers, bool.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> fine, coarse = jnp.full((64, 64, 1), 2.0), jnp.full((32, 32, 1), 3.0)
      >>> boxes = jnp.array([[0.0, 0.0, 50.0, 80.0], [0.0, 0.0, 120.0, 110.0]])
      >>> jaxpool.multilevel_roi_align([fine, coarse], boxes, 1).ravel()
      Array([2., 3.], dtype=float32)

    References:
      Lin et al., Feature Pyramid Networks, arXiv:1612.03144, equation 1; `torchvision.ops.MultiScaleRoIAlign`.
    """
    rule = "a list or a tuple of arrays, one for each level"
    is_array = is_tuple_or_list(features) or hasattr(features, "shape")
    if hasattr(features, "__iter__") and not is_array:
        keys = f" with keys {short_repr(list(features))}" if isinstance(features, dict) else ""
        got = f"a {type(features).__name__}{keys}"
        hint = "Pass a list ordered from fine to coarse."
        raise ArgumentError("features", rule, features, hint, TypeError, shown_value=got)
    if not is_tuple_or_list(features) or not features:
        hint = "One level is [x]."
        raise ArgumentError("features", rule, features, hint, TypeError, must_be_static=False)
    names = [f"features[{level}]" for level in range(len(features))]
    named_xs = {name: as_array(x, name) for name, x in zip(names, features, strict=True)}
    boxes = as_boxes(boxes)
    op = _make_box_mean_op(output_shape, samples, spatial_scale, aligned)
    finest_level = -math.log2(op.scale)
    if finest_level != round(finest_level):
        raise ArgumentError("spatial_scale", "a power of two", op.scale, "Level 2 has 1 / 4.")
    size = check_positive_number("canonical_size", canonical_size, "Pass 224.")
    rule = "an int from -1024 to 1024"  # more than the exponents of floats
    level = checked_int("canonical_level", canonical_level, rule, "Pass 4.", range(-1024, 1025))
    xs, flat_boxes, image_indices = check_images_and_boxes(named_xs, boxes, batch_indices)
    if len({(x.shape[0], x.shape[-1], x.dtype) for x in xs}) > 1:
        type_texts = [f"{x.dtype}{list(x.shape)}" for x in xs]
        rule = "of one dtype, and of as many images and channels each"
        raise ArgumentError("features", rule, type_texts, "Project each level to as many channels.")
    for fine, coarse in itertools.pairwise(xs):
        if coarse.shape[1] > fine.shape[1] or coarse.shape[2] > fine.shape[2]:
            rule = "the finest first, none longer along an axis than the one before"
            shapes = [x.shape for x in xs]
            raise ArgumentError("features", rule, shapes, "Pass features[::-1].")
    bounds = int(finest_level), int(finest_level) + len(xs) - 1
    levels = pyramid_level_of_boxes(flat_boxes, bounds, size, level)
    level_scales = [op.scale / 2**n for n in range(len(xs))]
    return mean_in_pyramid_level(op, level_scales, xs, boxes, image_indices, levels)


@functools.partial(jax.jit, static_argnums=(1, 2, 3), inline=True)
def pyramid_level_of_boxes(
    boxes: Array, level_bounds: tuple[int, int], canonical_size: float, canonical_level: int
) -> Array:
    """The pyramid level of each box (K, 4), counted from `level_bounds[0]`; 0, the finest, for a box without area."""
    wide_boxes = lax.stop_gradient(boxes).astype(accumulator_dtype(mean_dtype(boxes.dtype)))
    area = (wide_boxes[:, 2] - wide_boxes[:, 0]) * (wide_boxes[:, 3] - wide_boxes[:, 1])
    raw_level = canonical_level + jnp.log2(
        jnp.sqrt(area) / float_constant(canonical_size, area.dtype)
    )
    margin = np.asarray(_LEVEL_ROUNDING_MARGIN, area.dtype)
    level = jnp.clip(jnp.floor(raw_level + margin), *level_bounds)
    return jnp.where(area > 0, level - level_bounds[0], 0).astype(np.int32)


def mean_in_pyramid_level(
    op: BoxMean, level_scales: Sequence[float], xs: Sequence[Array], boxes: Array, *indices: Array
) -> Array:
    """The means of the cells of boxes (..., K, 4), scaled by `level_scales`; `indices` are those of image and level."""

    def pool_cells(*arrays: Array) -> Array:
        flat_boxes, image, level = arrays[len(xs) :]
        scaled_boxes = _scale_boxes(flat_boxes, tuple(level_scales), level)
        level_op = dataclasses.replace(op, scale=1.0)
        return apply_box_mean(level_op, arrays[: len(xs)], scaled_boxes, image, level)

    return _pool_box_cells(pool_cells, op, boxes, xs, boxes.reshape(-1, 4), *indices)


@functools.partial(jax.jit, static_argnums=1, inline=True)
def _scale_boxes(boxes: Array, level_scales: tuple[float, ...], level: Array) -> Array:
    """Boxes (K, 4), each times the scale of its level, in the accumulator dtype."""
    wide_boxes = boxes.astype(accumulator_dtype(mean_dtype(boxes.dtype)))
    scales = jnp.asarray(float_constant(level_scales, wide_boxes.dtype))
    return wide_boxes * scales[jnp.clip(level, 0, len(level_scales) - 1)][:, None]


@public
def roi_max_pool(
    x: ArrayArgument,
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 1.0,
    ties: Ties = "first",
) -> Array:
    """Computes the largest pixel of each cell of boxes (y0, x0, y1, x1), rounded to whole pixels.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = max of x[b_k, h, w, c]` over the rows h of cell i and the columns w of cell j of box k. Corners
    are rounded, halves away from 0, and belong to the box, so a box has `max(y1 - y0 + 1, 1)` rows. Cell i of I has
    the rows from `floor(i * n / I)` to below `ceil((i + 1) * n / I)` of n rows, as far as the rows are in the image.
    A cell without pixels gives 0. These bounds are computed in float32 (float64 for float64 boxes), as in
    torchvision, so a cell may have one more row at either end.

    Gradient: the cotangent of a cell goes to the largest pixel, or by `ties` to equal pixels; boxes get no gradient.
    NaN is larger than every number. Forward and reverse mode, to any order.

    {boxes}
      ties: which of equal pixels gets the cotangent: the "first" or the "last" in row-major order, or all of them,
        equal parts ("split").

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x.

    {wrong}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, boxes = jnp.arange(16.0).reshape(4, 4, 1), jnp.array([[0.0, 0.0, 2.0, 3.0]])
      >>> jaxpool.roi_max_pool(x, boxes, 2)[0, ..., 0]
      Array([[ 5.,  7.],
             [ 9., 11.]], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.roi_max_pool(x, boxes, 1).sum())(x)[..., 0]
      Array([[0., 0., 0., 0.],
             [0., 0., 0., 0.],
             [0., 0., 0., 1.],
             [0., 0., 0., 0.]], dtype=float32)

    References:
      Girshick, Fast R-CNN, arXiv:1504.08083; `torchvision.ops.roi_pool`, which skips NaN.
    """
    x, boxes = as_array(x), as_boxes(boxes)
    num_cells = check_num_cells("output_shape", output_shape)
    scale = check_spatial_scale(spatial_scale)
    check_choice("ties", ties, ("first", "last", "split"))
    (x,), flat_boxes, image_indices = check_images_and_boxes({"x": x}, boxes, batch_indices)
    check_fits_int32_indices("x", x.shape[1:3])
    y = max_pixel_of_cells(num_cells, scale, ties, x, flat_boxes, image_indices)
    return y.reshape(*boxes.shape[:-1], *y.shape[1:])


def max_pixel_of_cells(
    num_cells: tuple[int, ...], spatial_scale: float, ties: Ties, x: Array, *extra_args: Array
) -> Array:
    """The largest pixel of each cell, (K, *num_cells, C); `extra_args` are the boxes and, if any, image indices."""
    count = extra_args[0].shape[0]
    if not fits_int32(count * math.prod(num_cells)):
        rule, hint = "of fewer than 2**31 cells in all", "Pool some boxes at a time."
        raise ArgumentError("boxes", rule, (count, *num_cells), hint, shown_value=f"{count} boxes")
    if count == 0 or 0 in x.shape:
        return full((count, *num_cells, x.shape[-1]), 0, x.dtype)
    extra_args = tuple(map(lax.stop_gradient, extra_args))
    op = BoxMax(num_cells, spatial_scale, ties, x.shape[:3])
    x_axes = None, None, None, -1
    return call_with_auto_sharding(functools.partial(apply, op), x_axes, x, *extra_args)
