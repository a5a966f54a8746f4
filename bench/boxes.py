"""Boxes of images and segments of rows: our call, a plain one in jax.numpy, and the reference of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._case import BOXES, SEGMENTS, Case
from jaxpool.testing import pools

REGIONS = (*BOXES, *SEGMENTS)
SAMPLES = 2  # points an axis of a cell
Op = Callable[..., Any]


def boxes(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (K, 4) all over the images and across their borders, a tenth to most of their size; the image of each."""
    rng = np.random.default_rng(2)
    size = np.asarray(case.spatial_shape)
    centre = rng.uniform(0, size, (case.boxes, 2))
    half = rng.uniform(0.04 * size, 0.36 * size, (case.boxes, 2))
    corners = np.concatenate([centre - half, centre + half], 1).astype(np.float32)
    return corners, rng.integers(0, case.shape[0], case.boxes, np.int32)


def segments(case: Case) -> np.ndarray:
    """The segment of each row, in no order."""
    return np.random.default_rng(2).integers(0, case.output[0], case.shape[0], np.int32)


def ours(case: Case, function: Op) -> Op:
    """The call of this library."""
    if case.op in SEGMENTS:
        return case.bound(function, segment_ids=jnp.asarray(segments(case)))
    where, images = map(jnp.asarray, boxes(case))
    return case.bound(function, boxes=where, batch_indices=images)


def plain(case: Case) -> Op:
    """Segments by `jax.ops`, points of boxes by indexing, pixels of boxes by masks; jax differentiates it."""
    if case.op in SEGMENTS:
        ids, count = jnp.asarray(segments(case)), case.output[0]
        if not pools()[case.op].adds:
            return lambda x: getattr(jax.ops, case.op)(x, ids, count)
        rows = jax.ops.segment_sum(jnp.ones_like(ids), ids, count)[:, None]
        return lambda x: jax.ops.segment_sum(x, ids, count) / jnp.maximum(rows, 1).astype(x.dtype)
    where, images = map(jnp.asarray, boxes(case))
    one = _align if case.op == "roi_align" else _largest
    each = functools.partial(one, case.output)
    if case.op == "roi_align":
        return lambda x: jax.vmap(lambda box, image: each(x[image], box))(where, images)
    return lambda x: jax.lax.map(lambda given: each(x[given[1]], given[0]), (where, images))


def _align(cells: tuple[int, ...], x: jax.Array, box: jax.Array) -> jax.Array:
    def points(low: jax.Array, high: jax.Array, count: int, size: int) -> tuple[jax.Array, ...]:
        number = jnp.arange(count * SAMPLES) + 0.5
        at = low - 0.5 + number * (high - low) / (count * SAMPLES)
        near = jnp.clip(at, 0, size - 1)
        first = jnp.floor(near).astype(int)
        return first, jnp.minimum(first + 1, size - 1), near - first, (at >= -1) & (at <= size)

    up, down, below, inside = points(box[0], box[2], cells[0], x.shape[0])
    left, right, beyond, within = points(box[1], box[3], cells[1], x.shape[1])
    beyond, below = beyond[:, None], below[:, None, None]

    def row(at: jax.Array) -> jax.Array:
        return x[at[:, None], left] * (1 - beyond) + x[at[:, None], right] * beyond

    mixed = row(up) * (1 - below) + row(down) * below
    mixed = jnp.where((inside[:, None] & within)[..., None], mixed, 0)
    return mixed.reshape(cells[0], SAMPLES, cells[1], SAMPLES, -1).mean((1, 3))


def _largest(cells: tuple[int, ...], x: jax.Array, box: jax.Array) -> jax.Array:
    low = jnp.floor(box[:2] + 0.5).astype(int)
    length = jnp.maximum(jnp.floor(box[2:] + 0.5).astype(int) - low + 1, 1)

    def inside(axis: int) -> jax.Array:
        number, at = jnp.arange(cells[axis])[:, None], jnp.arange(x.shape[axis])
        after = at >= number * length[axis] // cells[axis] + low[axis]
        return after & (at < low[axis] - (-(number + 1) * length[axis]) // cells[axis])

    mask = (inside(0)[:, None, :, None] & inside(1)[None, :, None, :])[..., None]
    y = jnp.where(mask, x, -jnp.inf).max((2, 3))
    return jnp.where(jnp.isfinite(y), y, 0)


def reference(case: Case, x: np.ndarray, dy: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Value and cotangent, a cell or a segment after another."""
    y = np.zeros((*case.output_shape[:-1], x.shape[-1]))
    dx = np.zeros_like(x)
    for at, part in _parts(case, x):
        if pools()[case.op].adds:
            y[at], chosen = x[part].mean(0), 1 / len(x[part])
        else:
            sign = -1 if case.op == "segment_min" else 1
            flat = sign * x[part].reshape(-1, x.shape[-1])
            y[at], first = sign * flat.max(0), flat.argmax(0)
            chosen = (np.arange(len(flat))[:, None] == first).reshape(x[part].shape)
        if dy is not None:
            dx[part] += chosen * dy[at]
    if case.op == "roi_align":
        (down, across), images = _weights(case), boxes(case)[1]
        y = np.einsum("kph,kqw,khwc->kpqc", down, across, x[images], optimize=True)
        if dy is not None:
            np.add.at(dx, images, np.einsum("kph,kqw,kpqc->khwc", down, across, dy, optimize=True))
    return y, None if dy is None else dx


def _parts(case: Case, x: np.ndarray) -> Any:
    """Where each segment, or each cell that has pixels, stands in y and in x."""
    if case.op in SEGMENTS:
        ids = segments(case)
        order = np.argsort(ids, kind="stable")
        rows = np.split(order, np.searchsorted(ids[order], np.arange(1, case.output[0])))
        yield from ((s, part) for s, part in enumerate(rows) if len(part))
    elif case.op == "roi_max_pool":
        for k, (box, image) in enumerate(zip(*boxes(case), strict=True)):
            low, high = np.floor(box.reshape(2, 2) + 0.5).astype(int)
            for cell in np.ndindex(*case.output):
                place: list[Any] = [image]
                for i, a, b, n, size in zip(
                    cell, low, high, case.output, x.shape[1:3], strict=True
                ):
                    length = max(b - a + 1, 1)
                    ends = (a + i * length // n, a - (-(i + 1) * length // n))
                    place.append(slice(*(min(max(end, 0), size) for end in ends)))
                if x[tuple(place)].size:
                    yield (k, *cell), tuple(place)


def _weights(case: Case) -> list[np.ndarray]:
    """How much each row weighs in each row of cells, (K, cells, H), and the same of columns."""
    corners, _ = boxes(case)
    found = []
    for axis, (cells, size) in enumerate(zip(case.output, case.spatial_shape, strict=True)):
        low, high = (corners[:, end + axis, None].astype(np.float64) - 0.5 for end in (0, 2))
        at = low + (np.arange(cells * SAMPLES) + 0.5) * (high - low) / (cells * SAMPLES)
        apart = np.abs(np.clip(at, 0, size - 1)[..., None] - np.arange(size))
        weight = np.maximum(1 - apart, 0) * ((at >= -1) & (at <= size))[..., None]
        found.append(weight.reshape(case.boxes, cells, SAMPLES, size).mean(2))
    return found
