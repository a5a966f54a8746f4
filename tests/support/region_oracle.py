"""What pools over boxes and segments should give, in NumPy loops, as `jaxpool.testing.oracle` has them."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpool.testing import _oracle
from jaxpool.testing._answer import Answer, Term, exact_sum, exact_values, rounded
from jaxpool.testing._oracle import Ties


def _boxes(x: Any, boxes: Any, batch_indices: Any) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """x, boxes as (K, 4), and what stands before the rows and columns of the image of each."""
    flat = np.asarray(boxes, np.float64).reshape(-1, 4)
    given = [()] * len(flat) if batch_indices is None else [(int(b),) for b in batch_indices]
    return np.asarray(x), flat, list(given)


def _points(low: float, high: float, cells: int, samples: int, size: int) -> list[list[Any]]:
    """Of each point along an axis, which pixels it lies between, and how much each of them weighs."""
    found = []
    for i in range(cells * samples):
        at = low + (i + 0.5) * (high - low) / (cells * samples)
        near = min(builtins.max(at, 0.0), size - 1.0)
        first = math.floor(near)
        pair = [(first, 1 - (near - first)), (first + 1, near - first)]
        inside = -1 <= at <= size
        found.append([(pixel, weight) for pixel, weight in pair if weight and inside])
    return found


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
    x, flat, images = _boxes(x, boxes, batch_indices)
    values, rows, columns = exact_values(x), *output_shape
    y = np.zeros((len(flat), rows, columns, x.shape[-1]))
    choose, terms = _oracle._choose(builtins.max, "first"), []
    for k, box in enumerate(flat * spatial_scale):
        (top, left), (bottom, right) = box[:2] - aligned / 2, box[2:] - aligned / 2
        if not aligned:
            bottom, right = builtins.max(bottom, top + 1), builtins.max(right, left + 1)
        if bottom <= top or right <= left:
            continue
        down = _points(top, bottom, rows, samples, x.shape[-3])
        across = _points(left, right, columns, samples, x.shape[-2])
        for i, j, c in np.ndindex(*y.shape[1:]):
            parts = [part[n * samples : (n + 1) * samples] for part, n in ((down, i), (across, j))]
            points = []
            for pair in itertools.product(*parts):
                mixed = itertools.product(*pair)
                points.append([((*images[k], a[0], b[0], c), a[1] * b[1]) for a, b in mixed])
            held = [exact_sum([w * values[at] for at, w in p]) for p in points]
            shares = [1 / len(points)] * len(points)
            y[k, i, j, c] = exact_sum(held) / len(points)
            if kind == "max":
                y[k, i, j, c], shares = choose(held)
            for share, point in zip(shares, points, strict=True):
                terms += [Term((k, i, j, c), 0, at, share * w) for at, w in point if share]
    dtype = x.dtype if _oracle.is_floating(x.dtype) else np.dtype(np.float32)
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms))


def _cells(low: float, high: float, cells: int, size: int) -> Iterator[range]:
    """The whole pixels of each cell of a box that lie in the image, by bounds computed in float32."""
    first, last = (math.floor(abs(at) + 0.5) * (1 if at > 0 else -1) for at in (low, high))
    step = np.float32(builtins.max(last - first + 1, 1)) / np.float32(cells)
    for i in range(cells):
        begin, end = np.float32(i) * step, np.float32(i + 1) * step
        ends = first + math.floor(begin), first + math.ceil(end)
        yield range(*(min(builtins.max(end, 0), size) for end in ends))


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
    x, flat, images = _boxes(x, boxes, batch_indices)
    values, choose = exact_values(x), _oracle._choose(builtins.max, ties)
    y = np.zeros((len(flat), *output_shape, x.shape[-1]), values.dtype)
    terms = []
    for k, box in enumerate(flat * spatial_scale):
        down = _cells(box[0], box[2], output_shape[0], x.shape[-3])
        across = list(_cells(box[1], box[3], output_shape[1], x.shape[-2]))
        for (i, rows), (j, columns) in itertools.product(enumerate(down), enumerate(across)):
            pixels = list(itertools.product(rows, columns))
            for c in range(x.shape[-1] if pixels else 0):
                places = [(*images[k], *pixel, c) for pixel in pixels]
                y[k, i, j, c], shares = choose([values[place] for place in places])
                pairs = zip(places, shares, strict=True)
                terms += [Term((k, i, j, c), 0, at, share) for at, share in pairs if share]
    return Answer(rounded(y, x.dtype), ((x.shape, x.dtype),), tuple(terms))


def _segments(x: Any, ids: Any, count: int, rule: _oracle.Rule, empty: Any, dtype: Any) -> Answer:
    x = np.asarray(x)
    values, terms = exact_values(x), []
    y = np.full((count, *x.shape[1:]), empty, values.dtype)
    for output in np.ndindex(*y.shape):
        places = [(n, *output[1:]) for n in np.flatnonzero(np.asarray(ids) == output[0])]
        if places:
            y[output], shares = rule([values[place] for place in places])
            terms += [Term(output, 0, p, s) for p, s in zip(places, shares, strict=True) if s]
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms))


def segment_max(x: Any, segment_ids: Any, num_segments: int, *, ties: Ties = "split") -> Answer:
    """The largest row of each segment of floats, as in `jaxpool.segment_max`."""
    rule = _oracle._choose(builtins.max, ties)
    return _segments(x, segment_ids, num_segments, rule, -np.inf, np.asarray(x).dtype)


def segment_min(x: Any, segment_ids: Any, num_segments: int, *, ties: Ties = "split") -> Answer:
    """The smallest row of each segment of floats, as in `jaxpool.segment_min`."""
    rule = _oracle._choose(builtins.min, ties)
    return _segments(x, segment_ids, num_segments, rule, np.inf, np.asarray(x).dtype)


def segment_mean(x: Any, segment_ids: Any, num_segments: int) -> Answer:
    """The mean of the rows of each segment of floats, as in `jaxpool.segment_mean`."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / len(values), [1 / len(values)] * len(values)

    return _segments(x, segment_ids, num_segments, rule, 0, np.asarray(x).dtype)
