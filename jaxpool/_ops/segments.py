"""Segment reductions: maximum, minimum, sum and mean of the rows that have the same segment id."""

import dataclasses

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import keys
from jaxpool._kernels import segments as kernels
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.dtypes import (
    Kind,
    Ties,
    accumulator_dtype,
    cast,
    comparison_dtype_identity,
    constant_in_comparison_dtype,
    from_comparison_dtype,
    full_like,
    is_16_bit_float,
    is_float,
    reduction_identity,
    scalar_like,
    to_comparison_dtype,
)
from jaxpool._kernels.positions import indices_to_positions, scatter_in_order
from jaxpool._kernels.slices import materialise
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.op import Arrays, Op, Residual, array_problem, is_partitioned
from jaxpool._plan.problem import Platform, barrier_of
from jaxpool._plan.scan import plan_scan
from jaxpool._plan.scatter import counts_ties_in_branch, scatters_to_rows
from jaxpool._plan.tuning import tuning_of


@dataclasses.dataclass(frozen=True)
class SegmentSelect(Op):
    """Maximum or minimum of the rows of each segment. Extra arguments: segment ids, optional mask.

    Residual: the ids and the selected row number of each output element. With ties "split": the ids, one bit per
    element of x, set if the element ties, and the number of ties.
    """

    kind: Kind
    ties: Ties
    segments: kernels.Segments

    materialises_inputs = True

    def value(self, platform: Platform, x: Array, ids: Array, *mask: Array) -> Array:
        is_max = self.kind == "max"
        # XLA joins the extrema of several devices by an all-reduce, which loses NaN on CPU. Integer keys keep it.
        uses_keys = is_partitioned.value and is_float(x.dtype)
        # Saves a float32 copy of x. Unordered scatters use atomic operations, which devices may lack for 16 bits.
        is_ordered = tuning_of(platform).has_ordered_scatters
        keeps_dtype = is_ordered and is_16_bit_float(x.dtype) and not uses_keys

        comparable, fill = x, reduction_identity(x.dtype, self.kind)
        if not keeps_dtype:
            comparable, fill = to_comparison_dtype(x), constant_in_comparison_dtype(fill)
        if uses_keys:
            comparable = keys.to_sort_keys(comparable, "greatest" if is_max else "least")
            fill = keys.constant_sort_key(fill)
        comparable = kernels.fill_where_masked(comparable, fill, *mask)
        reduce_fn = jax.ops.segment_max if is_max else jax.ops.segment_min
        y = self.segments.reduce(reduce_fn, comparable, ids)
        # `jax.ops` returns an infinity for an empty segment, even if the dtype of x has no infinity.
        y = (lax.max if is_max else lax.min)(y, full_like(y, fill))
        if uses_keys:
            y = keys.from_sort_keys(y, accumulator_dtype(x.dtype))
        return y if keeps_dtype else from_comparison_dtype(y, x.dtype)

    def _is_tied(
        self, platform: Platform, x: Array, extrema: Array, ids: Array, *mask: Array
    ) -> Array:
        """Mask of the elements of x that attain the extremum of their segment; arbitrary for rows in no segment."""
        casts_to_float32 = tuning_of(platform).casts_before_compare and x.dtype == jnp.bfloat16
        wide_x = x.astype(np.float32) if casts_to_float32 else to_comparison_dtype(x)
        tied = lax.eq(wide_x, kernels.gather_value_unchecked(extrema, ids))
        # The scatter in `jax.ops` propagates NaN, so an unmasked NaN is always the extremum.
        if is_float(wide_x.dtype):
            tied = tied | lax.ne(wide_x, wide_x)
        return tied & mask[0] if mask else tied

    def primal(
        self, platform: Platform, x: Array, ids: Array, *mask: Array
    ) -> tuple[Array, Residual]:
        y = self.value(platform, x, ids, *mask)
        extrema = to_comparison_dtype(y)

        def tie_bits(x: Array, extrema: Array, ids: Array, *mask: Array) -> Array:
            is_in_segment = lax.expand_dims(
                (ids >= 0) & (ids < self.segments.count), range(1, x.ndim)
            )
            return pack_bits(self._is_tied(platform, x, extrema, ids, *mask) & is_in_segment, 0)

        if self.ties == "split":
            bits = materialise(barrier_of(platform), tie_bits, x, extrema, ids, *mask)
            return y, (ids, bits, self._num_tied(platform, x, extrema, bits, ids))
        last = self.ties == "last"
        tied = self._is_tied(platform, x, extrema, ids, *mask)
        no_row = -1 if last else x.shape[0]
        row_index = jnp.where(tied, lax.broadcasted_iota(np.int32, x.shape, 0), no_row)
        reduce_fn = jax.ops.segment_max if last else jax.ops.segment_min
        return y, (ids, self.segments.reduce(reduce_fn, row_index, ids))

    def _num_tied(
        self, platform: Platform, x: Array, extrema: Array, bits: Array, ids: Array
    ) -> Array:
        """The number of tied rows of each segment.

        An extremum other than the identity belongs to a segment with rows, which has at least one tie bit. If the
        number of set bits equals the number of such extrema, no rows tie.
        """

        def count_ties(bits: Array, ids: Array) -> Array:
            tied = unpack_bits(bits, ids.shape[0], 0)
            return self.segments.reduce(jax.ops.segment_sum, tied.astype(np.int32), ids)

        def ones(bits: Array, ids: Array) -> Array:
            return full_like(extrema, 1, np.int32)

        if not counts_ties_in_branch(platform, array_problem(x, platform).shape):
            return count_ties(bits, ids)
        total = jnp.sum(lax.population_count(bits), dtype=np.uint32)
        identity = comparison_dtype_identity(x.dtype, self.kind)
        has_rows = lax.ne(extrema, scalar_like(extrema, identity))
        return lax.cond(total == jnp.sum(has_rows, dtype=np.uint32), ones, count_ties, bits, ids)

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        wide_dot = x_dot.astype(accumulator_dtype(x_dot.dtype))
        if self.ties == "split":
            ids, bits, num_tied = residual
            tied_dot = jnp.where(unpack_bits(bits, ids.shape[0], 0), wide_dot, 0)
            sums = segment_totals(platform, tied_dot, ids, self.segments)
            return _divide(sums, num_tied).astype(x_dot.dtype)
        row, num_rows = residual[1], wide_dot.shape[0]
        selected = jnp.take_along_axis(wide_dot, jnp.clip(row, 0, num_rows - 1), 0, mode="clip")
        has_row = (row >= 0) & (row < num_rows)
        return jnp.where(has_row, selected, 0).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        ids, num_rows = residual[0], residual[0].shape[0]
        if self.ties == "split":
            _, bits, num_tied = residual
            wide_dy, tied = dy.astype(accumulator_dtype(dy.dtype)), unpack_bits(bits, num_rows, 0)
            share = materialise(barrier_of(platform), _divide, wide_dy, num_tied).astype(dy.dtype)
            return (jnp.where(tied, kernels.gather_value_or_zero(share, ids), 0),)
        row, problem = residual[1], array_problem(dy, platform)
        shape = (num_rows, *problem.shape[1:])
        if scatters_to_rows(platform, shape, self.segments.count, problem.is_sharded):
            return (scatter_in_order(dy, indices_to_positions(row, num_rows), [0], [num_rows]),)
        # A row in no segment is never selected, so its unchecked gathers may read any segment.
        winning_row = kernels.gather_value_unchecked(row, ids)
        row_index = lax.broadcasted_iota(np.int32, winning_row.shape, 0)
        return (jnp.where(winning_row == row_index, kernels.gather_value_unchecked(dy, ids), 0),)


