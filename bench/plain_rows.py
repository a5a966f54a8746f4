"""Equivalent `jax.numpy` and `lax` code for functions of rows, segments and boxes: see `plain_ways.py`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

import jaxpool
from bench.plain_ways import IMAGES, Setting, Way, call
from jaxpool.testing import pools

_ROWS = {"small": (768, 16), "medium": (65536, 16), "large": (1_000_000, 16)}
_EDGES = {"small": (96, 128), "medium": (8192, 128), "large": (100_000, 128)}
_SEGMENTS = {"small": 50, "medium": 999, "large": 50_000}
_BY_MAXIMUM = "sends the rounding of all gradients of a segment to its largest element"


def of_rows(size: str) -> Iterator[Setting]:
    """The settings of running maxima and minima, the largest elements and segments."""
    shape = _ROWS[size]
    of = partial(Setting, size=size, shapes=(shape,))
    for name, n in itertools.product(("cummax", "cummin"), (0, 1)):
        words, with_argmax = f"along axis {n}", f"{name}_with_argmax"
        yield of(name, words, call(name, axis=n), partial(getattr(lax, name), axis=n))
        plain = partial(_running_argmax, name=name, axis=n)
        yield of(with_argmax, words, call(with_argmax, axis=n), plain)
    for name, join in (("cummax", jnp.maximum), ("cummin", jnp.minimum)):
        yield of(
            name,
            "of episodes along axis 0",
            lambda x, name=name: getattr(jaxpool, name)(x, 0, reset=_starts(x)),
            partial(_restarted, join=join),
        )
    for k in (8, 64, 512):
        if k < shape[0]:
            ours = call("k_max_pool", k=k, axis=0)
            yield of("k_max_pool", f"{k}", ours, partial(_k_largest, k=k))
    for name, pool in pools().items():
        if not pool.takes("segment_ids"):
            continue
        soft = pool.takes("temperature")
        for rows in (shape, _EDGES[size]) if soft else (shape,):
            for count, ordered in ((7, False), (_SEGMENTS[size], False), (_SEGMENTS[size], True)):
                plain = _SEGMENT_FUNCTIONS.get(name) or getattr(jax.ops, name)
                yield of(
                    name,
                    f"{count} segments{', sorted' * ordered}",
                    partial(_segments, pool.function, count, ordered),
                    partial(_segments, plain, count, ordered),
                    shapes=(rows,),
                    differs=_BY_MAXIMUM if soft and count == 7 else "",
                )


def _k_largest(x: Array, k: int) -> Array:
    at = jnp.sort(lax.top_k(lax.stop_gradient(x.T), k)[1])
    return jnp.take_along_axis(x.T, at, -1).T


def _running_argmax(x: Array, name: str, axis: int) -> tuple[Array, Array]:
    """A running maximum with indices, for x without ties."""
    y = getattr(lax, name)(x, axis)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return y, lax.cummax(jnp.where(x == lax.stop_gradient(y), positions, 0), axis)


def _starts(x: Array) -> Array:
    """True at the first step of each episode of 128 steps."""
    return jnp.arange(len(x))[:, None] % 128 == 0


def _restarted(x: Array, join: Way) -> Array:
    """A scan of pairs (start, value): the first step of an episode discards the earlier values."""

    def after(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], join(a[1], b[1]))

    starts = jnp.broadcast_to(_starts(x), x.shape)
    return lax.associative_scan(after, (starts, x))[1]


@functools.cache
def _ids(rows: int, count: int, ordered: bool) -> np.ndarray:
    ids = np.random.default_rng(2).integers(0, count, rows, np.int32)
    return np.sort(ids) if ordered else ids


def _segments(function: Way, count: int, ordered: bool, x: Array) -> Any:
    ids = lax.optimization_barrier(jnp.asarray(_ids(x.shape[0], count, ordered)))
    return function(x, ids, count, indices_are_sorted=ordered)


def _mean_of_segments(x: Array, ids: Any, count: int, **options: Any) -> Array:
    rows = jax.ops.segment_sum(jnp.ones(len(ids), x.dtype), ids, count, **options)[:, None]
    return jax.ops.segment_sum(x, ids, count, **options) / jnp.maximum(rows, 1)


def _softmax_of_segments(x: Array, ids: Any, count: int, **options: Any) -> Array:
    """The code of `jraph.segment_softmax`."""
    far = x - jax.ops.segment_max(x, ids, count, **options)[ids]
    powers = jnp.exp(far)
    return powers / jax.ops.segment_sum(powers, ids, count, **options)[ids]


def _logsumexp_of_segments(x: Array, ids: Any, count: int, **options: Any) -> Array:
    largest = lax.stop_gradient(jax.ops.segment_max(x, ids, count, **options))
    return largest + jnp.log(jax.ops.segment_sum(jnp.exp(x - largest[ids]), ids, count, **options))


def _argmax_of_segments(x: Array, ids: Any, count: int, **options: Any) -> tuple[Array, Array]:
    largest = jax.ops.segment_max(lax.stop_gradient(x), ids, count, **options)
    rows = jnp.arange(len(x), dtype=jnp.int32)[:, None]
    named = jnp.where(x == largest[ids], rows, len(x))
    first = jax.ops.segment_min(named, ids, count, **options)
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
    of = partial(Setting, size=size)
    where, images = _random_boxes(64, shape)
    half = (shape[0], shape[1] // 2, shape[2] // 2, shape[3])
    pyramid = {"spatial_scale": 1.0, "canonical_size": shape[1] / 4, "canonical_level": 0}
    for cells in ((3, 3), (7, 7)):
        to = f"to {cells[0]}x{cells[1]}"
        given = {"boxes": where, "batch_indices": images, "output_shape": cells}
        for name, plain in (("roi_align", _averaged), ("roi_max_pool", _maxima)):
            theirs = partial(plain, where, images, cells)
            yield of(name, f"64 boxes {to}", call(name, **given), theirs, shapes=(shape,))
        yield of(
            "multilevel_roi_align",
            f"64 boxes in 2 levels {to}",
            lambda *xs, given=given: jaxpool.multilevel_roi_align(xs, **given, **pyramid),
            partial(_of_every_level, where, images, cells, shape[1] / 4),
            shapes=(shape, half),
        )


def _random_boxes(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes (K, 4) on images (B, H, W, C), some across the border, and the image of each box."""
    rng = np.random.default_rng(2)
    size = np.asarray(shape[1:3])
    centre = rng.uniform(0, size, (count, 2))
    half = rng.uniform(0.04 * size, 0.36 * size, (count, 2))
    corners = np.concatenate([centre - half, centre + half], 1).astype(np.float32)
    return corners, rng.integers(0, shape[0], count, np.int32)


def _averaged(where: Any, images: Any, cells: tuple[int, ...], x: Array) -> Array:
    each = partial(_align, cells)
    return jax.vmap(lambda box, image: each(x[image], box))(where, images).astype(x.dtype)


def _maxima(where: Any, images: Any, cells: tuple[int, ...], x: Array) -> Array:
    each = partial(_largest, cells)
    return lax.map(lambda given: each(x[given[1]], given[0]), (where, images)).astype(x.dtype)


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


def _of_every_level(where: Any, images: Any, cells: Any, size: float, *xs: Array) -> Array:
    """Pool every box from both levels, then select the level of each box."""
    pooled = [_averaged(where / 2**level, images, cells, x) for level, x in enumerate(xs)]
    coarse = np.sqrt(np.prod(where[:, 2:] - where[:, :2], 1)) >= 2 * size
    return jnp.where(coarse[:, None, None, None], pooled[1], pooled[0])
