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
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.compare import (
    Ties,
    comparison_dtype_identity,
    from_comparison_dtype,
    to_comparison_dtype,
)
from jaxpool._kernels.dtypes import Kind, accumulator_dtype, cast, is_float
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import indices_to_positions, scatter_in_order
from jaxpool._kernels.segments import (
    fill_where_masked,
    gather_value_of_segment,
    gather_value_or_zero,
    gather_value_unchecked,
    reduce_segments,
    sum_segments,
)
from jaxpool._kernels.split_ties import divide_by_num_tied
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
        return reduce_segments(join, x, ids, self.count, self.is_sorted)

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        return from_comparison_dtype(self._decoded(x, ids, *mask), x.dtype)

    def _decoded(self, x: Array, ids: Array, *mask: Array) -> Array:
        """The maxima or minima, in the dtype of comparisons."""
        largest = self.kind == "max"
        worst = comparison_dtype_identity(x.dtype, self.kind)
        wide = fill_where_masked(to_comparison_dtype(x), worst, *mask)
        y = self._joined(jax.ops.segment_max if largest else jax.ops.segment_min, wide, ids)
        # `jax.ops` returns an infinity for an empty segment, also where the dtype of x has none.
        identity = lax.full_like(y, worst)
        return (lax.max if largest else lax.min)(y, identity)

    def _tied(
        self, platform: Platform, x: Array, decoded: Array, ids: Array, *mask: Array
    ) -> Array:
        """Mask of the elements of x that attain the extremum of their segment; arbitrary for rows in no segment."""
        casts = tuning(platform).cast_to_compare and x.dtype == jnp.bfloat16
        wide = x.astype(np.float32) if casts else to_comparison_dtype(x)
        tied = lax.eq(wide, gather_value_unchecked(decoded, ids))
        # A scatter propagates NaN, so a NaN that takes part is the extremum.
        if is_float(wide.dtype):
            tied = tied | lax.ne(wide, wide)
        return tied & mask[0] if mask else tied

    def primal(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> tuple[Array, Any]:
        decoded = self._decoded(x, ids, *mask)
        y = from_comparison_dtype(decoded, x.dtype)
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
        return pack_bits(self._tied(platform, x, decoded, ids, *mask) & known, 0)

    def _ways(self, platform: Platform, x: Array, decoded: Array, bits: Array, ids: Array) -> Array:
        """The number of tied rows of each segment.

        A segment with rows has at least one bit, and a segment whose extremum is not the identity has rows. If there
        are as many bits as such segments, no rows tie.
        """

        def counted(bits: Array, ids: Array) -> Array:
            tied = unpack_bits(bits, ids.shape[0], 0)
            return self._joined(jax.ops.segment_sum, tied.astype(np.int32), ids)

        def ones(bits: Array, ids: Array) -> Array:
            return lax.full_like(decoded, 1, np.int32)

        if not counts_ties_if_any(platform, x.shape):
            return counted(bits, ids)
        total = jnp.sum(lax.population_count(bits), dtype=np.uint32)
        attained = lax.ne(
            decoded, lax.full_like(decoded, comparison_dtype_identity(x.dtype, self.kind))
        )
        return lax.cond(total == jnp.sum(attained, dtype=np.uint32), ones, counted, bits, ids)

    def _sends_to_chosen(self, platform: Platform, like: Any, rows: Any) -> bool:
        known = problem_of(Window(()), like, platform)
        return sends_to_chosen_rows(platform, (rows, *known.shape[1:]), self.count, known.sharded)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator_dtype(x_dot.dtype))
        if self.ties == "split":
            ids, bits, ways = residual
            tied = unpack_bits(bits, ids.shape[0], 0)
            sums = sum_segments(
                jnp.where(tied, wide, 0),
                ids,
                self.count,
                self.is_sorted,
                scatters_in_order=tuning(platform).ordered_scatters,
            )
            return _divided(sums, ways).astype(x_dot.dtype)
        ids, chosen = residual
        selected = jnp.take_along_axis(wide, jnp.clip(chosen, 0, wide.shape[0] - 1), 0, mode="clip")
        real = (chosen >= 0) & (chosen < wide.shape[0])
        return jnp.where(real, selected, 0).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        wide = dy.astype(accumulator_dtype(dy.dtype))
        if self.ties == "split":
            ids, bits, ways = residual
            tied = unpack_bits(bits, ids.shape[0], 0)
            share = materialise(barrier_on(platform), _divided, wide, ways).astype(dy.dtype)
            return (jnp.where(tied, gather_value_of_segment(share, ids, 0), 0),)
        ids, chosen = residual
        if self._sends_to_chosen(platform, dy, ids.shape[0]):
            rows = ids.shape[0]
            return (scatter_in_order(dy, indices_to_positions(chosen, rows), [0], [rows]),)
        mine = gather_value_unchecked(chosen, ids)  # a row in no segment is never selected
        number = lax.broadcasted_iota(np.int32, mine.shape, 0)
        return (jnp.where(mine == number, gather_value_unchecked(dy, ids), 0),)


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
        wide = fill_where_masked(
            cast(x, accumulator_dtype(x.dtype)), 0, *extra_args[1 + self.mean :]
        )
        sums = sum_segments(
            wide,
            extra_args[0],
            self.count,
            self.is_sorted,
            scatters_in_order=tuning(platform).ordered_scatters,
        )
        return (_divided(sums, extra_args[1]) if self.mean else sums).astype(x.dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array]:
        if self.mean:
            dy = _divided(cast(dy, accumulator_dtype(dy.dtype)), extra_args[1]).astype(dy.dtype)
        dx = (
            gather_value_or_zero(dy, extra_args[0])
            if tuning(platform).stored_shares
            else gather_value_of_segment(dy, extra_args[0], 0)
        )
        return (fill_where_masked(dx, 0, *extra_args[1 + self.mean :]),)


def _divided(x: Array, counts: Array) -> Array:
    """x divided by `counts`, at least 1, which has the first axes of x."""
    counts = counts.reshape(*counts.shape, *[1] * (x.ndim - counts.ndim))
    return divide_by_num_tied(x, counts)