@dataclasses.dataclass(frozen=True)
class SegmentSum(Op):
    """Sum of the rows of each segment, or with `is_mean` their mean; 0 for a segment without rows.

    The arguments are x, the ids, the number of rows of each segment (only for a mean), and an optional `where` mask.
    """

    segments: kernels.Segments
    is_mean: bool

    linear_in_x = True

    def linear(self, platform: Platform, extra_args: Arrays, x: Array) -> Array:
        wide_x, mask = cast(x, accumulator_dtype(x.dtype)), extra_args[1 + self.is_mean :]
        wide_x = kernels.fill_where_masked(wide_x, 0, *mask)
        sums = segment_totals(platform, wide_x, extra_args[0], self.segments)
        return (_divide(sums, extra_args[1]) if self.is_mean else sums).astype(x.dtype)

    def transpose(self, platform: Platform, extra_args: Arrays, dy: Array) -> tuple[Array]:
        if self.is_mean:
            dy = _divide(cast(dy, accumulator_dtype(dy.dtype)), extra_args[1]).astype(dy.dtype)
        stores_copy = tuning_of(platform).stores_segment_shares
        dx = kernels.gather_value_or_zero(dy, extra_args[0], stores_copy=stores_copy)
        return (kernels.fill_where_masked(dx, 0, *extra_args[1 + self.is_mean :]),)


def segment_totals(platform: Platform, x: Array, ids: Array, segments: kernels.Segments) -> Array:
    """Sum of the rows of each segment."""
    in_order = tuning_of(platform).has_ordered_scatters
    # Blocks even if rows are numbers: gathers of numbers are slow, but the other form waits for the host.
    plan = plan_scan(array_problem(x, platform))
    return kernels.sum_segments(x, ids, segments, plan, scatters_in_order=in_order)


def _divide(x: Array, counts: Array) -> Array:
    """x divided by `counts`, or by 1 for a count of 0. The axes of `counts` are the first axes of x."""
    counts = counts.reshape(*counts.shape, *[1] * (x.ndim - counts.ndim))
    return divide_by_num_tied(x, counts)
