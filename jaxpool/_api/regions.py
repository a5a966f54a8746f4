"""Public pooling over boxes of images: `roi_align` and `roi_max_pool`.

Boxes are arrays (K, 4) with an image index for each box. The checks of boxes and cells, and `gathered`, also serve
`levels`, `segments` and the drop-ins for torchvision.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from jaxpool._api.max_pool import max_pool
from jaxpool._api.shared_text import filled
from jaxpool._arguments.arrays import as_array, not_an_array_error, wrong_dtype_error
from jaxpool._arguments.calls import public
from jaxpool._arguments.choices import check_choice
from jaxpool._arguments.coefficients import checked_float
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_fits_int32_indices, ints_per_axis, is_int, static_sizes
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import float_dtype
from jaxpool._kernels.segments import within
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.boxes import BoxMax
from jaxpool._ops.regions import BoxMean, box_mean, boxes_at_once
from jaxpool._shards.place import shard_axes
from jaxpool._shards.split import check_whole

Sizes = int | Sequence[int]
Result = TypeVar("Result")  # an array or a tuple of arrays


def integers(argument: str, value: Any, shape: Sequence[int], count: int | None) -> Array:
    """`value` as an array of integers of `shape`; raises if a concrete value is not in `range(count)`."""
    if not isinstance(value, (jax.Array, np.ndarray)):
        raise not_an_array_error(argument, value, "an array of integers")
    array = value
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise wrong_dtype_error(argument, "an array of integers", array, "Pass int32, say.")
    if tuple(array.shape) != tuple(shape):
        raise ArgumentError(
            argument,
            f"of shape {tuple(shape)}",
            array.shape,
            "Give one for each.",
            attribute="shape",
        )
    known = not isinstance(array, jax.core.Tracer)
    if known and count is not None and array.size:
        least, most = int(np.min(np.asarray(array))), int(np.max(np.asarray(array)))
        if least < 0 or most >= count:
            rule = f"ints from 0 to {count - 1}" if count else "empty where x is"
            raise ArgumentError(argument, rule, [least, most], "They name entries of x.")
    return jnp.asarray(array)


def gathered(
    function: Callable[..., Result], front: int, behind: int, x: Array, *extra_args: Array
) -> Result:
    """Call `function(x, *extra_args)`, and let XLA choose the sharding inside where types show one.

    The result has `front` unsharded axes, followed by the last `behind` axes of x with their sharding.
    """
    meshes = [jax.typeof(array).sharding.mesh for array in (x, *extra_args)]
    here = jax.sharding.get_abstract_mesh()
    mesh = next((m for m in (here, *meshes) if AxisType.Explicit in m.axis_types), None)
    if mesh is None:
        return function(x, *extra_args)
    spec = jax.typeof(x).sharding.spec[x.ndim - behind :]
    out = PartitionSpec(*(None,) * front, *spec)
    with jax.sharding.use_abstract_mesh(mesh):
        return jax.sharding.auto_axes(function, out_sharding=out)(x, *extra_args)


def _images_and_boxes(x: Array, boxes: Array, batch_indices: Any) -> tuple[Array, ...]:
    """x of shape (B, H, W, C), flat boxes (n, 4) and, if x has an axis of images, the image of each box."""
    if boxes.ndim < 2 or boxes.shape[-1] != 4:
        rule = "an array (..., K, 4) of (y0, x0, y1, x1)"
        torch = boxes.shape[-1:] == (5,)
        hint = "Images go into batch_indices." if torch else "One box is boxes[None]."
        raise ArgumentError("boxes", rule, boxes.shape, hint, attribute="shape")
    rank = x.ndim
    if rank != 4 and (rank != 3 or batch_indices is not None):
        rule = "(B, H, W, C), or (H, W, C) without batch_indices"
        raise ArgumentError("x", rule, x.shape, "One image is x[None].", attribute="shape")
    if not all(map(is_int, x.shape[:-1])):
        hint = "Channels may be symbolic."
        raise ArgumentError("x", "of known sizes but for C", x.shape, hint, attribute="shape")
    if not all(map(is_int, boxes.shape)):
        hint = "Only the channels of x may be symbolic."
        raise ArgumentError("boxes", "of known sizes", boxes.shape, hint, attribute="shape")
    static_sizes(x.shape, (rank - 3, rank - 2))
    for size in filter(is_int, x.shape):
        check_fits_int32_indices("x", (size,))
    check_whole(x, *range(rank - 1), by_type=False)
    flat = boxes.reshape(-1, 4)
    if rank == 3:
        return x[None], flat
    return x, flat, images_of(boxes, batch_indices, x.shape[0])


def images_of(boxes: Array, batch_indices: Any, count: int) -> Array:
    """The image of each box, flat: `batch_indices`, or the first axis of boxes (B, K, 4), which has size `count`."""
    if batch_indices is not None:
        images = integers("batch_indices", batch_indices, boxes.shape[:-1], count)
        return within(images.reshape(-1), count)
    if boxes.ndim != 3 or boxes.shape[0] != count:
        rule = f"({count}, K, 4) without batch_indices, K boxes of each image"
        hint = "Pass the image of each box as batch_indices."
        raise ArgumentError("boxes", rule, boxes.shape, hint, attribute="shape")
    return lax.broadcasted_iota(np.int32, boxes.shape[:-1], 0).reshape(-1)


def _pooled(
    pool: Callable[..., Array], boxes: Array, cells: tuple[int, ...], xs: tuple[Array, ...]
) -> Array:
    """`pool(*xs)` for flat boxes, reshaped to the leading axes of `boxes`."""
    x, flat = xs[:2]
    if flat.shape[0] == 0 or 0 in x.shape:
        return jnp.zeros((*boxes.shape[:-1], *cells, x.shape[-1]), float_dtype(x.dtype))
    y = gathered(pool, 3, 1, *xs)
    return y.reshape(*boxes.shape[:-1], *y.shape[1:])


@public
@filled
def roi_align(
    x: Any,
    boxes: Any,
    output_shape: Sizes,
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    kind: Literal["avg", "max"] = "avg",
) -> Array:
    """Computes the average or maximum of interpolated points in each cell of boxes (y0, x0, y1, x1).

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = sum over (h, w) of down[k, i, h] * across[k, j, w] * x[b_k, h, w, c]`, with K boxes, cells (i,
    j), rows H, columns W, channels C. `down` and `across` are the weights of bilinear interpolation at `samples`
    evenly spaced points per cell and axis. A point more than a pixel outside the image counts as 0, a nearer point as
    the nearest pixel. A box gives 0 if it has no area, `y1 < y0` or `x1 < x0`; without `aligned` it is extended to at
    least one pixel from (y0, x0).

    Gradient: the derivative of the formula, with respect to x and the boxes. At the centre of a pixel, where the
    weights have a kink, boxes get the derivative from the right. For "max" the cotangent goes to the first of the
    largest points, which are rounded to the dtype of x. NaN and infinities of x reach the cells whose points have
    them as neighbours, and count as 0 in the gradient of boxes. Sums are in float32, or in float64 for float64, and
    the same on every run. Forward and reverse mode, to any order.

    {boxes}
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: True counts coordinates from the corner of a pixel, so half a pixel is subtracted. False counts from
        its centre, and a box is at least one pixel long.
      kind: "avg" or "max" of the points of a cell.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x, or of `jnp.mean(x)` for integers and bool.

    {wrong}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
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
    x, boxes = as_array(x), as_array(boxes, "boxes")
    cells = cells_of("output_shape", output_shape)
    samples = samples_of(samples)
    scale = scale_of(spatial_scale)
    if not isinstance(aligned, bool):
        raise ArgumentError("aligned", "True or False", aligned, "Pass a bool.", TypeError)
    check_choice("kind", kind, ("avg", "max"))
    xs = _images_and_boxes(x, boxes, batch_indices)
    offset, least = (0.5, None) if aligned else (0.0, 1.0)
    if kind == "avg":
        pool = functools.partial(box_mean, BoxMean(cells, scale, samples, offset, least))
    else:
        points = BoxMean((cells[0] * samples, cells[1] * samples), scale, 1, offset, least)
        pool = functools.partial(_largest_points, points, samples)
    return _pooled(pool, boxes, cells, xs)


def _largest_points(op: BoxMean, samples: int, x: Array, boxes: Array, *images: Array) -> Array:
    """The maximum of each `samples` x `samples` points; if there are many, for a few boxes at a time."""

    def largest(extra_args: Sequence[Array]) -> Array:
        points, window = box_mean(op, x, *extra_args), (samples,) * 2
        with shard_axes(
            None
        ):  # `jaxpool.sharded` set the sharding of x, which the points do not have
            return max_pool(points, window, window, autodiff="jvp")

    count, together = boxes.shape[0], boxes_at_once(op, x.shape[-1], samples)
    if together is None or together >= count:
        return largest((boxes, *images))
    groups = -(-count // together)

    def grouped(array: Array) -> Array:
        rest = ((0, groups * together - count), *((0, 0),) * (array.ndim - 1))
        return jnp.pad(array, rest).reshape(groups, together, *array.shape[1:])

    chunks = lax.map(jax.checkpoint(largest), tuple(map(grouped, (boxes, *images))))
    return chunks.reshape(groups * together, *chunks.shape[2:])[:count]


@public
@filled
def roi_max_pool(
    x: Any,
    boxes: Any,
    output_shape: Sizes,
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    ties: Ties = "first",
) -> Array:
    """Computes the largest pixel of each cell of boxes (y0, x0, y1, x1), rounded to whole pixels.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = max of x[b_k, h, w, c]` over the rows h of cell i and the columns w of cell j of box k. Corners
    are rounded, halves away from 0, and belong to the box: it has `max(y1 - y0 + 1, 1)` rows. Cell i of I has the
    rows from `floor(i * n / I)` to below `ceil((i + 1) * n / I)` of n rows, as far as they are in the image; a cell
    without pixels gives 0. These bounds are computed in float32 (float64 for float64 boxes), as in torchvision, so a
    cell may have one more row at either end.

    Gradient: the cotangent of a cell goes to the pixel that attains its maximum, by `ties`; boxes get none. NaN is
    larger than every number. The residual is one unsigned position per output element, with "split" x and y.
    Cotangents add up in float32, or in float64 for float64, with the same bits on every run. Forward and reverse
    mode, to any order.

    {boxes}
      ties: which of equal pixels gets the cotangent: the "first" or the "last" in row-major order, or all of them in
        equal parts ("split").

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x.

    {wrong}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
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
    x, boxes = as_array(x), as_array(boxes, "boxes")
    cells = cells_of("output_shape", output_shape)
    scale = scale_of(spatial_scale)
    check_choice("ties", ties, ("first", "last", "split"))
    xs = _images_and_boxes(x, boxes, batch_indices)
    check_fits_int32_indices("x", xs[0].shape[1:3])
    y = box_max(cells, scale, ties, *xs)
    return y.reshape(*boxes.shape[:-1], *y.shape[1:])


