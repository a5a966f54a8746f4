"""Random boxes of images, and jax.numpy code that pools them: the baseline of `roi_align` and `roi_max_pool`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SAMPLES = 2  # points along each axis of a cell
Op = Callable[..., Any]


def boxes(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random boxes (K, 4) on images (B, H, W, C), some across the border, and the image of each box."""
    rng = np.random.default_rng(2)
    size = np.asarray(shape[1:3])
    centre = rng.uniform(0, size, (count, 2))
    half = rng.uniform(0.04 * size, 0.36 * size, (count, 2))
    corners = np.concatenate([centre - half, centre + half], 1).astype(np.float32)
    return corners, rng.integers(0, shape[0], count, np.int32)


def averaged(where: Any, images: Any, cells: tuple[int, ...]) -> Op:
    """`roi_align` by indexing: means of interpolated points."""
    each = functools.partial(_align, cells)
    return lambda x: jax.vmap(lambda box, image: each(x[image], box))(where, images)


def largest(where: Any, images: Any, cells: tuple[int, ...]) -> Op:
    """`roi_max_pool` by masks: the maximum of the pixels in each cell."""
    each = functools.partial(_largest, cells)
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
