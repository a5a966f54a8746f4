"""Array arguments other than the pooled arrays, drawn from the seed `draw`: key, masks, ids, boxes, indices.

With an odd seed, corners of boxes are multiples of a quarter pixel. Scales are powers of two, so that rounding cannot
change which pixel is larger or which point is outside. Maxima of samples always have odd seeds.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing import pools

KEY_IMPL = "rbg"  # the implementation of keys that compiles fastest


def draw_array_arguments(spec: Any) -> dict[str, Any]:
    """Return the arguments of a spec with its arrays. A `draw` of None means no key."""
    kwargs, pool = dict(spec.arguments), pools()[spec.function]
    seed = kwargs.pop("draw", None)
    if pool.takes("key"):
        kwargs["key"] = None if seed is None else jax.random.key(seed, impl=KEY_IMPL)
    rng = np.random.default_rng(seed)
    if pool.takes("segment_ids"):
        kwargs["segment_ids"] = _draw_ids(rng, spec.shapes[0][0], kwargs)
    if pool.takes("indices"):
        kwargs["indices"] = _draw_positions(rng, spec.shapes[0], kwargs, anywhere=seed % 2)
    if pool.takes("boxes"):
        count = kwargs["boxes"]
        kwargs["boxes"] = _draw_boxes(rng, spec.shapes[0], kwargs, exact=seed % 2)
        if len(spec.shapes[0]) == 4:
            batch = spec.shapes[0][0]
            kwargs["batch_indices"] = rng.integers(-1, batch + 1, count).astype(np.int32)
    for name in ("where", "reset"):
        if name in kwargs:
            sizes = [n if rng.integers(2) else 1 for n in spec.shapes[0]]
            kwargs[name] = rng.integers(0, 3, sizes) > (0 if name == "where" else 1)
    return kwargs


def behind_barrier(value: Any) -> Any:
    """Put an array behind a barrier, so that XLA does not fold it as a constant."""
    if isinstance(value, np.ndarray):
        return lax.optimization_barrier(jnp.asarray(value))
    if isinstance(value, jax.Array):  # a key
        words = lax.optimization_barrier(jax.random.key_data(value))
        return jax.random.wrap_key_data(words, impl=KEY_IMPL)
    return value


def _draw_ids(rng: Any, rows: int, kwargs: dict[str, Any]) -> np.ndarray:
    """Draw segment ids of the rows, some out of range."""
    ids = rng.integers(-1, kwargs["num_segments"] + 1, rows).astype(np.int32)
    return np.sort(ids) if kwargs["indices_are_sorted"] else ids


def _draw_positions(rng: Any, shape: Any, kwargs: dict[str, Any], *, anywhere: bool) -> np.ndarray:
    """Draw indices: one per element in disjoint windows, or `anywhere` with some out of range."""
    axes, sizes = kwargs["axes"], kwargs["spatial_shape"]
    if anywhere:
        return rng.integers(-1, math.prod(sizes) + 1, shape).astype(np.int32)
    flat = np.zeros(shape, np.int32)
    for axis, size in zip(axes, sizes, strict=True):
        width = size // shape[axis]
        others = [a for a in range(len(shape)) if a != axis]
        first = np.expand_dims(np.arange(shape[axis]) * width, others)
        flat = flat * size + first + rng.integers(0, width, shape)
    return flat.astype(np.int32)


def _draw_boxes(rng: Any, shape: Any, kwargs: dict[str, Any], *, exact: bool) -> np.ndarray:
    """Draw boxes of shape (K, 4): inside, across the border, without area."""
    height, width = shape[-3:-1]
    count = kwargs["boxes"]
    boxes = rng.uniform(-3, 3 + np.array([height, width] * 2), (count, 4))
    half = (count + 1) // 2
    boxes[:half] = np.sort(boxes[:half].reshape(-1, 2, 2), 1).reshape(-1, 4)
    if exact:
        boxes = np.round(boxes * 4) / 4
    return (boxes / kwargs["spatial_scale"]).astype(np.float32)
