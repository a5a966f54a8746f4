"""Equivalent `jax.numpy` and `lax` code for functions of rows, segments and boxes: see `plain_ways.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from bench.plain_ways import IMAGES, Setting, Way, positional
from jaxpool.testing import pools

_ROWS = {"small": (768, 16), "medium": (65536, 16), "large": (1_000_000, 16)}
_EDGES = {"small": (96, 128), "medium": (8192, 128), "large": (100_000, 128)}
_SEGMENTS = {"small": 50, "medium": 999, "large": 50_000}
_BY_MAXIMUM = "sends the rounding of all gradients of a segment to its largest element"


def of_rows(size: str) -> Iterator[Setting]:
    """The settings of running maxima and minima, the largest elements and segments."""
    shape = _ROWS[size]
    axes = ({"axis": 0}, {"axis": 1})
    for name, arguments in itertools.product(("cummax", "cummin"), axes):
        yield Setting(name, size, (shape,), arguments, positional(getattr(lax, name)))
        with_argmax = partial(_running_argmax, name)
        yield Setting(f"{name}_with_argmax", size, (shape,), arguments, with_argmax)
    for name in ("cummax", "cummin"):
        arguments = {"axis": 0, "reset": every_128th}
        yield Setting(name, size, (shape,), arguments, partial(_restarted, name))
    for k, axis in ((8, 1), (8, 0), (64, 0), (512, 0)):
        if k < shape[0]:
            yield Setting("k_max_pool", size, (shape,), {"k": k, "axis": axis}, _k_largest)
    for name, pool in pools().items():
        if not pool.takes("segment_ids"):
            continue
        soft = pool.takes("temperature")
        for rows in (shape, _EDGES[size]) if soft else (shape,):
            for count, ordered in ((7, False), (_SEGMENTS[size], False), (_SEGMENTS[size], True)):
                arguments = {"segment_ids": random_ids(count, ordered), "num_segments": count}
                arguments["indices_are_sorted"] = ordered
                plain = _SEGMENT_FUNCTIONS.get(name) or positional(getattr(jax.ops, name))
                differs = _BY_MAXIMUM if soft and count == 7 else ""
                yield Setting(name, size, (rows,), arguments, plain, differs=differs)


def _k_largest(x: Array, k: int, axis: int) -> Array:
    lanes = jnp.moveaxis(x, axis, -1)
    at = jnp.sort(lax.top_k(lax.stop_gradient(lanes), k)[1])
    return jnp.moveaxis(jnp.take_along_axis(lanes, at, -1), -1, axis)


def _running_argmax(name: str, x: Array, axis: int) -> tuple[Array, Array]:
    """A running maximum with indices, for x without ties."""
    y = getattr(lax, name)(x, axis)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return y, lax.cummax(jnp.where(x == lax.stop_gradient(y), positions, 0), axis)


def every_128th(x: Array) -> Array:
    """True at the first step of each episode of 128 steps."""
    return jnp.arange(len(x))[:, None] % 128 == 0


def _restarted(name: str, x: Array, axis: int, reset: Array) -> Array:
    """A scan of pairs (start, value): the first step of an episode discards the earlier values."""
    join = jnp.maximum if name == "cummax" else jnp.minimum

    def after(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], join(a[1], b[1]))

    return lax.associative_scan(after, (jnp.broadcast_to(reset, x.shape), x), axis=axis)[1]


def random_ids(count: int, ordered: bool) -> Way:
    """A function from rows to the segment of each row."""

    def ids(x: Array) -> Array:
        numbers = np.random.default_rng(2).integers(0, count, len(x), np.int32)
        return lax.optimization_barrier(jnp.asarray(np.sort(numbers) if ordered else numbers))

    return ids


def _mean_of_segments(x: Array, segment_ids: Any, **options: Any) -> Array:
    rows = jax.ops.segment_sum(jnp.ones(len(segment_ids), x.dtype), segment_ids, **options)[:, None]
    return jax.ops.segment_sum(x, segment_ids, **options) / jnp.maximum(rows, 1)


def _softmax_of_segments(x: Array, segment_ids: Any, **options: Any) -> Array:
    """The code of `jraph.segment_softmax`."""
    far = x - jax.ops.segment_max(x, segment_ids, **options)[segment_ids]
    powers = jnp.exp(far)
    return powers / jax.ops.segment_sum(powers, segment_ids, **options)[segment_ids]


def _logsumexp_of_segments(x: Array, segment_ids: Any, **options: Any) -> Array:
    largest = lax.stop_gradient(jax.ops.segment_max(x, segment_ids, **options))
    powers = jnp.exp(x - largest[segment_ids])
    return largest + jnp.log(jax.ops.segment_sum(powers, segment_ids, **options))


def _argmax_of_segments(x: Array, segment_ids: Any, **options: Any) -> tuple[Array, Array]:
    largest = jax.ops.segment_max(lax.stop_gradient(x), segment_ids, **options)
    rows = jnp.arange(len(x), dtype=jnp.int32)[:, None]
    named = jnp.where(x == largest[segment_ids], rows, len(x))
    first = jax.ops.segment_min(named, segment_ids, **options)
    return jnp.take_along_axis(x, first, 0, mode="clip"), first


_SEGMENT_FUNCTIONS: dict[str, Way] = {
    "segment_mean": _mean_of_segments,
    "segment_softmax": _softmax_of_segments,
    "segment_logsumexp": _logsumexp_of_segments,
    "segment_max_with_argmax": _argmax_of_segments,
}

# Boxes

_SAMPLES = 2  # points along each axis of a cell


def of_boxes(size: str) -> Iterator[Setting]:
    """The settings of pools of boxes."""
    shape = IMAGES[size]
    where, images = _random_boxes(64, shape)
    half = (shape[0], shape[1] // 2, shape[2] // 2, shape[3])
    pyramid = {"spatial_scale": 1.0, "canonical_size": shape[1] / 4, "canonical_level": 0}
    for cells in ((3, 3), (7, 7)):
        call = {"output_shape": cells, "boxes": where, "batch_indices": images}
        yield Setting("roi_align", size, (shape,), call, _averaged)
        yield Setting("roi_max_pool", size, (shape,), call, _maxima)
        shapes, name = (shape, half), "multilevel_roi_align"
        yield Setting(name, size, shapes, call | pyramid, _of_every_level)


def _random_boxes(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes (K, 4) on images (B, H, W, C), some across the border, and the image of each box."""
    rng = np.random.default_rng(2)
    size = np.asarray(shape[1:3])
    centre = rng.uniform(0, size, (count, 2))
    half = rng.uniform(0.04 * size, 0.36 * size, (count, 2))
    corners = np.concatenate([centre - half, centre + half], 1).astype(np.float32)
    return corners, rng.integers(0, shape[0], count, np.int32)


