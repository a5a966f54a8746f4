"""Oracle of the pools over boxes of images: `roi_align`, `multilevel_roi_align` and `roi_max_pool`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    as_exact_numbers,
    exact_sum,
    round_to_dtype,
)
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

# Two boxes of each of two images.
BOXES_OF_TWO_IMAGES = np.array(
    [[[0.5, 0.25, 3, 5], [1, -1, 4.5, 3]], [[1, 1.5, 2, 4.25], [0.25, 0, 4, 6]]], np.float32
)


def _boxes_and_images(
    ndim: int, boxes: Any, batch_indices: Any
) -> Iterator[tuple[Position, Any, Position]]:
    """The position in `boxes`, the corners and the image index of each box: () for an x without a batch axis."""
    boxes = np.asarray(boxes, np.float64)
    if batch_indices is None and ndim == 4:
        batch_indices = np.indices(boxes.shape[:-1])[0]
    for position in np.ndindex(*boxes.shape[:-1]):
        image = () if batch_indices is None else (int(np.asarray(batch_indices)[position]),)
        yield position, boxes[position], image


def _is_outside(x: Any, image: Position) -> bool:
    """Whether the image index of a box is out of range. The cells of such a box are 0."""
    return bool(image) and not 0 <= image[0] < x.shape[0]


def _image_of_box(x: Any, image: Position) -> Any:
    """The image of a box; zeros if its index is out of range."""
    if _is_outside(x, image):
        return jnp.zeros(x.shape[1:], x.dtype)
    return x[image] if image else x


def _stack_cells(cells: Sequence[Any], x: Any, boxes: Any, output_shape: Sequence[int]) -> Any:
    """The cells of all boxes, pooled from arrays like x, as one array."""
    none = jnp.zeros((0, *output_shape, x.shape[-1]), x.dtype)  # there may be no boxes
    stacked = jnp.concatenate([none, *(each[None] for each in cells)])
    return stacked.reshape(*np.shape(boxes)[:-1], *none.shape[1:])


# Points between pixels


def _interpolation_weights(
    box_start: float, box_end: float, num_points: int, image_size: int
) -> np.ndarray:
    """The weight of each pixel along an axis for each sample point, as a matrix (points, pixels)."""
    weights = np.zeros((num_points, image_size))
    for i in range(num_points):
        point = box_start + (i + 0.5) * (box_end - box_start) / num_points
        if -1 <= point <= image_size:
            point = min(max(point, 0.0), image_size - 1.0)
            floor = math.floor(point)
            weights[i, floor] = 1 - (point - floor)
            if point > floor:
                weights[i, floor + 1] = point - floor
    return weights


def _interpolation_weights_of_box(
    box: np.ndarray, aligned: bool, output_shape: Sequence[int], samples: int, image_shape: Any
) -> list[np.ndarray]:
    """The weights of rows and of columns. If the box has no area, all weights are 0."""
    low, high = box[:2] - aligned / 2, box[2:] - aligned / 2
    if not aligned:
        high = np.maximum(high, low + 1)
    has_area = bool((high > low).all())
    return [
        has_area * _interpolation_weights(float(a), float(b), cells * samples, size)
        for a, b, cells, size in zip(low, high, output_shape, image_shape, strict=False)
    ]


def _level_and_scale(
    box: np.ndarray,
    num_levels: int,
    spatial_scale: float,
    canonical_size: float = 1.0,
    canonical_level: int = 0,
) -> tuple[int, float]:
    """The pyramid level that a box is pooled from, and its scale: equation 1 of the FPN paper."""
    area, level = (box[2] - box[0]) * (box[3] - box[1]), 0
    if area > 0 and num_levels > 1:
        raw_level = canonical_level + math.log2(math.sqrt(area) / canonical_size)
        level = math.floor(raw_level + 1e-6) + round(math.log2(spatial_scale))
        level = min(max(level, 0), num_levels - 1)
    return level, spatial_scale / 2**level


def _weights_of_boxes(
    features: Sequence[Any],
    boxes: Any,
    output_shape: Sequence[int],
    samples: int,
    batch_indices: Any,
    spatial_scale: float,
    aligned: bool,
    **canonical: Any,
) -> Iterator[tuple[Position, Position, int, list[np.ndarray]]]:
    """The position in `boxes`, the image index, the pyramid level, and the weights of rows and columns of each box."""
    for position, box, image in _boxes_and_images(features[0].ndim, boxes, batch_indices):
        level, scale = _level_and_scale(box, len(features), spatial_scale, **canonical)
        image_shape = features[level].shape[-3:]
        yield (
            position,
            image,
            level,
            _interpolation_weights_of_box(box * scale, aligned, output_shape, samples, image_shape),
        )


def _align_in_jnp(
    features: Sequence[Any],
    boxes: Any,
    output_shape: Sequence[int],
    samples: int,
    kind: str = "avg",
    **arguments: Any,
) -> Any:
    cells = []
    for _, image, level, weights in _weights_of_boxes(
        features, boxes, output_shape, samples, **arguments
    ):
        pixels = _image_of_box(features[level], image)
        points = jnp.einsum("ph,qw,hwc->pqc", *weights, pixels)
        points = points.reshape(output_shape[0], samples, output_shape[1], samples, -1)
        cells.append(points.max((1, 3)) if kind == "max" else points.mean((1, 3)))
    return _stack_cells(cells, features[0], boxes, output_shape)


def _align(
    features: Sequence[Any],
    boxes: Any,
    output_shape: Sequence[int],
    samples: int,
    kind: str = "avg",
    ties: Ties = "first",
    **arguments: Any,
) -> Answer:
    """The mean or the maximum of the points of each cell, from the level of each box."""
    arrays = [np.asarray(x) for x in features]
    values, dtype = [as_exact_numbers(x) for x in arrays], parts.mean_dtype(arrays[0])
    num_channels = arrays[0].shape[-1]
    y, terms = np.zeros((*np.shape(boxes)[:-1], *output_shape, num_channels), object), []
    for position, image, level, (rows, columns) in _weights_of_boxes(
        arrays, boxes, output_shape, samples, **arguments
    ):
        if _is_outside(arrays[0], image):
            continue
        for i, j, c in np.ndindex(*output_shape, num_channels):
            output = (*position, i, j, c)
            points = []  # the pixels of each sample point with their weights
            for row, column in itertools.product(
                rows[i * samples : (i + 1) * samples], columns[j * samples : (j + 1) * samples]
            ):
                pixels = itertools.product(*(np.flatnonzero(a).tolist() for a in (row, column)))
                points.append([((*image, h, w, c), row[h] * column[w]) for h, w in pixels])
            point_values = [exact_sum([w * values[level][at] for at, w in p]) for p in points]
            if kind == "max":  # the library compares points rounded to the dtype
                rounded = as_exact_numbers(round_to_dtype(np.array(point_values), dtype))
                y[output], shares = parts.extremum_reducer(max, ties)(list(rounded))
            else:
                y[output], shares = parts.mean_reducer(point_values)
            for share, point in zip(shares, points, strict=True):
                terms += [Term(output, level, pixel, share * w) for pixel, w in point if share]
    inputs = tuple((x.shape, x.dtype) for x in arrays)
    return Answer(round_to_dtype(y, dtype), inputs, tuple(terms))


ALIGN_RECORD_FIELDS: dict[str, Any] = {
    "adds": True,
    "tolerance": 16.0,
    "covers": ("ties", "normal"),
}


def _roi_align_in_jnp(x: Any, **arguments: Any) -> Any:
    return _align_in_jnp([x], **arguments)


@record(
    twin=_roi_align_in_jnp,
    choices={"samples": (1, 4), "spatial_scale": (0.5,), "boxes": (BOXES_OF_TWO_IMAGES,)},
    **ALIGN_RECORD_FIELDS,
)
def roi_align(x: Any, ties: Ties = "first", **arguments: Any) -> Answer:
    """The mean or the maximum of points between pixels, as in `jaxpool.roi_align`."""
    return _align([x], ties=ties, **arguments)


def _third_of_image_size(x: Any) -> float:
    """About a third of the image size, so that the usual boxes belong to different levels."""
    return math.sqrt(math.prod(x.shape[-3:-1])) * 0.3


@record(
    twin=_align_in_jnp,
    operands=("features",),
    usual={
        "spatial_scale": lambda x: 1.0,
        "canonical_size": _third_of_image_size,
        "canonical_level": lambda x: 0,
    },
    choices={"samples": (1, 4), "canonical_level": (1,), "boxes": (BOXES_OF_TWO_IMAGES,)},
    **ALIGN_RECORD_FIELDS,
)
def multilevel_roi_align(**arguments: Any) -> Answer:
    """The mean of points of each box in its pyramid level, as in `jaxpool.multilevel_roi_align`."""
    return _align(**arguments)


# Pixels of cells


def _pixels_of_cells(
    box_start: float, box_end: float, num_cells: int, image_size: int
) -> Iterator[range]:
    """The pixels of each cell of a box inside the image, along one axis. The bounds are computed in float32."""
    first, last = (math.floor(abs(x) + 0.5) * (1 if x > 0 else -1) for x in (box_start, box_end))
    step = np.float32(max(last - first + 1, 1)) / np.float32(num_cells)
    for i in range(num_cells):
        begin, end = np.float32(i) * step, np.float32(i + 1) * step
        bounds = first + math.floor(begin), first + math.ceil(end)
        yield range(*(min(max(end, 0), image_size) for end in bounds))


def _windows_of_box(image_shape: Any, box: Any, output_shape: Sequence[int]) -> Windows:
    """The cells of a box as windows over an image."""
    sizes = tuple(image_shape[:2])
    cells = [
        [*_pixels_of_cells(box[axis], box[axis + 2], output_shape[axis], sizes[axis])]
        for axis in range(2)
    ]
    return Windows((0, 1), sizes, sizes, cells)


def _roi_max_pool_in_jnp(
    x: Any, boxes: Any, output_shape: Any, batch_indices: Any, spatial_scale: float
) -> Any:
    cells = []
    for _, box, image in _boxes_and_images(x.ndim, boxes, batch_indices):
        windows = _windows_of_box(x.shape[-3:], box * spatial_scale, output_shape)
        values, tap_exists = jnp_windows.gather(_image_of_box(x, image), windows)
        y = jnp_windows.max_over_taps(values, tap_exists)
        cells.append(jnp.where(tap_exists.any(-1), y, 0))
    return _stack_cells(cells, x, boxes, output_shape)


@record(
    twin=_roi_max_pool_in_jnp, choices={"spatial_scale": (0.5,), "boxes": (BOXES_OF_TWO_IMAGES,)}
)
def roi_max_pool(
    x: Any, boxes: Any, output_shape: Any, batch_indices: Any, spatial_scale: float, ties: Ties
) -> Answer:
    """The largest pixel of each cell, as in `jaxpool.roi_max_pool`."""
    x = np.asarray(x)
    reducer = parts.reducer_with_empty_value(parts.extremum_reducer(max, ties), 0)
    y, terms = np.zeros((*np.shape(boxes)[:-1], *output_shape, x.shape[-1]), x.dtype), []
    for position, box, image in _boxes_and_images(x.ndim, boxes, batch_indices):
        if _is_outside(x, image):
            continue
        windows = _windows_of_box(x.shape[-3:], box * spatial_scale, output_shape)
        answer = parts.apply_reducer_to_windows(x[image], windows, lambda output: reducer)
        y[position] = answer.y
        for term in answer.terms:
            output, pixel = (*position, *term.output), (*image, *term.position)
            terms.append(Term(output, 0, pixel, term.share))
    return Answer(y, ((x.shape, x.dtype),), tuple(terms))
