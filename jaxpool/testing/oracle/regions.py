"""Oracle of the pools over boxes of images: `roi_align`, `multilevel_roi_align` and `roi_max_pool`."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Term, as_exact_numbers, exact_sum, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

__all__ = ["multilevel_roi_align", "roi_align", "roi_max_pool"]

# Two boxes of each of two images.
BOXES_OF_TWO_IMAGES = np.array(
    [[[0.5, 0.25, 3, 5], [1, -1, 4.5, 3]], [[1, 1.5, 2, 4.25], [0.25, 0, 4, 6]]], np.float32
)


def _flatten_boxes(ndim: int, boxes: Any, batch_indices: Any) -> tuple[np.ndarray, list[Any]]:
    """Boxes as (n, 4), and the image index of each box as a tuple: () for an x without a batch axis."""
    flat_boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    if batch_indices is None and ndim == 4:
        batch_indices = np.indices(np.shape(boxes)[:-1])[0]
    if batch_indices is None:
        return flat_boxes, [()] * len(flat_boxes)
    return flat_boxes, [(int(b),) for b in np.ravel(batch_indices)]


def _restore_box_axes(answer: Answer, boxes: Any) -> Answer:
    """An answer for flat boxes, reshaped to the leading axes of `boxes`."""
    leading_shape = np.shape(boxes)[:-1]
    box_positions = list(np.ndindex(*leading_shape))
    terms = tuple(
        dataclasses.replace(term, output=(*box_positions[term.output[0]], *term.output[1:]))
        for term in answer.terms
    )
    return Answer(answer.y.reshape(*leading_shape, *answer.y.shape[1:]), answer.inputs, terms)


def _image_index_out_of_range(image_index: tuple[int, ...], x: Any) -> bool:
    """Whether the image index of a box is out of range. The cells of such a box are 0."""
    return bool(image_index) and not 0 <= image_index[0] < x.shape[0]


def _image_of_box(x: Any, image_index: tuple[int, ...]) -> Any:
    """The image of a box; zeros if its index is out of range."""
    if _image_index_out_of_range(image_index, x):
        return jnp.zeros(x.shape[1:], x.dtype)
    return x[image_index] if image_index else x


def _sample_points_along_axis(
    box_start: float, box_end: float, num_cells: int, samples: int, image_size: int
) -> list[list[Any]]:
    """The neighbouring pixels of each sample point along an axis, with their interpolation weights."""
    points = []
    for i in range(num_cells * samples):
        point = box_start + (i + 0.5) * (box_end - box_start) / (num_cells * samples)
        clamped_point = min(builtins.max(point, 0.0), image_size - 1.0)
        floor = math.floor(clamped_point)
        pair = [(floor, 1 - (clamped_point - floor)), (floor + 1, clamped_point - floor)]
        is_inside = -1 <= point <= image_size
        points.append([(pixel, weight) for pixel, weight in pair if weight and is_inside])
    return points


def _sample_points_of_box(
    box: np.ndarray, aligned: bool, output_shape: tuple[int, int], samples: int, image_shape: Any
) -> tuple[list[list[Any]], list[list[Any]]]:
    """The sample points of a box along rows and columns. If the box has no area, no pixel has a weight."""
    low, high = box[:2] - aligned / 2, box[2:] - aligned / 2
    if not aligned:
        high = np.maximum(high, low + 1)
    if (high <= low).any():
        return [[] for _ in range(output_shape[0] * samples)], [
            [] for _ in range(output_shape[1] * samples)
        ]
    y_points, x_points = (
        _sample_points_along_axis(float(a), float(b), count, samples, size)
        for a, b, count, size in zip(low, high, output_shape, image_shape[-3:-1], strict=True)
    )
    return y_points, x_points


def _interpolation_matrix(points: list[list[Any]], size: int) -> np.ndarray:
    """The weights of sample points along an axis as a matrix (points, `size` pixels)."""
    weights = np.zeros((len(points), size))
    for row, pairs in zip(weights, points, strict=True):
        for pixel, weight in pairs:
            row[pixel] += weight
    return weights


def _roi_align_in_jnp(
    x: Any,
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    kind: str = "avg",
) -> Any:
    results = [_empty_result(x, output_shape)]
    flat_boxes, images = _flatten_boxes(x.ndim, boxes, batch_indices)
    for box, image in zip(flat_boxes * spatial_scale, images, strict=True):
        points = _sample_points_of_box(box, aligned, output_shape, samples, x.shape)
        row_weights, col_weights = (
            _interpolation_matrix(p, n) for p, n in zip(points, x.shape[-3:-1], strict=True)
        )
        values = jnp.einsum("ph,qw,hwc->pqc", row_weights, col_weights, _image_of_box(x, image))
        cells = values.reshape(output_shape[0], samples, output_shape[1], samples, -1)
        results.append((cells.max((1, 3)) if kind == "max" else cells.mean((1, 3)))[None])
    return jnp.concatenate(results).reshape(*np.shape(boxes)[:-1], *results[0].shape[1:])


def _empty_result(x: Any, output_shape: tuple[int, int]) -> Any:
    """The cells of zero boxes, as the first operand of a concatenation that may have no others."""
    return jnp.zeros((0, *output_shape, x.shape[-1]), x.dtype)


@record(
    twin=_roi_align_in_jnp,
    adds=True,
    tolerance=16.0,
    choices={"samples": (1, 4), "spatial_scale": (0.5,), "boxes": (BOXES_OF_TWO_IMAGES,)},
    covers=("ties", "normal"),
)
def roi_align(
    x: Any,
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    kind: str = "avg",
) -> Answer:
    """The mean or the maximum of points between pixels, arguments as in `jaxpool.roi_align`."""
    x, (flat_boxes, images) = np.asarray(x), _flatten_boxes(np.ndim(x), boxes, batch_indices)
    values, rows, columns = as_exact_numbers(x), *output_shape
    y = np.zeros((len(flat_boxes), rows, columns, x.shape[-1]))
    reduce_values, terms = parts.extremum_reducer(builtins.max, "first"), []
    dtype = parts.mean_dtype(x)
    for k, box in enumerate(flat_boxes * spatial_scale):
        if _image_index_out_of_range(images[k], x):
            continue
        y_points, x_points = _sample_points_of_box(box, aligned, (rows, columns), samples, x.shape)
        for i, j, c in np.ndindex(*y.shape[1:]):
            pairs = [p[n * samples : (n + 1) * samples] for p, n in ((y_points, i), (x_points, j))]
            points = []
            for pair in itertools.product(*pairs):
                pixels = itertools.product(*pair)
                points.append([((*images[k], a[0], b[0], c), a[1] * b[1]) for a, b in pixels])
            point_values = [exact_sum([w * values[pixel] for pixel, w in p]) for p in points]
            shares = [1 / len(points)] * len(points)
            y[k, i, j, c] = exact_sum(point_values) / len(points)
            if kind == "max":  # the library compares points rounded to the dtype
                y[k, i, j, c], shares = reduce_values(
                    list(as_exact_numbers(round_to_dtype(np.array(point_values), dtype)))
                )
            for share, point in zip(shares, points, strict=True):
                terms += [Term((k, i, j, c), 0, pixel, share * w) for pixel, w in point if share]
    answer = Answer(round_to_dtype(y, dtype), ((x.shape, x.dtype),), tuple(terms))
    return _restore_box_axes(answer, boxes)


def _pyramid_level(
    box: np.ndarray,
    num_levels: int,
    spatial_scale: float,
    canonical_size: float,
    canonical_level: int,
) -> int:
    """The pyramid level that a box is pooled from, out of `num_levels`: equation 1 of the FPN paper."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    if not area > 0:
        return 0
    raw_level = canonical_level + math.log2(math.sqrt(area) / canonical_size)
    return min(
        builtins.max(math.floor(raw_level + 1e-6) + round(math.log2(spatial_scale)), 0),
        num_levels - 1,
    )


