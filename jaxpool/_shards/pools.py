"""Windowed pools of one shard, for `on_shards`: they fetch rows of the neighbours, then run the op of one device.

Each class is a frozen dataclass, so that equal pools are traced once. If no window crosses an end of a shard (`strips`
is empty), nothing is fetched.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import dtypes
from jaxpool._kernels.compare import Order, Ties
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.positions import flat_position, window_starts
from jaxpool._kernels.slices import outer
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Op
from jaxpool._ops.power_pool import norm
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.halo import Shards
from jaxpool._shards.ops import select_pool, sum_pool
from jaxpool._shards.split import by_window


@dataclasses.dataclass(frozen=True)
class Select:
    """A max or min pool."""

    shards: Shards
    kind: Kind
    ties: Ties | Order

    def __call__(self, x: Array) -> Array:
        if self.shards.strips == ():
            return apply(pool_op(self.shards.inside, self.kind, self.ties), "jvp", x)
        return select_pool(self.shards, x, self.kind, self.ties)[0]


@dataclasses.dataclass(frozen=True)
class Argmax:
    """A max pool and the position of each maximum in the global array."""

    shards: Shards
    ties: Ties | Order

    def __call__(self, x: Array) -> tuple[Array, Array]:
        if self.ties == "split":
            y = select_pool(self.shards, x, "max", "split")[0]
            index = select_pool(self.shards, lax.stop_gradient(x), "max", "first")[1]
        else:
            y, index = select_pool(self.shards, x, "max", self.ties)
        window, starts = self.shards.window, []
        for dim in window.dims:
            halo = self.shards.halo(dim)
            first = halo.window_starts() if halo else window_starts(dim)
            starts.append(outer(jnp.add, [first], [dim.axis], x.ndim))
        return y, flat_position(index, window, starts, window.input_shape)


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum or average pool."""

    shards: Shards
    divide: Literal["not", "counted", "real"] | float = "not"

    def __call__(self, x: Array) -> Array:
        if self.shards.strips == ():
            x = x if self.divide == "not" else dtypes.as_float(x)
            return apply(SumPool(self.shards.inside, self.divide), "jvp", x)
        return sum_pool(self.shards, x, self.divide)


@dataclasses.dataclass(frozen=True)
class Norm:
    """An Lp pool."""

    shards: Shards
    p: float

    def __call__(self, x: Array) -> Array:
        x = dtypes.as_float(self.shards.extended(x, 0))
        y: Array = norm(self.shards.local, self.p, x)
        return y


def windowed(op: Op, x: Array) -> Array:
    """`apply(op, "jvp", x)`, on the shards of x if its type is sharded along pooled axes.

    Raises `ArgumentError` if shards would differ in size.
    """
    if isinstance(op, (SelectPool, SumPool)):
        split = by_window(x, op.window)
        if split and split.shards.halos:
            pool = (Sum, op.divide) if isinstance(op, SumPool) else (Select, op.kind, op.ties)
            y: Array = split.run(pool[0], x, *pool[1:])
            return y
    return apply(op, "jvp", x)
