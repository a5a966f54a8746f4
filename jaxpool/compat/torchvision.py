"""The pools of `torchvision.ops` over boxes, on jax arrays and without PyTorch.

Images are channels first. Boxes (x0, y0, x1, y1) are an array (K, 5) with the image index in the first column, or a
list with one array (L, 4) per image. Differences from torchvision: 16-bit floats are computed in float32 and rounded
once. A NaN is the maximum of its cell. `roi_align` and `ps_roi_align` have gradients for boxes too. A box whose image
index is out of range raises, or gives 0 if the index is traced.

The arguments are those of torchvision: `input`, an array of floats (N, C, H, W); `boxes`; `output_size`, rows and
columns of cells per box, an int or two; `spatial_scale`, a factor for the boxes; `sampling_ratio`, sample points along
each axis of a cell (if not positive, the length of the cell in pixels, rounded up). Results are arrays (K, C,
*output_size) of the dtype of input; `ps_*` divide C by the number of cells. Malformed arguments raise TypeError or
ValueError.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpool._api.box_arguments import (
    as_boxes,
    check_num_cells,
    check_positive_number,
    check_spatial_scale,
)
from jaxpool._api.regions import max_pixel_of_cells, mean_in_pyramid_level, pyramid_level_of_boxes
from jaxpool._arguments.arrays import as_array, concrete_values, is_number
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._arguments.sharding import call_with_auto_sharding, check_unsharded
from jaxpool._arguments.sizes import (
    check_bool,
    check_fits_int32_indices,
    checked_int,
    checked_tuple,
    is_int,
    is_tuple_or_list,
)
from jaxpool._ops.box_mean import BoxMean, apply_box_mean
from jaxpool.compat._function_layer import FunctionLayer, frozen_layer

__all__ = [
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "ps_roi_align",
    "ps_roi_pool",
    "roi_align",
    "roi_pool",
]

BoxesArgument = Any  # an array (K, 5), or a sequence of arrays (L, 4)
OutputSize = int | Sequence[int]


def _convert_arguments(
    function_name: str,
    input: Any,
    boxes: BoxesArgument,
    output_size: OutputSize,
    spatial_scale: Any,
    aligned: Any = False,
    *,
    channels_per_cell: bool = False,
) -> tuple[Array, Array, Array, tuple[int, ...], float]:
    """Images, channels last, boxes (y0, x0, y1, x1), the image index of each box, the cell counts, and the scale."""
    full_name = f"compat.torchvision.{function_name}"
    with name_function_in_errors(full_name):
        x = as_array(input, "input")
    with name_function_in_errors(full_name, **{"input.shape": x.shape, "output_size": output_size}):
        if x.ndim != 4 or not jnp.issubdtype(x.dtype, jnp.floating):
            got = f"{x.dtype}{x.shape}"
            hint = "One image is input[None]." if x.ndim == 3 else "Convert it."
            raise ArgumentError("input", "an array of floats (N, C, H, W)", got, hint)
        if not all(map(is_int, (x.shape[0], *x.shape[2:]))):
            hint = "Only channels may be symbolic."
            raise ArgumentError(
                "input", "of known sizes but for C", x.shape, hint, attribute="shape"
            )
        check_fits_int32_indices("input", (x.shape[0],))
        check_fits_int32_indices("input", x.shape[2:])
        if 0 in x.shape[2:]:
            hint = "A batch may be empty, and channels, but not images."
            raise ArgumentError("input", "of images with pixels", x.shape, hint, attribute="shape")
        axes = range(4) if channels_per_cell else (0, 2, 3)
        check_unsharded(x, *axes, checks_types=False, arg_name="input")
        num_cells = check_num_cells("output_size", output_size)
        scale = check_spatial_scale(spatial_scale)
        check_bool("aligned", aligned)
        if channels_per_cell and x.shape[1] % (num_cells[0] * num_cells[1]):
            rule = f"of a number of channels that {num_cells[0]} * {num_cells[1]} divides"
            raise ArgumentError("input", rule, x.shape, "Each cell has its own.", attribute="shape")
        is_list = is_tuple_or_list(boxes)
        named = {f"boxes[{n}]": x for n, x in enumerate(boxes)} if is_list else {"boxes": boxes}
        arrays = [as_boxes(x, name) for name, x in named.items()]
        num_columns = 4 if is_list else 5
        if not arrays or any(array.ndim != 2 or array.shape[1] != num_columns for array in arrays):
            rule = "an array (K, 5), or a list with an array (L, 4) for each image"
            raise ArgumentError("boxes", rule, [array.shape for array in arrays], "Reshape them.")
        if not all(is_int(array.shape[0]) for array in arrays):
            hint = "Only the channels of input may be symbolic."
            raise ArgumentError("boxes", "of known sizes", [array.shape for array in arrays], hint)
    if is_list:
        ids = np.repeat(np.arange(len(arrays), dtype=np.int32), [len(array) for array in arrays])
        images, corners = jax.device_put(ids), jnp.concatenate(arrays)
    else:
        images = lax.index_in_dim(arrays[0], 0, axis=1, keepdims=False).astype(np.int32)
        corners = lax.slice_in_dim(arrays[0], 1, 5, axis=1)
    with name_function_in_errors(full_name, **{"input.shape": x.shape}):
        indices = images if is_list else lax.index_in_dim(arrays[0], 0, axis=1, keepdims=False)
        _check_image_indices(indices, x.shape[0])
    # (x, y) to (y, x). Indexing would transfer the indices, which jax.transfer_guard("disallow") forbids.
    corners = lax.rev(corners.reshape(-1, 2, 2), (2,)).reshape(-1, 4)
    return jnp.moveaxis(x, 1, -1), corners, images, num_cells, scale


def _check_image_indices(image_indices: Array, num_images: int) -> None:
    """Raise if the image index of a box is concrete and not from 0 to `num_images - 1`."""
    concrete_indices = concrete_values(image_indices)
    if concrete_indices is None:
        return
    invalid_indices = concrete_indices[~((concrete_indices >= 0) & (concrete_indices < num_images))]
    if invalid_indices.size:
        valid = f"of images from 0 to {num_images - 1}" if num_images else ""
        rule, hint = valid or "none where input is empty", "The first column names the image."
        raise ArgumentError("boxes", rule, invalid_indices[0].item(), hint)


def _mean_per_cell(op: BoxMean, x: Array, boxes: Array, image_indices: Array) -> Array:
    num_cells = op.output_shape[0] * op.output_shape[1] if op.uses_own_channels else 1
    channels = x.shape[-1] // num_cells
    if boxes.shape[0] == 0 or 0 in x.shape:
        return jnp.zeros((boxes.shape[0], channels, *op.output_shape), x.dtype)

    def pool_cells(x: Array, *extra_args: Array) -> Array:
        return apply_box_mean(op, [x], *extra_args)

    # Channels per cell are split over the cells, so no axis of the result is sharded as the channels of x.
    x_axes = (None, None, None, None if op.uses_own_channels else -1)
    y = call_with_auto_sharding(pool_cells, x_axes, x, boxes, image_indices)
    return jnp.moveaxis(y, -1, 1)


def _samples_per_cell(function_name: str, sampling_ratio: Any) -> int | None:
    with name_function_in_errors(f"compat.torchvision.{function_name}"):
        rule, hint = ("an int of at most 1024", "Pass -1 for as many as a cell is pixels long.")
        if not is_int(sampling_ratio):
            raise ArgumentError("sampling_ratio", rule, sampling_ratio, hint, TypeError)
        count = operator.index(sampling_ratio)
        if count > 1024:
            raise ArgumentError("sampling_ratio", rule, sampling_ratio, hint)
    return count if count > 0 else None


def _max_image_height(image_shapes: Any) -> float:
    """The largest height in `image_shapes`, pairs (height, width)."""
    rule, hint = "a list of (height, width), one for each image", "Pass [(480, 640)], say."
    heights = []
    for shape in checked_tuple("image_shapes", image_shapes, rule, hint):
        sizes = checked_tuple("image_shapes", shape, rule, hint)
        if len(sizes) != 2 or not all(is_number(size) and 0 < size < math.inf for size in sizes):
            raise ArgumentError("image_shapes", rule, image_shapes, hint)
        heights.append(sizes[0])
    return max(heights)


@public
def roi_align(
    input: Any,
    boxes: BoxesArgument,
    output_size: OutputSize,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Array:
    """Computes the average of points in each cell of boxes, as `torchvision.ops.roi_align`.

    Gradient: for input, as in torchvision, and for the boxes. A box without area gives the value at its position, or 0
    with `sampling_ratio=-1`, as in torchvision. `aligned` subtracts half a pixel from the boxes. Without it, a box is
    at least one pixel long.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> x = jnp.arange(16.0).reshape(1, 1, 4, 4)
      >>> ops.roi_align(x, jnp.array([[0, 0, 0, 4.0, 4.0]]), 2, aligned=True)[0, 0]
      Array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
    """
    args = (input, boxes, output_size, spatial_scale, aligned)
    *arrays, num_cells, scale = _convert_arguments("roi_align", *args)
    offset, min_length = (0.5, None) if aligned else (0.0, 1.0)
    samples = _samples_per_cell("roi_align", sampling_ratio)
    op = BoxMean(num_cells, scale, samples, offset, min_length, empty_is_zero=False)
    return _mean_per_cell(op, *arrays)


@public
def ps_roi_align(
    input: Any,
    boxes: BoxesArgument,
    output_size: OutputSize,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Array:
    """Computes the average of points in each cell, with separate channels per cell, as `torchvision.ops.ps_roi_align`.

    Channel c of cell (i, j), out of I by J cells, is pooled from channel `(c * I + i) * J + j` of input. A box without
    area gives 0 with `sampling_ratio=-1`; torchvision divides 0 by 0.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> x = jnp.arange(36.0).reshape(1, 4, 3, 3)
      >>> ops.ps_roi_align(x, [jnp.array([[0.0, 0.0, 2.0, 2.0]])], 2)[0, 0]
      Array([[ 0., 10.],
             [21., 31.]], dtype=float32)
    """
    args = (input, boxes, output_size, spatial_scale)
    *arrays, num_cells, scale = _convert_arguments("ps_roi_align", *args, channels_per_cell=True)
    samples = _samples_per_cell("ps_roi_align", sampling_ratio)
    op = BoxMean(num_cells, scale, samples, empty_is_zero=False, uses_own_channels=True)
    return _mean_per_cell(op, *arrays)


@public
def roi_pool(
    input: Any, boxes: BoxesArgument, output_size: OutputSize, spatial_scale: float = 1.0
) -> Array:
    """Computes the largest pixel of each cell of boxes, as `torchvision.ops.roi_pool`.

    Gradient: to the first of tied pixels in row-major order. NaN is the largest value; torchvision ignores it.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> x = jnp.arange(16.0).reshape(1, 1, 4, 4)
      >>> ops.roi_pool(x, jnp.array([[0, 0, 0, 3.0, 2.0]]), 2)[0, 0]
      Array([[ 5.,  7.],
             [ 9., 11.]], dtype=float32)
    """
    args = (input, boxes, output_size, spatial_scale)
    *arrays, num_cells, scale = _convert_arguments("roi_pool", *args)
    return jnp.moveaxis(max_pixel_of_cells(num_cells, scale, "first", *arrays), -1, 1)


@public
def ps_roi_pool(
    input: Any, boxes: BoxesArgument, output_size: OutputSize, spatial_scale: float = 1.0
) -> Array:
    """Computes the mean of the pixels of each cell, with separate channels per cell, as `torchvision.ops.ps_roi_pool`.

    The last row and the last column of the image belong to no cell, as in torchvision. The gradient is the derivative
    of the value. The gradient of torchvision includes that row and column, also in the divisor.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> x = jnp.arange(36.0).reshape(1, 4, 3, 3)
      >>> ops.ps_roi_pool(x, jnp.array([[0, 0, 0, 2.0, 2.0]]), 2)[0, 0]
      Array([[ 0., 10.],
             [21., 31.]], dtype=float32)
    """
    args = (input, boxes, output_size, spatial_scale)
    *arrays, num_cells, scale = _convert_arguments("ps_roi_pool", *args, channels_per_cell=True)
    op = BoxMean(
        num_cells,
        scale,
        None,
        0.0,
        1.0,
        empty_is_zero=False,
        uses_own_channels=True,
        uses_whole_pixels=True,
    )
    return _mean_per_cell(op, *arrays)


class _RoILayer(FunctionLayer):
    """Base class of layers that are called with input and boxes."""

    def __call__(self, input: Any, rois: BoxesArgument) -> Array:
        """The function of the layer, of input and rois."""
        y: Array = self.call_function(input, rois)
        return y


@frozen_layer
class RoIAlign(_RoILayer, function=roi_align):
    """`roi_align` with fixed arguments, called with input and boxes, as `torchvision.ops.RoIAlign`."""

    output_size: OutputSize
    spatial_scale: float
    sampling_ratio: int
    aligned: bool = False


@frozen_layer
class RoIPool(_RoILayer, function=roi_pool):
    """`roi_pool` with fixed arguments, called with input and boxes, as `torchvision.ops.RoIPool`."""

    output_size: OutputSize
    spatial_scale: float


@frozen_layer
class PSRoIAlign(_RoILayer, function=ps_roi_align):
    """`ps_roi_align` with fixed arguments, called with input and boxes, as `torchvision.ops.PSRoIAlign`."""

    output_size: OutputSize
    spatial_scale: float
    sampling_ratio: int


@frozen_layer
class PSRoIPool(_RoILayer, function=ps_roi_pool):
    """`ps_roi_pool` with fixed arguments, called with input and boxes, as `torchvision.ops.PSRoIPool`."""

    output_size: OutputSize
    spatial_scale: float


@frozen_layer
class MultiScaleRoIAlign:
    """`roi_align` of each box in the pyramid level that fits its size, as `torchvision.ops.MultiScaleRoIAlign`.

    Called with a dictionary of features (N, C, H, W), a list with the boxes (L, 4) of each image, and the sizes
    (height, width) of the images. The features in `featmap_names` are the levels, in the order of the dictionary.
    Levels follow each other by a factor of two, and boxes of a missing level give 0, as in torchvision. The scales are
    inferred at each call; torchvision infers them at the first call only.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> levels = {"0": jnp.full((1, 1, 64, 64), 2.0), "1": jnp.full((1, 1, 32, 32), 3.0)}
      >>> boxes = jnp.array([[0.0, 0.0, 50.0, 80.0], [0.0, 0.0, 120.0, 110.0]])
      >>> ops.MultiScaleRoIAlign(["0", "1"], 1, 2)(levels, [boxes], [(256, 256)]).ravel()
      Array([2., 3.], dtype=float32)
    """

    featmap_names: Sequence[str]
    output_size: OutputSize
    sampling_ratio: int
    _: dataclasses.KW_ONLY
    canonical_scale: int = 224
    canonical_level: int = 4

    def __call__(
        self, x: Mapping[str, Any], boxes: Sequence[Any], image_shapes: Sequence[tuple[int, int]]
    ) -> Array:
        """The cells of each box, (K, C, *output_size)."""
        name, full_name = "MultiScaleRoIAlign", "compat.torchvision.MultiScaleRoIAlign"
        with name_function_in_errors(full_name):
            if not isinstance(x, Mapping):
                hint = 'Pass {"0": x}, say.'
                raise ArgumentError(
                    "x", "a dict of features", x, hint, TypeError, must_be_static=False
                )
            rule, hint = "a list of names of features that are given", "Name them."
            names = checked_tuple("featmap_names", self.featmap_names, rule, hint)
            features = [feature for key, feature in x.items() if key in names]
            if not features:
                raise ArgumentError("featmap_names", rule, names, hint)
            scale = check_positive_number("canonical_scale", self.canonical_scale, "Pass 224.")
            rule, valid = "an int from -1024 to 1024", range(-1024, 1025)
            level = checked_int("canonical_level", self.canonical_level, rule, "Pass 4.", valid)
            max_height = _max_image_height(image_shapes)
        args = [_convert_arguments(name, x, boxes, self.output_size, 1.0) for x in features]
        xs = [x for x, *_ in args]
        num_channels = [x.shape[-1] for x in xs]
        if len(set(num_channels)) > 1:
            hint = "Project each level to as many channels."
            with name_function_in_errors(full_name):
                raise ArgumentError("x", "of as many channels in each level", num_channels, hint)
        # Level n has the scale 2**-n; n is rounded as in torchvision.
        levels = [round(-math.log2(x.shape[1] / max_height)) for x in xs]
        _, corners, image_indices, num_cells, _ = args[0]
        samples = _samples_per_cell(name, self.sampling_ratio)
        op = BoxMean(num_cells, 0.5 ** levels[0], samples, 0.0, 1.0, empty_is_zero=False)
        if len(features) == 1:
            return _mean_per_cell(op, *args[0][:3])
        box_levels = pyramid_level_of_boxes(corners, (levels[0], levels[-1]), scale, level)
        scales = [0.5**n for n in levels]
        y = mean_in_pyramid_level(op, scales, xs, corners, image_indices, box_levels)
        return jnp.moveaxis(y, -1, 1)