def _averaged(x: Array, boxes: Any, batch_indices: Any, output_shape: Any) -> Array:
    each = partial(_align, output_shape)
    return jax.vmap(lambda box, image: each(x[image], box))(boxes, batch_indices).astype(x.dtype)


def _maxima(x: Array, boxes: Any, batch_indices: Any, output_shape: Any) -> Array:
    each = partial(_largest, output_shape)
    pooled = lax.map(lambda given: each(x[given[1]], given[0]), (boxes, batch_indices))
    return pooled.astype(x.dtype)


def _align(cells: tuple[int, ...], x: Array, box: Array) -> Array:
    """`roi_align` of one box by indexing: means of interpolated points."""

    def points(low: Array, high: Array, count: int, size: int) -> tuple[Array, ...]:
        number = jnp.arange(count * _SAMPLES) + 0.5
        at = low - 0.5 + number * (high - low) / (count * _SAMPLES)
        near = jnp.clip(at, 0, size - 1)
        first = jnp.floor(near).astype(int)
        return first, jnp.minimum(first + 1, size - 1), near - first, (at >= -1) & (at <= size)

    up, down, below, inside = points(box[0], box[2], cells[0], x.shape[0])
    left, right, beyond, within = points(box[1], box[3], cells[1], x.shape[1])
    beyond, below = beyond[:, None], below[:, None, None]

    def row(at: Array) -> Array:
        return x[at[:, None], left] * (1 - beyond) + x[at[:, None], right] * beyond

    mixed = row(up) * (1 - below) + row(down) * below
    mixed = jnp.where((inside[:, None] & within)[..., None], mixed, 0)
    return mixed.reshape(cells[0], _SAMPLES, cells[1], _SAMPLES, -1).mean((1, 3))


def _largest(cells: tuple[int, ...], x: Array, box: Array) -> Array:
    """`roi_max_pool` of one box by masks: the maximum of the pixels in each cell."""
    low = jnp.floor(box[:2] + 0.5).astype(int)
    length = jnp.maximum(jnp.floor(box[2:] + 0.5).astype(int) - low + 1, 1)

    def inside(axis: int) -> Array:
        number, at = jnp.arange(cells[axis])[:, None], jnp.arange(x.shape[axis])
        after = at >= number * length[axis] // cells[axis] + low[axis]
        return after & (at < low[axis] - (-(number + 1) * length[axis]) // cells[axis])

    mask = (inside(0)[:, None, :, None] & inside(1)[None, :, None, :])[..., None]
    y = jnp.where(mask, x, -jnp.inf).max((2, 3))
    return jnp.where(jnp.isfinite(y), y, 0)


def _of_every_level(
    features: Any,
    boxes: Any,
    canonical_size: float,
    spatial_scale: float,
    canonical_level: int,
    **how: Any,
) -> Array:
    """Pool every box from both levels, then select the level of each box."""
    pooled = [_averaged(x, boxes / 2**level, **how) for level, x in enumerate(features)]
    coarse = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], 1)) >= 2 * canonical_size
    return jnp.where(coarse[:, None, None, None], pooled[1], pooled[0])
