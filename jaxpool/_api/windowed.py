"""Argument checks and masks that all windowed pools share, with and without sharding.

A pool calls `checked`, then `masked` if it has a `where` argument, and runs its op on the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._api.reduce import mask_of
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import check_choice
from jaxpool._geometry.window import Window, check_int32_positions, make_window
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.masked import fill_masked
from jaxpool._shards.split import Split, located


def checked(
    x: Any,
    window_shape: Any,
    ties: Any = "first",
    autodiff: Any = "vjp",
    *,
    any_length: bool = False,
    **geometry: Any,
) -> tuple[Array, Window, Split | None]:
    """The input of a pool as an array, the window over the whole array, and its split into shards, if any.

    With `any_length` only padded axes must have int32 positions.
    """
    x = as_array(x)

    def make(shape: Sequence[Any]) -> Window:
        return make_window(shape, window_shape, **geometry)

    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    window, split = located(x, make)
    if not any_length:
        check_int32_positions(window)
    return x, window, split


def masked(x: Array, window: Window, split: Split | None, where: Any) -> MaskedPool | None:
    """The checked mask of x and how to run a masked pool; None without a mask."""
    if where is None:
        return None
    mask = mask_of(where, x.shape)
    shape = [size if axis in window.axes else mask.shape[axis] for axis, size in enumerate(x.shape)]
    mask = jnp.broadcast_to(mask, shape)
    if split is None and is_sharded(mask):  # x is replicated
        mask = reshard(mask, NamedSharding(jax.typeof(mask).sharding.mesh, PartitionSpec()))
    return MaskedPool(mask, split)


@dataclasses.dataclass(frozen=True)
class MaskedPool:
    """A mask and the split of the array into shards. Axes of the mask that are not pooled may have size 1."""

    mask: Array
    split: Split | None

    def zeroed(self, x: Array) -> Array:
        """x with 0 where the mask is False, as sums need it."""
        return fill_masked(x, self.mask, 0)

    def run(
        self, pool: Callable[..., Array], op: Any, x: Array, *extra_args: Array, **mode: Autodiff
    ) -> Array:
        """`pool(op, x, mask, *extra_args)`, per shard if x is split; `mode` may set `autodiff`."""
        if self.split is None:
            return pool(op, x, self.mask, *extra_args, **mode)
        y: Array = self.split.apply(pool, op, x, self.mask, *extra_args, masked=True, **mode)
        return y