def _multilevel_roi_align_in_jnp(
    features: Sequence[Any],
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 0.25,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
    **options: Any,
) -> Any:
    results = [_empty_result(features[0], output_shape)]
    flat_boxes, images = _flatten_boxes(features[0].ndim, boxes, batch_indices)
    for box, image in zip(flat_boxes, images, strict=True):
        level = _pyramid_level(box, len(features), spatial_scale, canonical_size, canonical_level)
        args = {"batch_indices": image or None, "spatial_scale": spatial_scale / 2**level}
        results.append(
            _roi_align_in_jnp(features[level], box[None], output_shape, **args, **options)
        )
    return jnp.concatenate(results).reshape(*np.shape(boxes)[:-1], *results[0].shape[1:])


def _third_of_image_size(x: Any) -> float:
    """About a third of the image size, so that the usual boxes belong to different levels."""
    return math.sqrt(math.prod(x.shape[-3:-1])) * 0.3


@record(
    twin=_multilevel_roi_align_in_jnp,
    operands=("features",),
    adds=True,
    tolerance=16.0,
    usual={
        "spatial_scale": lambda x: 1.0,
        "canonical_size": _third_of_image_size,
        "canonical_level": lambda x: 0,
    },
    choices={"samples": (1, 4), "canonical_level": (1,), "boxes": (BOXES_OF_TWO_IMAGES,)},
    covers=("ties", "normal"),
)
def multilevel_roi_align(
    features: Sequence[Any],
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 0.25,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
    samples: int = 2,
    aligned: bool = True,
) -> Answer:
    """The mean of points of each box in its pyramid level, arguments as in `jaxpool.multilevel_roi_align`."""
    flat_boxes, images = _flatten_boxes(np.ndim(features[0]), boxes, batch_indices)
    results, terms = [np.asarray(_empty_result(features[0], output_shape))], []
    for k, (box, image) in enumerate(zip(flat_boxes, images, strict=True)):
        level = _pyramid_level(box, len(features), spatial_scale, canonical_size, canonical_level)
        answer = roi_align(
            features[level],
            box[None],
            output_shape,
            batch_indices=image or None,
            spatial_scale=spatial_scale / 2**level,
            samples=samples,
            aligned=aligned,
        )
        results.append(answer.y)
        terms += [
            Term((k, *term.output[1:]), level, term.position, term.share) for term in answer.terms
        ]
    inputs = tuple((x.shape, x.dtype) for x in map(np.asarray, features))
    y = np.concatenate(results, dtype=parts.mean_dtype(features[0]))
    return _restore_box_axes(Answer(y, inputs, tuple(terms)), boxes)