def box_max(
    cells: tuple[int, ...], scale: float, ties: Ties, x: Array, *extra_args: Array
) -> Array:
    """The largest pixel of each cell, (K, *cells, C); `extra_args` are the boxes and perhaps their images."""
    count = extra_args[0].shape[0]
    if count * math.prod(cells) >= 2**31:
        rule, hint = "of fewer than 2**31 cells in all", "Pool some boxes at a time."
        raise ArgumentError("boxes", rule, (count, *cells), hint, shown_value=f"{count} boxes")
    if count == 0 or 0 in x.shape:
        return jnp.zeros((count, *cells, x.shape[-1]), x.dtype)
    extra_args = tuple(jax.lax.stop_gradient(array) for array in extra_args)
    op = BoxMax(cells, scale, ties, x.shape[:3])
    return gathered(lambda *xs: apply_with_extra_args(op, *xs)[0], 3, 1, x, *extra_args)


def cells_of(argument: str, value: Any) -> tuple[int, ...]:
    """The number of cells of a box, down and across."""
    cells = ints_per_axis(argument, value, 2)
    if math.prod(cells) >= 2**20:
        rule = "fewer than 2**20 cells in all"
        raise ArgumentError(argument, rule, cells, "A box has as many as it has outputs.")
    return cells


def scale_of(spatial_scale: Any) -> float:
    """The checked factor of box coordinates."""

    def holds(value: float) -> bool:
        return 0 < value < math.inf

    return checked_float(
        "spatial_scale", spatial_scale, "a positive number", "Pass 1 / 16, say.", holds
    )


def samples_of(samples: Any) -> int:
    """The checked number of points per cell and axis."""
    rule = "an int from 1 to 1024"
    if not is_int(samples):
        raise ArgumentError("samples", rule, samples, "Pass 2, say.", TypeError)
    if not 1 <= operator.index(samples) <= 1024:
        raise ArgumentError("samples", rule, samples, "Pass 2, say.")
    return operator.index(samples)
