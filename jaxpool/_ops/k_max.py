"""The k largest elements along an axis."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import rank, slices
from jaxpool._kernels.compare import decode
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
            known = rank.values(rank.keys(x), x.dtype)  # one NaN and one zero: equal bits are equal
            last = jnp.moveaxis(decode(known), self.axis, -1)
            first = lax.sort(lax.top_k(last, self.count)[1], dimension=-1)
            return jnp.moveaxis(first, -1, self.axis).astype(index_dtype(self.size))

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