def _pixels_of_cells(
    box_start: float, box_end: float, num_cells: int, image_size: int
) -> Iterator[range]:
    """The pixels of each cell of a box inside the image, along one axis. The bounds are computed in float32."""
    first, last = (math.floor(abs(x) + 0.5) * (1 if x > 0 else -1) for x in (box_start, box_end))
    step = np.float32(builtins.max(last - first + 1, 1)) / np.float32(num_cells)
    for i in range(num_cells):
        begin, end = np.float32(i) * step, np.float32(i + 1) * step
        bounds = first + math.floor(begin), first + math.ceil(end)
        yield range(*(min(builtins.max(end, 0), image_size) for end in bounds))


def _roi_max_pool_in_jnp(
    x: Any,
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    ties: Any = None,
) -> Any:
    results = [_empty_result(x, output_shape)]
    flat_boxes, images = _flatten_boxes(x.ndim, boxes, batch_indices)
    for box, image in zip(flat_boxes * spatial_scale, images, strict=True):
        ranges = [
            [list(pixels) for pixels in _pixels_of_cells(box[d], box[d + 2], n, x.shape[d - 3])]
            for d, n in enumerate(output_shape)
        ]
        values, tap_exists = jnp_windows.gather_windows(_image_of_box(x, image), (0, 1), ranges)
        results.append(
            jnp.where(tap_exists.any(-1), jnp_windows.max_over_taps(values, tap_exists), 0)[None]
        )
    return jnp.concatenate(results).reshape(*np.shape(boxes)[:-1], *results[0].shape[1:])


@record(
    twin=_roi_max_pool_in_jnp, choices={"spatial_scale": (0.5,), "boxes": (BOXES_OF_TWO_IMAGES,)}
)
def roi_max_pool(
    x: Any,
    boxes: Any,
    output_shape: tuple[int, int],
    *,
    batch_indices: Any = None,
    spatial_scale: float = 1.0,
    ties: Ties = "first",
) -> Answer:
    """The largest pixel of each cell, arguments as in `jaxpool.roi_max_pool`."""
    x, (flat_boxes, images) = np.asarray(x), _flatten_boxes(np.ndim(x), boxes, batch_indices)
    values, reduce_values = as_exact_numbers(x), parts.extremum_reducer(builtins.max, ties)
    y = np.zeros((len(flat_boxes), *output_shape, x.shape[-1]), values.dtype)
    terms = []
    for k, box in enumerate(flat_boxes * spatial_scale):
        if _image_index_out_of_range(images[k], x):
            continue
        y_cells = _pixels_of_cells(box[0], box[2], output_shape[0], x.shape[-3])
        x_cells = list(_pixels_of_cells(box[1], box[3], output_shape[1], x.shape[-2]))
        for (i, rows), (j, columns) in itertools.product(enumerate(y_cells), enumerate(x_cells)):
            pixels = list(itertools.product(rows, columns))
            for c in range(x.shape[-1] if pixels else 0):
                positions = [(*images[k], *pixel, c) for pixel in pixels]
                y[k, i, j, c], shares = reduce_values([values[p] for p in positions])
                pairs = zip(positions, shares, strict=True)
                terms += [Term((k, i, j, c), 0, p, share) for p, share in pairs if share]
    answer = Answer(round_to_dtype(y, x.dtype), ((x.shape, x.dtype),), tuple(terms))
    return _restore_box_axes(answer, boxes)
