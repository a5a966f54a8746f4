"""Pools of boxes in the search: which pixels each cell sees, and how much of each.

Corners are quarters of a pixel and scales are powers of two, so that which pixel is the larger, and
what lies outside, does not hang on a rounding; for averages half of the boxes are of any size.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import Array, lax

import jaxpool
from tests.search.reference import Shares, Table, chosen

NAMES = ("roi_align", "roi_max_pool")


def adds(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether values are rounded sums: of points between pixels, the maximum of those too."""
    return name == "roi_align"


def exact(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether no weight is rounded."""
    return name == "roi_max_pool" or bool(kwargs["draw"] % 2)


@st.composite
def arguments(draw: st.DrawFn, name: str, sizes: Any) -> Any:
    """Shapes, arguments, and how many members all outputs have; boxes come from the number `draw`."""
    shape = (draw(sizes(30)), draw(sizes(17)), draw(sizes(9)))
    images = draw(st.sampled_from([None, None, 1, 3]))
    kwargs: dict[str, Any] = {"boxes": draw(st.integers(1, 5) | st.sampled_from([17]))}
    kwargs["spatial_scale"] = draw(st.sampled_from([1.0, 0.5, 2.0]))
    kwargs["draw"] = draw(st.integers(0, 99))
    cells = draw(st.tuples(*[st.integers(1, 4)] * 2))
    seen = math.prod(shape[:2])
    if name == "roi_align":
        kwargs["kind"] = draw(st.sampled_from(["avg", "avg", "max"]))
        kwargs["aligned"] = draw(st.booleans())
        kwargs["samples"] = draw(st.integers(1, 4))
        if kwargs["kind"] == "max":
            kwargs["draw"] |= 1
        if exact(name, kwargs):
            cells = tuple(1 << n // 2 for n in cells)
            kwargs["samples"] = 1 << kwargs["samples"] // 2
        seen = 4 * kwargs["samples"] ** 2
    members = kwargs["boxes"] * math.prod(cells) * shape[2] * seen
    full = shape if images is None else (images, *shape)
    return (full,), kwargs | {"output_shape": cells}, 3 * members


@functools.lru_cache(maxsize=8)
def drawn(spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (K, 4) and the image of each: inside, across the border, without area; images that are none."""
    kwargs, rng = spec.kwargs, np.random.default_rng(spec.kwargs["draw"])
    *batch, height, width, _ = spec.shapes[0]
    count = kwargs["boxes"]
    boxes = rng.uniform(-3, 3 + np.array([height, width] * 2), (count, 4))
    boxes[: (count + 1) // 2] = np.sort(boxes[: (count + 1) // 2].reshape(-1, 2, 2), 1).reshape(
        -1, 4
    )
    if exact(spec.function, kwargs):
        boxes = np.round(boxes * 4) / 4
    images = rng.integers(-1, batch[0] + 1, count) if batch else np.zeros(count)
    return (boxes / kwargs["spatial_scale"]).astype(np.float32), images.astype(np.int32)


def call(spec: Any, kwargs: dict[str, Any], x: Array) -> Array:
    """The function with its boxes and images, which are read behind a barrier."""
    boxes, images = (lax.optimization_barrier(jnp.asarray(each)) for each in drawn(spec))
    del kwargs["draw"], kwargs["boxes"]
    named = {"batch_indices": images} if x.ndim == 4 else {}
    y: Array = getattr(jaxpool, spec.function)(x, boxes, **kwargs, **named)
    return y


def _points(low: Any, high: Any, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of `count` points of each span the two pixels beside it and their weights: (K, count, 2)."""
    at = low[:, None] + (np.arange(count) + 0.5) * (high - low)[:, None] / count
    near = np.clip(at, 0, size - 1)
    first = np.floor(near)
    pixel = first[..., None].astype(int) + np.arange(2)
    weight = np.stack([1 - (near - first), near - first], -1)
    return np.minimum(pixel, size - 1), weight * ((at >= -1) & (at <= size))[..., None]


def _cells(low: Any, high: Any, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the cells of each span all pixels, and whether each is in the cell: (K, count, size)."""
    low, high = (np.sign(end) * np.floor(np.abs(end) + 0.5) for end in (low, high))
    length, cell = np.maximum(high - low + 1, 1)[:, None], np.arange(count)
    begin = low[:, None] + cell * length // count
    end = low[:, None] - (-(cell + 1) * length // count)
    pixel = np.broadcast_to(np.arange(size), (len(low), count, size))
    return pixel, (pixel >= begin[..., None]) & (pixel < end[..., None])


@functools.lru_cache(maxsize=8)
def _seen(spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """Flat positions and weights, (K, I, J, C, points, pixels of a point)."""
    kwargs, (boxes, images) = spec.kwargs, drawn(spec)
    *batch, height, width, channels = spec.shapes[0]
    cells, scaled = kwargs["output_shape"], boxes.astype(np.float64) * kwargs["spatial_scale"]
    known = (images >= 0) & (images < batch[0]) if batch else np.ones(len(images), bool)
    if spec.function == "roi_max_pool":
        rows, columns = (
            _cells(scaled[:, d], scaled[:, d + 2], cells[d], (height, width)[d]) for d in range(2)
        )
        down, across = ((at[..., None], held[..., None]) for at, held in (rows, columns))
    else:
        low = scaled[:, :2] - kwargs["aligned"] / 2
        high = scaled[:, 2:] - kwargs["aligned"] / 2
        if not kwargs["aligned"]:
            high = np.maximum(high, low + 1)
        known &= (high > low).all(1)
        samples, each = kwargs["samples"], []
        for d, size in enumerate((height, width)):
            found = _points(low[:, d], high[:, d], cells[d] * samples, size)
            each.append([part.reshape(len(boxes), cells[d], samples, 2) for part in found])
        down, across = each
    # box, row, column, channel, point down, point across, pixel of it down, pixel across
    row, over = (part[:, :, None, None, :, None, :, None] for part in down)
    column, wide = (part[:, None, :, None, None, :, None, :] for part in across)
    weight = over * wide * known[:, *[None] * 7] * np.ones((channels, 1, 1, 1, 1))
    image = np.where(known, images, 0)[:, *[None] * 7]
    flat = ((image * height + row) * width + column) * channels
    flat = flat + np.arange(channels)[:, *[None] * 4]
    shape = (len(boxes), *cells, channels, -1, math.prod(weight.shape[-2:]))
    return np.where(weight > 0, flat, -1).reshape(shape), weight.reshape(shape)


def table(spec: Any) -> Table:
    """Which elements each output sees."""
    at, _ = _seen(spec)
    return Table(at.reshape(math.prod(at.shape[:4]), -1), at.shape[:4])


def wanted(spec: Any, at: Table, x: np.ndarray) -> Shares:
    """What each function should give of arrays (cases, elements)."""
    values, some = at.of(x), at.real.any(-1)
    if spec.function == "roi_max_pool":
        real = np.broadcast_to(at.real, values.shape)
        y, share = chosen(values, real, "max", spec.kwargs["ties"])
        return Shares(at, np.where(some, y, 0), share)
    weight = _seen(spec)[1]
    points = weight.shape[-2]
    weight = weight.reshape(len(at.members), points, -1)
    parts = values.reshape(len(x), *weight.shape)
    with np.errstate(invalid="ignore"):
        each = np.where(weight > 0, parts * weight, 0).sum(-1)
    # A coordinate is rounded in float32.
    far = 1.0 if exact(spec.function, spec.kwargs) else 6.0 + max(spec.shapes[0][-3:-1])
    near = far * np.where(at.real, np.nan_to_num(np.abs(values), posinf=0.0), 0).max(-1)
    if spec.kwargs["kind"] == "avg":
        share = np.broadcast_to(weight / points, parts.shape).reshape(values.shape)
        return Shares(at, each.sum(-1) / points, share, near, np.where(share > 0, far, 0))
    each = each.astype(spec.dtype).astype(np.float64)  # points are rounded, then compared
    y, first = chosen(each, np.ones(each.shape, bool), "max", "first")
    share = (first[..., None] * weight).reshape(values.shape)
    return Shares(at, y, share, near)
