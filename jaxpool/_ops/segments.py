"""Maximum, minimum, sum and mean of the rows of each segment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.bits import pack, unpack
from jaxpool._kernels.compare import Ties, decode, decoded_identity_of, encode
from jaxpool._kernels.dtypes import Kind, accumulator, cast, is_float
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import checked_position, put_in_order
from jaxpool._kernels.segments import (
    gather_rows,
    masked,
    of_rows,
    scattered,
    stored_rows,
    total,
)
from jaxpool._kernels.split_ties import shared
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.scatter import sends_to_chosen_rows
from jaxpool._plan.segments import counts_ties_if_any
from jaxpool._plan.tuning import tuning


@dataclasses.dataclass(frozen=True)
class SegmentSelect(Op):
    """The maximum or minimum of the rows of each of `count` segments, for ids and an optional mask.

    The residual is the ids and the row number of each output element; with "split" the ids, one bit per element
    of x that is set for ties, and the number of ties.
    """

    kind: Kind
    ties: Ties
    count: int
    is_sorted: bool

    stores_inputs = True

    def _joined(self, join: Callable[..., Array], x: Array, ids: Array) -> Array:
        return scattered(join, x, ids, self.count, self.is_sorted)

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        return encode(self._decoded(x, ids, *mask), x.dtype)

    def _decoded(self, x: Array, ids: Array, *mask: Array) -> Array:
        """The maxima or minima, in the dtype of comparisons."""
        largest = self.kind == "max"
        worst = decoded_identity_of(x.dtype, self.kind)
        wide = masked(decode(x), worst, *mask)
        y = self._joined(jax.ops.segment_max if largest else jax.ops.segment_min, wide, ids)
        # `jax.ops` returns an infinity for an empty segment, also where the dtype of x has none.
        identity = lax.full_like(y, worst)
        return (lax.max if largest else lax.min)(y, identity)

    def _tied(
        self, platform: Platform, x: Array, decoded: Array, ids: Array, *mask: Array
    ) -> Array:
        """Mask of the elements of x that attain the extremum of their segment; arbitrary for rows in no segment."""
        casts = tuning(platform).cast_to_compare and x.dtype == jnp.bfloat16
        wide = x.astype(np.float32) if casts else decode(x)
        tied = lax.eq(wide, gather_rows(decoded, ids))
        # A scatter propagates NaN, so a NaN that takes part is the extremum.
        if is_float(wide.dtype):
            tied = tied | lax.ne(wide, wide)
        return tied & mask[0] if mask else tied

    def primal(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> tuple[Array, Any]:
        decoded = self._decoded(x, ids, *mask)
        y = encode(decoded, x.dtype)
        if self.ties == "split":
            kernel = functools.partial(self._tie_bits, platform)
            bits = materialise(barrier_on(platform), kernel, x, decoded, ids, *mask)
            return y, (ids, bits, self._ways(platform, x, decoded, bits, ids))
        none = -1 if self.ties == "last" else x.shape[0]
        tied = self._tied(platform, x, decoded, ids, *mask)
        number = jnp.where(tied, lax.broadcasted_iota(np.int32, x.shape, 0), none)
        join = jax.ops.segment_max if self.ties == "last" else jax.ops.segment_min
        return y, (ids, self._joined(join, number, ids))

    def _tie_bits(
        self, platform: Platform, x: Array, decoded: Array, ids: Array, *mask: Array
    ) -> Array:
        known = lax.expand_dims((ids >= 0) & (ids < self.count), range(1, x.ndim))
        return pack(self._tied(platform, x, decoded, ids, *mask) & known, 0)

    def _ways(self, platform: Platform, x: Array, decoded: Array, bits: Array, ids: Array) -> Array:
        """The number of tied rows of each segment.

        A segment with rows has at least one bit, and a segment whose extremum is not the identity has rows. If there
        are as many bits as such segments, no rows tie.
        """

        def counted(bits: Array, ids: Array) -> Array:
            tied = unpack(bits, ids.shape[0], 0)
            return self._joined(jax.ops.segment_sum, tied.astype(np.int32), ids)

        def ones(bits: Array, ids: Array) -> Array:
            return lax.full_like(decoded, 1, np.int32)

        if not counts_ties_if_any(platform, x.shape):
            return counted(bits, ids)
        total = jnp.sum(lax.population_count(bits), dtype=np.uint32)
        attained = lax.ne(decoded, lax.full_like(decoded, decoded_identity_of(x.dtype, self.kind)))
        return lax.cond(total == jnp.sum(attained, dtype=np.uint32), ones, counted, bits, ids)

    def _sends_to_chosen(self, platform: Platform, like: Any, rows: Any) -> bool:
        known = problem_of(Window(()), like, platform)
        return sends_to_chosen_rows(platform, (rows, *known.shape[1:]), self.count, known.sharded)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator(x_dot.dtype))
        if self.ties == "split":
            ids, bits, ways = residual
            tied = unpack(bits, ids.shape[0], 0)
            sums = total(
                jnp.where(tied, wide, 0),
                ids,
                self.count,
                self.is_sorted,
                one_by_one=tuning(platform).ordered_scatters,
            )
            return _divided(sums, ways).astype(x_dot.dtype)
        ids, chosen = residual
        selected = jnp.take_along_axis(wide, jnp.clip(chosen, 0, wide.shape[0] - 1), 0, mode="clip")
        real = (chosen >= 0) & (chosen < wide.shape[0])
        return jnp.where(real, selected, 0).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        wide = dy.astype(accumulator(dy.dtype))
        if self.ties == "split":
            ids, bits, ways = residual
            tied = unpack(bits, ids.shape[0], 0)
            share = materialise(barrier_on(platform), _divided, wide, ways).astype(dy.dtype)
            return (jnp.where(tied, of_rows(share, ids, 0), 0),)
        ids, chosen = residual
        if self._sends_to_chosen(platform, dy, ids.shape[0]):
            rows = ids.shape[0]
            return (put_in_order(dy, checked_position(chosen, rows), [0], [rows]),)
        mine = gather_rows(chosen, ids)  # a row in no segment is never selected
        number = lax.broadcasted_iota(np.int32, mine.shape, 0)
        return (jnp.where(mine == number, gather_rows(dy, ids), 0),)


@dataclasses.dataclass(frozen=True)
class SegmentSum(Op):
    """The sum of the rows of each of `count` segments, or with `mean` their average; 0 for no rows.

    The arguments are x, the ids, the number of rows of each segment (only for a mean), and an optional `where` mask.
    """

    count: int
    is_sorted: bool
    mean: bool

    linear_in_x = True

    def linear(self, platform: Platform, extra_args: tuple[Array, ...], x: Array) -> Array:
        wide = masked(cast(x, accumulator(x.dtype)), 0, *extra_args[1 + self.mean :])
        sums = total(
            wide,
            extra_args[0],
            self.count,
            self.is_sorted,
            one_by_one=tuning(platform).ordered_scatters,
        )
        return (_divided(sums, extra_args[1]) if self.mean else sums).astype(x.dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array]:
        if self.mean:
            dy = _divided(cast(dy, accumulator(dy.dtype)), extra_args[1]).astype(dy.dtype)
        dx = (
            stored_rows(dy, extra_args[0])
            if tuning(platform).stored_shares
            else of_rows(dy, extra_args[0], 0)
        )
        return (masked(dx, 0, *extra_args[1 + self.mean :]),)


def _divided(x: Array, counts: Array) -> Array:
    """x divided by `counts`, at least 1, which has the first axes of x."""
    counts = counts.reshape(*counts.shape, *[1] * (x.ndim - counts.ndim))
    return shared(x, counts)
