"""Adaptive pools of arrays that are sharded along pooled axes.

Window i of n over a length L begins at `floor(i * L / n)`. With s shards, where s divides n, the first window of shard
j is i = j * n / s. This window begins at `j * L / s`, the first row of shard j, so shards need no communication. If all
output sizes are 1, the adaptive pool is a reduction over whole axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array, lax

from jaxpool._arguments.sharding import ArraySharding, check_divisible
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import AdaptiveWindow
from jaxpool._kernels.dtypes import TieOrder, Ties
from jaxpool._kernels.slices import unravel_index
from jaxpool._ops.adaptive_pool import AdaptiveKind, adaptive_pool
from jaxpool._ops.apply import Autodiff
from jaxpool._shards.split import on_shards
from jaxpool._shards.whole import reduce_sharded


def _pool_shard(
    kind: AdaptiveKind,
    window: AdaptiveWindow,
    sharding: ArraySharding,
    ties: Ties | TieOrder,
    x: Array,
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive pool of x, one shard of the global array that `window` describes."""
    outs = tuple(dim.out // sharding.num_shards(dim.axis) for dim in window.dims)
    local_window = adaptive_window(x.shape, outs, window.axes)
    result = adaptive_pool(kind, local_window, ties, x, autodiff)
    if kind != "argmax":
        return result
    y, position = result
    # Convert a flat position in the shard to a flat position in the global array.
    global_position = lax.full_like(position, 0)
    coordinates = unravel_index(position, local_window.input_shape)
    for dim, coordinate in zip(window.dims, coordinates, strict=True):
        if mesh_axes := sharding.mesh_axes[dim.axis]:
            size = dim.size // sharding.num_shards(dim.axis)
            coordinate = coordinate + lax.axis_index(mesh_axes) * np.int32(size)
        global_position = global_position * np.int32(dim.size) + coordinate
    return y, global_position


def adaptive_pool_of_shards(
    kind: AdaptiveKind,
    sharding: ArraySharding,
    x: Array,
    window: AdaptiveWindow,
    ties: Ties | TieOrder = "first",
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive max, mean or argmax pool of a sharded x; `window` is over the global array.

    Raises `ArgumentError` if the shards of the output would differ in size.
    """
    if kind != "argmax" and ties != "last_nan" and set(window.output_shape) == {1}:
        return reduce_sharded(kind, sharding, x, window.axes, ties=ties, autodiff=autodiff)
    suffix = "" if kind == "argmax" else ", or 1 along every axis"
    for dim in window.dims:
        check_divisible(sharding, dim.axis, dim.out, "output_shape", window.output_shape, suffix)
    settings = kind, window, sharding, ties
    return on_shards(_pool_shard, sharding, x, settings=settings, autodiff=autodiff)
