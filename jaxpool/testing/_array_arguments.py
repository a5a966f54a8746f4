"""Array arguments of drawn calls other than the pooled arrays: key, masks, segment ids, boxes, indices.

An outline (see `_strategies.py`) has a `seed` in place of these arrays. With an odd seed, corners of boxes are
multiples of a quarter pixel. Scales are powers of two, so that rounding cannot change which pixel is larger or which
point is outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxpool.testing._record import Pool

KEY_IMPL = "rbg"  # the implementation of keys that compiles fastest


def with_array_arguments(pool: Pool, shape: Any, outline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an outline for an array of `shape`, with arrays in place of `seed`; None is no key."""
    arguments = dict(outline)
    seed = arguments.pop("seed", None)
    if pool.takes("key"):
        arguments["key"] = None if seed is None else jax.random.key(seed, impl=KEY_IMPL)
    rng = np.random.default_rng(seed)
    if pool.takes("segment_ids"):
        arguments["segment_ids"] = _draw_ids(rng, shape[0], arguments)
    if pool.takes("indices"):
        arguments["indices"] = _draw_indices(rng, shape, arguments, anywhere=seed % 2)
    if pool.takes("boxes"):
        count = arguments["boxes"]
        arguments["boxes"] = _draw_boxes(rng, shape, arguments, exact=seed % 2)
        if len(shape) == 4:
            arguments["batch_indices"] = rng.integers(-1, shape[0] + 1, count).astype(np.int32)
    for name in ("where", "reset"):
        if name in arguments:
            sizes = [n if rng.integers(2) else 1 for n in shape]
            arguments[name] = rng.integers(0, 3, sizes) > (0 if name == "where" else 1)
    return arguments


def _draw_ids(rng: Any, rows: int, arguments: dict[str, Any]) -> np.ndarray:
    """Segment ids of the rows, some out of range."""
    ids = rng.integers(-1, arguments["num_segments"] + 1, rows).astype(np.int32)
    return np.sort(ids) if arguments["indices_are_sorted"] else ids


def _draw_indices(rng: Any, shape: Any, arguments: dict[str, Any], *, anywhere: bool) -> np.ndarray:
    """One index per element in disjoint windows, or `anywhere` with some out of range."""
    axes, sizes = arguments["axes"], arguments["spatial_shape"]
    if anywhere:
        return rng.integers(-1, math.prod(sizes) + 1, shape).astype(np.int32)
    flat = np.zeros(shape, np.int32)
    for axis, size in zip(axes, sizes, strict=True):
        width = size // shape[axis]
        others = [a for a in range(len(shape)) if a != axis]
        first = np.expand_dims(np.arange(shape[axis]) * width, others)
        flat = flat * size + first + rng.integers(0, width, shape)
    return flat.astype(np.int32)


def _draw_boxes(rng: Any, shape: Any, arguments: dict[str, Any], *, exact: bool) -> np.ndarray:
    """Boxes of shape (K, 4): inside, across the border, without area."""
    height, width = shape[-3:-1]
    count = arguments["boxes"]
    boxes = rng.uniform(-3, 3 + np.array([height, width] * 2), (count, 4))
    half = (count + 1) // 2
    boxes[:half] = np.sort(boxes[:half].reshape(-1, 2, 2), 1).reshape(-1, 4)
    if exact:
        boxes = np.round(boxes * 4) / 4
    return (boxes / arguments["spatial_scale"]).astype(np.float32)
