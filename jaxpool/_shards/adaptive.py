"""Adaptive pools of arrays that may be sharded along pooled axes.

Window i of n over a length L begins at `floor(i * L / n)`. With s shards, where s divides n, the first window of shard
j is i = j * n / s. This window begins at `j * L / s`, the first row of shard j, so shards need no communication. If all
output sizes are 1, the adaptive pool is a reduction over whole axes.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jax import Array, lax

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Ties
from jaxpool._kernels.positions import input_position_of_tap
from jaxpool._kernels.slices import unravel_index
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._shards.split import ArraySharding, check_divisible, on_shards
from jaxpool._shards.whole import reduce_whole_axes

Kind = Literal["max", "mean", "argmax"]


def _pool_shard(
    kind: Kind,
    window: Window,
    sharding: ArraySharding | None,
    ties: Ties,
    x: Array,
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive pool of x, which is the global array that `window` describes, or one shard of the array."""
    global_window = window
    if sharding is not None:
        outs = tuple(dim.out // sharding.num_shards(dim.axis) for dim in window.dims)
        window = adaptive_window(x.shape, outs, window.axes)
    if kind == "mean":
        return apply(adaptive_avg_op(window), dtypes.as_float(x), autodiff=autodiff)
    if kind == "max":
        return apply(adaptive_max_op(window, ties), x, autodiff=autodiff)
    op = adaptive_max_op(window, "first" if ties == "split" else ties, saves_index=True)
    if ties == "split":
        y = apply(adaptive_max_op(window, ties), x, autodiff=autodiff)
        _, tap = apply_with_residual(op, lax.stop_gradient(x), autodiff=autodiff)
    else:
        y, tap = apply_with_residual(op, x, autodiff=autodiff)
    position = input_position_of_tap(tap, window)
    if sharding is None:
        return y, position
    # Convert a flat position in the shard to a flat position in the global array.
    global_position, coordinates = (
        lax.full_like(position, 0),
        unravel_index(position, window.input_shape),
    )
    for dim, coordinate in zip(global_window.dims, coordinates, strict=True):
        if mesh_axes := sharding.mesh_axes[dim.axis]:
            size = dim.size // sharding.num_shards(dim.axis)
            coordinate = coordinate + lax.axis_index(mesh_axes) * np.int32(size)
        global_position = global_position * np.int32(dim.size) + coordinate
    return y, global_position


def adaptive_pool(
    kind: Kind,
    sharding: ArraySharding | None,
    x: Array,
    window: Window,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive max, mean or argmax pool of x, which may be sharded; `window` is over the global array.

    Raises `ArgumentError` if the shards of the output would differ in size.
    """
    settings = kind, window, sharding, ties
    if sharding and kind != "argmax" and set(window.output_shape) == {1}:
        return reduce_whole_axes(kind, sharding, x, window.axes, ties=ties, autodiff=autodiff)
    suffix = "" if kind == "argmax" else ", or 1 along every axis"
    for dim in window.dims:
        check_divisible(sharding, dim.axis, dim.out, "output_shape", window.output_shape, suffix)
    return on_shards(_pool_shard, sharding, x, settings=settings, autodiff=autodiff)
