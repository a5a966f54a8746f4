"""Argument checks and masks that all windowed pools share, with and without sharding.

A pool calls `checked_array_and_windows`, then `checked_window_mask` if it has a `where` argument, and runs its op
through the returned `ShardedPool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._api.reduce import as_broadcast_mask
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import check_choice
from jaxpool._geometry.window import Window, check_int32_positions, make_window
from jaxpool._kernels.slices import is_sharded
from jaxpool._shards.split import ShardedPool, shard_pool_by_type


def checked_array_and_windows(
    x: Any,
    window_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    window_dilation: Any = None,
    ceil_mode: Any = False,
    axes: Any = None,
    *,
    ties: Any = "first",
    autodiff: Any = "vjp",
    allow_long_axes: bool = False,
) -> tuple[Array, ShardedPool]:
    """Return x as an array, and the windows of the pool with the sharding of x.

    Positions along pooled axes must fit in int32; with `allow_long_axes`, only positions along padded axes must.
    """
    x = as_array(x)

    def make_window_of_shape(shape: Sequence[Any]) -> Window:
        return make_window(
            shape,
            window_shape,
            strides,
            padding,
            window_dilation=window_dilation,
            ceil_mode=ceil_mode,
            axes=axes,
        )

    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    windows = shard_pool_by_type(x, make_window_of_shape)
    if not allow_long_axes:
        check_int32_positions(windows.window)
    return x, windows


def checked_window_mask(x: Array, sharded_windows: ShardedPool, where: Any) -> Array | None:
    """`where` as a mask with the rank of x, or None. The mask may have size 1 along axes that are not pooled."""
    if where is None:
        return None
    mask = as_broadcast_mask(where, x.shape)
    pooled_axes = sharded_windows.window.axes
    shape = [size if axis in pooled_axes else mask.shape[axis] for axis, size in enumerate(x.shape)]
    mask = jnp.broadcast_to(mask, shape)
    if sharded_windows.sharding is None and is_sharded(mask):  # x is replicated
        mask = reshard(mask, NamedSharding(jax.typeof(mask).sharding.mesh, PartitionSpec()))
    return mask
