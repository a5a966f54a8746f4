"""The k largest elements along an axis."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import rank, slices
from jaxpool._kernels.dtypes import index_dtype
from jaxpool._kernels.keep import keep
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform, keep_on


@dataclasses.dataclass(frozen=True)
class KMax(Op):
    """The `count` largest of `size` elements along `axis`, in their order; keeps where each stands."""

    axis: int
    size: int
    count: int

    def primal(self, on: Platform, x: Array) -> tuple[Array, Array]:
        def chosen(x: Array) -> Array:
            # The greatest first, whatever the type, and ties as they stand.
            falling = lax.bitwise_not(rank.keys(x))
            line = slices.along(np.arange(self.size, dtype=np.int32), self.axis, x.ndim)
            at = slices.broadcast_like(line, x)
            order = lax.sort((falling, at), dimension=self.axis, num_keys=1, is_stable=True)[1]
            first = lax.slice_in_dim(order, 0, self.count, axis=self.axis)
            return lax.sort(first, dimension=self.axis).astype(index_dtype(self.size))

        index = keep(keep_on(on), chosen, x)
        return self.linear(on, index, x), index

    def linear(self, on: Platform, index: Array, x_dot: Array) -> Array:
        at = index.astype(np.int32)
        return jnp.take_along_axis(x_dot, at, axis=self.axis, mode="promise_in_bounds")

    def transpose(self, on: Platform, index: Array, dy: Array) -> tuple[Array]:
        """Of each element, the one output that has its index, if any: a sum of at most one term."""
        at, value = (lax.expand_dims(each, (self.axis,)) for each in (index, dy))
        line = slices.along(np.arange(self.size), self.axis, dy.ndim + 1).astype(index.dtype)
        won = jnp.equal(at, line)
        terms = jnp.where(won, value, np.zeros((), dy.dtype))
        return (jnp.sum(terms, axis=self.axis + 1, dtype=dy.dtype),)
