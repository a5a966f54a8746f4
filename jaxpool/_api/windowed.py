"""What all windowed pools share: their arguments, checked, on one device and on several."""

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
from jaxpool._arguments.choices import choice
from jaxpool._geometry.window import Window, check_reach, make_window
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.masked import counting
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
    """The input of a pool, the window over all of it, and how it is split, if its type says that it is.

    A pool of axes of `any_length` needs positions in padding alone.
    """
    x = as_array(x)

    def make(shape: Sequence[Any]) -> Window:
        return make_window(shape, window_shape, **geometry)

    choice("ties", ties, ("first", "last", "split"))
    choice("autodiff", autodiff, ("vjp", "jvp"))
    window, split = located(x, make)
    if not any_length:
        check_reach(window)
    return x, window, split


def masked(x: Array, window: Window, split: Split | None, where: Any) -> MaskedPool | None:
    """The checked mask of x and how to run a pool of what it counts; None where there is no mask."""
    if where is None:
        return None
    mask = mask_of(where, x.shape)
    shape = [size if axis in window.axes else mask.shape[axis] for axis, size in enumerate(x.shape)]
    mask = jnp.broadcast_to(mask, shape)
    if split is None and is_sharded(mask):  # beside an x that every device has whole
        mask = reshard(mask, NamedSharding(jax.typeof(mask).sharding.mesh, PartitionSpec()))
    return MaskedPool(mask, split)


@dataclasses.dataclass(frozen=True)
class MaskedPool:
    """Which elements of an array count, and how the array is split. Axes that are not pooled may be of size 1."""

    mask: Array
    split: Split | None

    def zeroed(self, x: Array) -> Array:
        """x, 0 where it does not count: all that a sum needs."""
        return counting(x, self.mask, 0)

    def run(
        self, pool: Callable[..., Array], op: Any, x: Array, *given: Array, **mode: Autodiff
    ) -> Array:
        """`pool(op, x, mask, *given)`, on the shards of x if it has some; `mode` is `autodiff`, or nothing."""
        if self.split is None:
            return pool(op, x, self.mask, *given, **mode)
        y: Array = self.split.apply(pool, op, x, self.mask, *given, masked=True, **mode)
        return y
