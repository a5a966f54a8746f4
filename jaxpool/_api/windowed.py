"""Argument checks and masks that all windowed pools share, with and without sharding.

A pool calls `checked_array_and_windows`, then `checked_window_mask` if it has a `where` argument, and runs its op by
the `ShardedPool`.
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
    """The input of a pool as an array, and its windows with the sharding of the array.

    With `allow_long_axes` only padded axes must have int32 positions.
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
    """The checked mask of x with the rank of x; None without a mask. Axes that are not pooled may have size 1."""
    if where is None:
        return None
    mask = as_broadcast_mask(where, x.shape)
    pooled_axes = sharded_windows.window.axes
    shape = [size if axis in pooled_axes else mask.shape[axis] for axis, size in enumerate(x.shape)]
    mask = jnp.broadcast_to(mask, shape)
    if sharded_windows.sharding is None and is_sharded(mask):  # x is replicated
        mask = reshard(mask, NamedSharding(jax.typeof(mask).sharding.mesh, PartitionSpec()))
    return mask
