"""A call of every public function on an array of images, for tests of plans and of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import numpy as jnp

import jaxpool
from jaxpool.testing import Pool, pools

SHAPE = (8, 64, 64, 64)
SAME = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME"}
LONG = {"window_shape": (13, 13)}


def _boxes() -> dict[str, Any]:
    """Arguments of a box pool: 64 boxes across an image of `SHAPE`, the image of each, and the output shape."""
    corners = jnp.arange(128, dtype=jnp.float32).reshape(64, 2) % 40
    boxes = jnp.concatenate([corners, corners + 24], 1)
    return {"boxes": boxes, "batch_indices": jnp.arange(64) % SHAPE[0], "output_shape": (7, 7)}


def _settings(pool: Pool, x: jax.Array) -> dict[str, Any]:
    """Arguments that replace the usual arguments of a record."""
    if pool.takes("boxes"):
        return _boxes()
    if pool.takes("window_shape", "output_shape"):
        return {"output_shape": (40, 40)}
    settings = {"output_shape": (5, 7), "levels": (1, 2, 4), "k": 8, "groups": 4, "axis": 1}
    if pool.takes("key") or pool.takes("blur_shape"):
        return {"strides": (2, 2)}
    ids = jnp.arange(x.shape[0] * x.shape[1]) * 7 % 99  # one id per image row
    segments = {"segment_ids": ids, "num_segments": 99}
    return SAME | settings | segments | {"kernel": jnp.ones((3, 3))}


def _of(pool: Pool, **more: Any) -> Callable[[jax.Array], Any]:
    if pool.takes("indices"):  # positions computed by the program
        return _unpooled
    return lambda x: pool.run(pool.given(x, **_settings(pool, x) | more))


def _unpooled(x: jax.Array) -> jax.Array:
    y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
    return jaxpool.max_unpool(y, indices, x.shape[1:3])


def _calls() -> Iterator[tuple[str, Callable[[jax.Array], Any]]]:
    for name, pool in pools().items():
        yield name, _of(pool)
        if pool.takes("window_shape", "autodiff"):
            yield f"{name} stride 2", _of(pool, strides=(2, 2))
        if pool.takes("window_shape", "ceil_mode") and pool.topic != "rank":
            yield f"{name} 13x13", _of(pool, **LONG)
        if "split" in pool.ties:
            yield f"{name}, ties split", _of(pool, ties="split")
    yield "max_pool 13x13, ties split", _of(pools()["max_pool"], **LONG, ties="split")
    yield "max_pool, jvp", lambda x: jaxpool.max_pool(x, **SAME, autodiff="jvp")


OPS = dict(_calls())
