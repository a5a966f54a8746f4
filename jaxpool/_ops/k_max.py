"""The k largest elements along an axis, in their original order: the op of `k_max_pool`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import rank, slices
from jaxpool._kernels.compare import decode
from jaxpool._kernels.dtypes import in_bytes, index_dtype
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import int32_range, scatter_sorted
from jaxpool._ops.op import Op, partitioned
from jaxpool._plan.others import compares_positions, sorts_for_top_k
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.stages import OpPlan, along


@dataclasses.dataclass(frozen=True)
class KMax(Op):
    """The `count` largest of `size` elements along `axis`, in their original order. Residual: their indices."""

    axis: int
    size: int
    count: int

    def plan(self, platform: Platform, x: Any) -> OpPlan:
        order, read = along([self.axis], "ordered"), along([self.axis], "gathered")
        if compares_positions(platform, self.count):
            return OpPlan((*order, *read), read, along([self.axis], "compared", self.count))
        return OpPlan((*order, *read), read, along([self.axis], "scattered"))

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Array]:
        def chosen(x: Array) -> Array:
            # top_k orders NaNs and zeros by their bits. Keys represent all NaNs by one value, and both zeros by one.
            keys = jnp.moveaxis(rank.keys(x), self.axis, -1)
            if sorts_for_top_k(platform, partitioned.value):
                order = jnp.argsort(jnp.bitwise_not(keys), axis=-1, stable=True)
                largest = lax.slice_in_dim(order, 0, self.count, axis=-1)
            else:
                largest = lax.top_k(in_bytes(decode(rank.values(keys, x.dtype))), self.count)[1]
            first = lax.sort(largest, dimension=-1)
            return jnp.moveaxis(first, -1, self.axis).astype(index_dtype(self.size))

        index = materialise(barrier_on(platform), chosen, x)
        return self.linear(platform, index, x), index

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        at = index.astype(np.int32)
        return jnp.take_along_axis(x_dot, at, axis=self.axis, mode="promise_in_bounds")

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        """Each element receives the cotangent of the output with its index, or 0."""
        line = slices.along(int32_range(self.size).astype(index.dtype), self.axis, dy.ndim)

        def sent(which: int) -> Array:
            at, value = (lax.slice_in_dim(x, which, which + 1, axis=self.axis) for x in (index, dy))
            return jnp.where(jnp.equal(at, line), value, np.zeros((), dy.dtype))

        # Comparisons vectorise, but the program grows with `count`.
        if compares_positions(platform, self.count):
            return (functools.reduce(lax.add, map(sent, range(self.count))),)
        return (scatter_sorted(dy, index, self.axis, self.size),)
