"""Public `multilevel_roi_align`: `roi_align` over a feature pyramid.

Each box is pooled from one level, which depends on its size. The drop-in for torchvision calls `level_of` and
`pooled`.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.regions import Sizes, cells_of, gathered, images_of, samples_of, scale_of
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.coefficients import checked_float
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import check_fits_int32_indices, is_int, is_tuple_or_list
from jaxpool._kernels.dtypes import accumulator, float_dtype
from jaxpool._ops.levels import level_mean
from jaxpool._ops.regions import BoxMean
from jaxpool._shards.split import check_whole

# Added to a level before rounding down, as in torchvision: a box of exactly the size of a level reaches it.
_ROUNDING = 1e-6
_MAX_LEVEL = 1024  # more than the exponents of floats need
_LEVEL = f"an int from -{_MAX_LEVEL} to {_MAX_LEVEL}"


@public
def multilevel_roi_align(
    features: Sequence[Any],
    boxes: Any,
    output_shape: Sizes,
    *,
    batch_indices: Any = None,
    spatial_scale: float = 0.25,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
    samples: int = 2,
    aligned: bool = True,
) -> Array:
    """Computes `roi_align` of each box (y0, x0, y1, x1) in the level of a feature pyramid that suits its size.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here. A box of height h and width w in
    pixels of the image is pooled from level `k = floor(canonical_level + log2(sqrt(h * w) / canonical_size))`, or
    from the finest or coarsest level if there is no level k. A pixel of level k covers `2**k` pixels of the image.

    Gradient: as in `roi_align` of the selected level, with respect to the features and the boxes; the choice of the
    level has no gradient. It has the same bits on every run. Forward and reverse mode, to any order.

    Args:
      features: a list or tuple of arrays (B, H, W, C), or (H, W, C) for one image, one per level, the finest first;
        floats, integers or bool, of one dtype and with one number of channels. Channels come last.
      boxes: array of shape (B, K, 4), with K boxes for each image, or (..., K, 4) for one image or with
        `batch_indices`; in pixels of the image. A box with `y1 <= y0` or `x1 <= x0` gives 0, as in `roi_align`.
      output_shape: the number of cells down and across a box, an int or two ints.
      batch_indices: integers of shape (..., K), the image of each box, also for boxes (B, K, 4). None takes the first
        axis of `boxes`, or the only image.
      spatial_scale: pixels of the first level per pixel of the image, a power of two: 1/4 is level 2. It halves with
        every further level.
      canonical_size: the size of a box, in pixels of the image, that is pooled from `canonical_level`.
      canonical_level: an int from -1024 to 1024, 4 as in the paper.
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: as in `roi_align`.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of the features, or the dtype of their `jnp.mean` for
      integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> fine, coarse = jnp.full((64, 64, 1), 2.0), jnp.full((32, 32, 1), 3.0)
      >>> boxes = jnp.array([[0.0, 0.0, 50.0, 80.0], [0.0, 0.0, 120.0, 110.0]])
      >>> jaxpool.multilevel_roi_align([fine, coarse], boxes, 1).ravel()
      Array([2., 3.], dtype=float32)

    References:
      Lin et al., Feature Pyramid Networks, arXiv:1612.03144, equation 1; `torchvision.ops.MultiScaleRoIAlign`.
    """
    if not is_tuple_or_list(features) or not len(features):
        rule = "a list or a tuple of arrays, one for each level"
        if isinstance(features, dict):
            got = f"a dict of {', '.join(map(repr, features))}"
            hint = "Pass a list ordered from fine to coarse."
            raise ArgumentError("features", rule, features, hint, TypeError, shown_value=got)
        raise ArgumentError("features", rule, features, "One level is [x].", TypeError)
    xs = [as_array(x, "features") for x in features]
    boxes = as_array(boxes, "boxes")
    cells, scale, points = (
        cells_of("output_shape", output_shape),
        scale_of(spatial_scale),
        samples_of(samples),
    )
    finest = -math.log2(scale)
    if finest != round(finest):
        raise ArgumentError("spatial_scale", "a power of two", scale, "Level 2 has 1 / 4.")
    size = checked_float(
        "canonical_size",
        canonical_size,
        "a positive number",
        "Pass 224.",
        lambda v: 0 < v < math.inf,
    )
    if not is_int(canonical_level):
        raise ArgumentError("canonical_level", _LEVEL, canonical_level, "Pass 4.", TypeError)
    if abs(operator.index(canonical_level)) > _MAX_LEVEL:
        raise ArgumentError("canonical_level", _LEVEL, canonical_level, "Pass 4.")
    if not isinstance(aligned, bool):
        raise ArgumentError("aligned", "True or False", aligned, "Pass a bool.", TypeError)
    xs, flat, images = _arrays(xs, boxes, batch_indices)
    level = level_of(
        flat, (int(finest), int(finest) + len(xs) - 1), size, operator.index(canonical_level)
    )
    scales = [scale / 2**each for each in range(len(xs))]
    y = pooled(xs, flat, level, images, scales, cells, points, aligned)
    return y.reshape(*boxes.shape[:-1], *y.shape[1:])


def _arrays(xs: list[Array], boxes: Array, batch_indices: Any) -> tuple[list[Array], Array, Array]:
    """The levels (B, H, W, C), the flat boxes (n, 4) and the image of each box."""
    if boxes.ndim < 2 or boxes.shape[-1] != 4 or not all(map(is_int, boxes.shape)):
        rule = "an array (..., K, 4) of (y0, x0, y1, x1), of known sizes"
        raise ArgumentError(
            "boxes", rule, boxes.shape, "One box is boxes[None].", attribute="shape"
        )
    rank = 3 if batch_indices is None and xs[0].ndim == 3 else 4
    shapes = [x.shape for x in xs]
    if any(
        len(shape) != rank or 0 in shape[-3:-1] or not all(map(is_int, shape[:-1]))
        for shape in shapes
    ):
        rule = "arrays (B, H, W, C), or (H, W, C) without batch_indices, with pixels and of known sizes but C"
        raise ArgumentError("features", rule, shapes, "One image is x[None].")
    if (
        len({(*shape[: rank - 3], shape[-1], x.dtype) for shape, x in zip(shapes, xs, strict=True)})
        > 1
    ):
        got = [f"{x.dtype}{list(x.shape)}" for x in xs]
        rule = "of one dtype, and of as many images and channels each"
        raise ArgumentError("features", rule, got, "Project each level to as many channels.")
    planes = [shape[-3:-1] for shape in shapes]
    if any(
        b > a
        for fine, coarse in itertools.pairwise(planes)
        for a, b in zip(fine, coarse, strict=True)
    ):
        rule = "the finest first, none longer along an axis than the one before"
        raise ArgumentError("features", rule, shapes, "Pass features[::-1].")
    for x in xs:
        for size in x.shape[:-1]:
            check_fits_int32_indices("features", (size,))
        check_whole(x, *range(rank - 1), by_type=False, argument="features")
    flat = boxes.reshape(-1, 4)
    if rank == 3:
        return [x[None] for x in xs], flat, jnp.zeros(flat.shape[0], np.int32)
    return xs, flat, images_of(boxes, batch_indices, xs[0].shape[0])


def level_of(boxes: Array, bounds: tuple[int, int], size: float, level: int) -> Array:
    """The level of each box (K, 4), counted from the first of `bounds`; the finest for a box without area."""
    wide = lax.stop_gradient(boxes).astype(accumulator(float_dtype(boxes.dtype)))
    area = (wide[:, 2] - wide[:, 0]) * (wide[:, 3] - wide[:, 1])
    exact = level + jnp.log2(jnp.sqrt(area) / np.asarray(size, area.dtype))
    chosen = jnp.clip(jnp.floor(exact + np.asarray(_ROUNDING, area.dtype)), *bounds)
    return jnp.where(area > 0, chosen - bounds[0], 0).astype(np.int32)


def pooled(
    xs: Sequence[Array],
    boxes: Array,
    level: Array,
    images: Array,
    scales: Sequence[float],
    cells: tuple[int, ...],
    samples: int | None,
    aligned: bool,
    *,
    empty_is_zero: bool = True,
) -> Array:
    """The cells (K, *cells, C) of boxes in pixels of the image; 0 for a level or image that does not exist."""
    dtype = float_dtype(xs[0].dtype)
    if boxes.shape[0] == 0 or 0 in xs[0].shape:
        return jnp.zeros((boxes.shape[0], *cells, xs[0].shape[-1]), dtype)
    offset, least = (0.5, None) if aligned else (0.0, 1.0)
    op = BoxMean(cells, 1.0, samples, offset, least, empty_is_zero=empty_is_zero)

    def mean(*arrays: Array) -> Array:
        boxes, level, images = arrays[len(xs) :]
        wide = boxes.astype(accumulator(float_dtype(boxes.dtype)))
        factors = jnp.asarray(np.asarray(scales, wide.dtype))[jnp.clip(level, 0, len(scales) - 1)]
        return level_mean(op, arrays[: len(xs)], wide * factors[:, None], level, images)

    return gathered(mean, 3, 1, *xs, boxes, level, images)
