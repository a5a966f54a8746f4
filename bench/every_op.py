"""Each public function on an array of images, value and gradient: that a device's compiler takes it, and how long."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp

import jaxpool

SHAPE = (8, 64, 64, 64)
_SAME = {"window_shape": (3, 3), "padding": "SAME"}
_LONG = {"window_shape": (13, 13), "padding": "SAME"}
_HALVES = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}


def _unpooled(x: jax.Array) -> jax.Array:
    y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
    return jaxpool.max_unpool(y, indices, x.shape[1:3])


def _of(name: str, *arguments: Any, **options: Any) -> Callable[[jax.Array], Any]:
    return lambda x: getattr(jaxpool, name)(x, *arguments, **options)


def _drawn(name: str, *arguments: Any) -> Callable[[jax.Array], Any]:
    return lambda x: getattr(jaxpool, name)(jax.random.key(0), x, *arguments)


def _two(name: str) -> Callable[[jax.Array], Any]:
    return lambda x: getattr(jaxpool, name)(x, x[::-1])


def _boxes(count: int = 64) -> jax.Array:
    """Boxes all over an image of `SHAPE`, with their images."""
    corners = jnp.arange(2 * count, dtype=jnp.float32).reshape(count, 2) % 40
    return jnp.concatenate([corners, corners + 24], 1)


def _region(name: str, **options: Any) -> Callable[[jax.Array], Any]:
    images = {"batch_indices": jnp.arange(64) % SHAPE[0]}
    return lambda x: getattr(jaxpool, name)(x, _boxes(), 7, **images, **options)


def _segment(name: str) -> Callable[[jax.Array], Any]:
    return lambda x: getattr(jaxpool, name)(x.reshape(-1, 64), jnp.arange(32768) * 7 % 999, 999)


OPS: dict[str, Callable[[jax.Array], Any]] = {
    **{
        f"{name} 3x3": _of(name, **_SAME)
        for name in ("max_pool", "min_pool", "avg_pool", "sum_pool")
    },
    **{f"{name} 3x3 stride 2": _of(name, **_HALVES) for name in ("max_pool", "avg_pool")},
    **{f"{name} 13x13": _of(name, **_LONG) for name in ("max_pool", "avg_pool", "logsumexp_pool")},
    "max_pool 3x3, ties split": _of("max_pool", **_SAME, ties="split"),
    "max_pool 13x13, ties split": _of("max_pool", **_LONG, ties="split"),
    "max_pool 3x3, jvp": _of("max_pool", **_SAME, autodiff="jvp"),
    "max_pool_with_argmax, max_unpool": _unpooled,
    "lp_pool": _of("lp_pool", 3, **_SAME),
    "gem_pool": _of("gem_pool", 3.0, **_SAME),
    "logsumexp_pool": _of("logsumexp_pool", **_SAME),
    "softmax_pool": _of("softmax_pool", **_SAME),
    "median_pool": _of("median_pool", **_SAME),
    "rank_pool": _of("rank_pool", 1, **_SAME),
    "k_max_pool": _of("k_max_pool", 8, axis=1),
    **{name: _of(name, jnp.ones((3, 3)), padding="SAME") for name in ("dilate", "erode")},
    "blur_pool": _of("blur_pool", (3, 3), (2, 2)),
    "max_blur_pool": _of("max_blur_pool", (2, 2), (3, 3), (2, 2)),
    "fractional_avg_pool": _drawn("fractional_avg_pool", (2, 2), (40, 40)),
    "fractional_max_pool": _drawn("fractional_max_pool", (2, 2), (40, 40)),
    "stochastic_pool": _drawn("stochastic_pool", (2, 2), (2, 2)),
    "adaptive_max_pool": _of("adaptive_max_pool", (5, 7)),
    "adaptive_max_pool_with_argmax": _of("adaptive_max_pool_with_argmax", (5, 7)),
    "adaptive_avg_pool": _of("adaptive_avg_pool", (5, 7)),
    "global_max_pool": _of("global_max_pool"),
    "global_avg_pool": _of("global_avg_pool"),
    "spatial_pyramid_pool": _of("spatial_pyramid_pool", (1, 2, 4)),
    **{name: _two(name) for name in ("maximum", "minimum", "fmax", "fmin")},
    **{name: _of(name, axis=(1, 2)) for name in ("max", "min")},
    **{name: _of(name, axis=1) for name in ("cummax", "cummin")},
    "maxout": _of("maxout", 4),
    "roi_align": _region("roi_align"),
    "roi_max_pool": _region("roi_max_pool"),
    "roi_max_pool, ties split": _region("roi_max_pool", ties="split"),
    **{name: _segment(name) for name in ("segment_max", "segment_min", "segment_mean")},
}


def value_and_gradient(op: Callable[[jax.Array], Any], x: jax.Array, dy: jax.Array) -> Any:
    """What an op gives, and the gradient of a cotangent that is the number dy everywhere."""

    def first(x: jax.Array) -> tuple[jax.Array, Any]:
        y, *others = jax.tree.leaves(op(x))
        return y, others

    y, back, others = jax.vjp(first, x, has_aux=True)
    return y, others, back(jnp.broadcast_to(dy.astype(y.dtype), y.shape))[0]


def functions() -> dict[str, Callable[[jax.Array, jax.Array], Any]]:
    """The function of each op, of an array of `SHAPE` and a number."""
    return {name: functools.partial(value_and_gradient, op) for name, op in OPS.items()}
