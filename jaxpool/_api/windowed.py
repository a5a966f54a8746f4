"""The way of a windowed pool from its arguments to its op.

`check_input` checks x and the arguments that determine the windows. If the type of x has a sharding, each shard gets
its own windows, and `PoolInput.apply` runs the op on each shard (`_shards`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, as_array, as_broadcast_mask
from jaxpool._arguments.sharding import sharding_from_type
from jaxpool._arguments.sizes import Size, check_choice
from jaxpool._geometry.window import Window, WindowArguments, check_int32_positions
from jaxpool._kernels.dtypes import Ties
from jaxpool._kernels.slices import reshard_like
from jaxpool._ops.apply import Autodiff
from jaxpool._shards.halo import ShardedWindows, pool_with_halo
from jaxpool._shards.split import R, on_shards, run_on_shards, split_windows


@dataclasses.dataclass(frozen=True, eq=False)
class PoolInput:
    """The array x of a windowed pool and its window, and if the type of x is sharded, the windows of its shards.

    Inside a `shard_map`, x is one shard, and `window` is over the global array.
    """

    x: Array
    window: Window
    shards: ShardedWindows | None

    @property
    def output_shape(self) -> tuple[Size, ...]:
        """The output shape of the pool; inside a `shard_map`, for one shard."""
        is_shard = self.shards is not None and self.shards.sharding.is_manual
        window = self.shards.extended_window if self.shards and is_shard else self.window
        return window.pooled_shape(self.x.shape)

    def checked_mask(self, where: MaskArgument) -> Array | None:
        """`where` as a mask with the rank of x, or None. The mask may have size 1 along axes that are not pooled."""
        if where is None:
            return None
        x, window = self.x, self.window
        mask = as_broadcast_mask(where, x.shape, output_shape=self.output_shape)
        pairs = enumerate(zip(x.shape, mask.shape, strict=True))
        shape = [x_size if axis in window.axes else size for axis, (x_size, size) in pairs]
        return reshard_like(jnp.broadcast_to(mask, shape), x)

    def run(
        self,
        pool: Callable[..., R],
        pool_of_shard: Callable[..., R],
        x: Array,
        *settings: object,
        **kwargs: Any,
    ) -> R:
        """Call `pool(window, *settings, x)`, or `pool_of_shard(windows, *settings, x)` on each shard of a sharded x."""
        if self.shards is None:
            return pool(self.window, *settings, x, **kwargs)
        return run_on_shards(pool_of_shard, self.shards, x, *settings, **kwargs)

    def apply(
        self,
        pool: Callable[..., Array],
        op: object,
        x: Array,
        *operands: Array,
        mask: Array | None = None,
        **kwargs: Any,
    ) -> Array:
        """Call `pool(op, x, *operands)`, or `pool(op, x, mask, *operands)`, on x or on each shard of a sharded x.

        `op` has an attribute `window`. `operands` broadcast against x. `kwargs` may set `autodiff`.
        """
        masks = () if mask is None else (mask,)
        if self.shards is None:
            return pool(op, x, *masks, *[reshard_like(y, x) for y in operands], **kwargs)
        settings = self.shards, pool, op, mask is not None
        return on_shards(
            pool_with_halo, self.shards.sharding, x, *masks, *operands, settings=settings, **kwargs
        )


def check_input(
    x: ArrayArgument,
    arguments: WindowArguments,
    *,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
    allow_long_axes: bool = False,
) -> PoolInput:
    """Check the arguments of a windowed pool. Raises `ArgumentError`.

    Positions along pooled axes must fit in int32; with `allow_long_axes` and ties that are not split, only positions
    along padded axes must.
    """
    x = as_array(x)
    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    shards, sharding = None, sharding_from_type(x)
    if sharding is None:
        window = arguments.window_over(x.shape)
    else:
        shards = split_windows(sharding, x.shape, arguments.window_over)
        window = shards.window
    if not allow_long_axes or ties == "split":
        check_int32_positions(window)
    return PoolInput(x, window, shards)
