"""The extreme and the mean of the rows of each segment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.compare import Ties, decode, decoded_losing, encode, level
from jaxpool._kernels.dtypes import Kind, accumulator, cast
from jaxpool._kernels.segments import held, of_rows, scattered, total
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform


@dataclasses.dataclass(frozen=True)
class SegmentSelect(Op):
    """The extreme of the rows of each of `count` segments, given the segment of each row.

    Keeps the ids and the number of the chosen row of each output; with "split" a bit an element of
    x, whether it ties, and how many do.
    """

    kind: Kind
    ties: Ties
    count: int
    is_sorted: bool

    def value(self, on: Platform, x: Array, ids: Array) -> Array:
        join = jax.ops.segment_max if self.kind == "max" else jax.ops.segment_min
        best = self._joined(join, decode(x), ids)
        some = held(ids, self.count, self.is_sorted).reshape(-1, *[1] * (x.ndim - 1)) > 0
        return encode(jnp.where(some, best, decoded_losing(x.dtype, self.kind)), x.dtype)

    def _joined(self, join: Callable[..., Array], x: Array, ids: Array) -> Array:
        return scattered(join, x, ids, self.count, self.is_sorted)

    def primal(self, on: Platform, x: Array, ids: Array) -> tuple[Array, Any]:
        y = self.value(on, x, ids)
        one = jnp.ones((self.count, *[1] * (x.ndim - 1)), bool)
        tied = level(decode(x), of_rows(decode(y), ids, 0)) & of_rows(one, ids, False)
        if self.ties == "split":
            return y, (
                ids,
                jnp.packbits(tied, axis=0),
                self._joined(jax.ops.segment_sum, tied.astype(np.int32), ids),
            )
        none = -1 if self.ties == "last" else x.shape[0]
        number = jnp.where(tied, lax.broadcasted_iota(np.int32, x.shape, 0), none)
        join = jax.ops.segment_max if self.ties == "last" else jax.ops.segment_min
        return y, (ids, self._joined(join, number, ids))

    def linear(self, on: Platform, kept: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator(x_dot.dtype))
        if self.ties == "split":
            ids, bits, ways = kept
            tied = jnp.unpackbits(bits, axis=0, count=ids.shape[0]).astype(bool)
            sums = total(
                jnp.where(tied, wide, 0), ids, self.count, self.is_sorted, one_by_one=on == "cpu"
            )
            return (sums / jnp.maximum(ways, 1).astype(wide.dtype)).astype(x_dot.dtype)
        ids, chosen = kept
        found = jnp.take_along_axis(wide, jnp.clip(chosen, 0, wide.shape[0] - 1), 0, mode="clip")
        real = (chosen >= 0) & (chosen < wide.shape[0])
        return jnp.where(real, found, 0).astype(x_dot.dtype)

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array]:
        wide = dy.astype(accumulator(dy.dtype))
        if self.ties == "split":
            ids, bits, ways = kept
            tied = jnp.unpackbits(bits, axis=0, count=ids.shape[0]).astype(bool)
            share = (wide / jnp.maximum(ways, 1).astype(wide.dtype)).astype(dy.dtype)
            return (jnp.where(tied, of_rows(share, ids, 0), 0),)
        ids, chosen = kept
        mine = of_rows(chosen, ids, -1)
        number = lax.broadcasted_iota(np.int32, mine.shape, 0)
        return (jnp.where(mine == number, of_rows(dy, ids, 0), 0),)


@dataclasses.dataclass(frozen=True)
class SegmentMean(Op):
    """The mean of the rows of each of `count` segments, 0 without rows; given the segment of each row."""

    count: int
    is_sorted: bool

    linear_in_x = True

    def _held(self, ids: Array, like: Array) -> Array:
        """How many rows each segment has, at least 1."""
        rows = jnp.maximum(held(ids, self.count, self.is_sorted), 1).astype(like.dtype)
        return rows.reshape(-1, *[1] * (like.ndim - 1))

    def linear(self, on: Platform, given: tuple[Array], x: Array) -> Array:
        wide = cast(x, accumulator(x.dtype))
        sums = total(wide, given[0], self.count, self.is_sorted, one_by_one=on == "cpu")
        return (sums / self._held(given[0], wide)).astype(x.dtype)

    def transpose(self, on: Platform, given: tuple[Array], dy: Array) -> tuple[Array]:
        wide = cast(dy, accumulator(dy.dtype))
        share = (wide / self._held(given[0], wide)).astype(dy.dtype)
        return (of_rows(share, given[0], 0),)
