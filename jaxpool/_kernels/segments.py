"""Reductions over segments of rows. Floats are added in an order that depends only on the segment ids.

XLA for CPU runs the updates of a scatter in order. On other platforms, float rows are sorted by id and added by a scan
that restarts at each segment. Ids are int32. Rows in no segment have other ids.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._kernels import slices
from jaxpool._kernels.block_scan import reduce_then_scan
from jaxpool._kernels.clamped import gather_along_axis
from jaxpool._kernels.dtypes import all_true_across_vmap, full_like, is_float, scalar_like
from jaxpool._plan.scan import ScanPlan
from jaxpool._plan.scatter import PartialSums, plan_partial_sums

# Output row of each row of x, and id of the segment that owns each partial sum.
RowsAndOwners = tuple[Array, Array]


@dataclasses.dataclass(frozen=True)
class Segments:
    """The number of segments, and whether the segment ids of the rows are sorted."""

    count: int
    is_sorted: bool

    def reduce(self, jax_segment_op: Callable[..., Array], x: Array, segment_ids: Array) -> Array:
        """Reduce the rows of each segment by a function of `jax.ops` that does not depend on the order of the rows."""
        return jax_segment_op(x, segment_ids, self.count, self.is_sorted, mode="drop")


@functools.partial(jax.jit, static_argnums=1, inline=True)
def clip_segment_ids(segment_ids: Array, num_segments: int) -> Array:
    """Convert `segment_ids` to int32, and ids out of range to -1 or `num_segments`, so that sorted ids stay sorted."""
    if segment_ids.dtype.itemsize < 4:
        segment_ids = segment_ids.astype(np.int32)
    valid = (segment_ids >= 0) & (segment_ids < num_segments)
    int32_ids = segment_ids.astype(np.int32)
    invalid_id = jnp.where(segment_ids < 0, np.int32(-1), np.int32(num_segments))
    return jnp.where(valid, int32_ids, invalid_id)


def gather_value_or_zero(y: Array, segment_ids: Array, *, stores_copy: bool = False) -> Array:
    """For each of N rows, gather the entry of its segment from y (num_segments, ...): an array (N, ...).

    Rows in no segment get 0; with `stores_copy`, from a row of zeros at the end of a stored copy of y, if int32
    indices can address this row.
    """
    is_valid = (segment_ids >= 0) & (segment_ids < y.shape[0])
    index = jnp.where(is_valid, segment_ids, np.int32(y.shape[0]))
    if not stores_copy or y.shape[0] + 1 > np.iinfo(np.int32).max:
        return jnp.take(y, index, axis=0, mode="fill", fill_value=0)
    rows = lax.pad(y, jnp.zeros((), y.dtype), [(0, 1, 0), *[(0, 0, 0)] * (y.ndim - 1)])
    rows, index = lax.optimization_barrier((rows, index))
    return rows.at[index].get(mode="promise_in_bounds")


def gather_value_unchecked(y: Array, segment_ids: Array) -> Array:
    """As `gather_value_or_zero`, but rows in no segment get an arbitrary entry of y, which needs no select."""
    index = lax.clamp(np.int32(0), segment_ids, np.int32(y.shape[0] - 1))
    return y.at[index].get(mode="promise_in_bounds")


def fill_where_masked(x: Array, fill: ArrayLike, *mask: Array) -> Array:
    """Replace elements of x by `fill` where the optional mask is False."""
    return jnp.where(mask[0], x, jnp.asarray(fill, x.dtype)) if mask else x


def sum_segments(
    x: Array, segment_ids: Array, segments: Segments, plan: ScanPlan, *, scatters_in_order: bool
) -> Array:
    """Sum of the rows of each segment, (segments.count, ...); `scatters_in_order` if scatters add in a fixed order."""
    if scatters_in_order or not is_float(x.dtype):
        return _segment_sums_in_order(x, segment_ids, segments)
    if plan.reduces_first:
        return _segment_sums_by_blocks(x, segment_ids, segments, plan)
    if not segments.is_sorted:
        order = jnp.argsort(segment_ids, stable=True)
        x, segment_ids = x[order], segment_ids[order]
    like = (-1, *[1] * (x.ndim - 1))
    starts = jnp.concatenate([jnp.ones(1, bool), segment_ids[1:] != segment_ids[:-1]]).reshape(like)

    def add_within_segment(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], a[1] + b[1])

    sums = lax.associative_scan(add_within_segment, (starts, x))[1]
    ids = jnp.arange(segments.count, dtype=np.int32)
    last_row = jnp.maximum(jnp.searchsorted(segment_ids, ids, side="right") - 1, 0)
    return jnp.where((segment_ids[last_row] == ids).reshape(like), sums[last_row], 0)


def _segment_sums_by_blocks(
    x: Array, segment_ids: Array, segments: Segments, plan: ScanPlan
) -> Array:
    """Sums of segments by a scan of sorted rows. XLA computes its last pass only at the last row of each segment."""
    row = lax.iota(np.int32, x.shape[0])
    if not segments.is_sorted:
        segment_ids, order = lax.sort((segment_ids, row), num_keys=1)
        x = x.at[order].get(mode="promise_in_bounds", unique_indices=True)
    last_row = Segments(segments.count, True).reduce(jax.ops.segment_max, row, segment_ids)

    def add_in_segment(
        x: Array, ids: Array, shifted: Sequence[Sequence[Array]], offsets: Sequence[int]
    ) -> Array:
        for other, other_ids in shifted:
            is_in_segment = slices.broadcast_like(lax.eq(ids, other_ids), x)
            x = lax.add(x, slices.where_or_zero(is_in_segment, other))
        return x

    ids_of_rows = lax.expand_dims(segment_ids, range(1, x.ndim))
    arrays = x, ids_of_rows
    sums = reduce_then_scan(add_in_segment, 0, arrays, 0, plan, plan.totals_block_length)
    has_rows = lax.expand_dims(last_row >= 0, range(1, x.ndim))
    y = gather_along_axis(sums, 0, lax.max(last_row, np.int32(0)))
    return slices.where_or_zero(slices.broadcast_like(has_rows, y), y)


def _segment_sums_in_order(x: Array, segment_ids: Array, segments: Segments) -> Array:
    """Sums of segments by scatters that add one row after another.

    The sum of 2**25 float32 ones, added one by one, stays at 2**24. The output therefore has more rows, for partial
    sums, which a second scatter adds to the segments that own them:

        x        a b c d | e f g h | i j k l      ids 0 0 0 0 | 0 0 1 1 | 1 1 1 2, sorted, in blocks of four rows
        sums     segments 0, g+h, l               partial sums a+b+c+d, e+f, i+j+k, owned by 0, 0, 1
    """
    num_segments = segments.count
    levels: tuple[PartialSums, ...] = ()
    if x.dtype == np.float32:
        levels = plan_partial_sums(x.shape[0], num_segments, segments.is_sorted)
    if not levels:
        return segments.reduce(jax.ops.segment_sum, x, segment_ids)
    y = jnp.zeros((num_segments + sum(level.num_sums for level in levels), *x.shape[1:]), x.dtype)
    start = num_segments
    # Rows of y from `num_segments` on hold partial sums, so ids in that range are replaced by -1 and dropped.
    is_valid = (segment_ids >= 0) & (segment_ids < num_segments)
    segment_ids = jnp.where(is_valid, segment_ids, np.int32(-1))
    output_rows_by_form = {
        "runs": _output_rows_of_runs,
        "blocks": _output_rows_of_blocks,
        "sampled": _output_rows_by_sampling,
    }
    for level in levels:
        rows, owners = output_rows_by_form[level.form](segment_ids, num_segments, start, level)
        y = _scatter_add_rows(y, rows, x)
        x, segment_ids = y[start : start + level.num_sums], owners
        start += level.num_sums
    return _scatter_add_rows(y, segment_ids, x)[:num_segments]


def _scatter_add_rows(y: Array, output_rows: Array, x: Array) -> Array:
    return y.at[output_rows].add(x, mode="drop", wrap_negative_indices=False)


def _output_rows_of_runs(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """Output rows for sorted ids: each block of rows has a partial sum for the segment of its first row."""
    padding = plan.num_sums * plan.rows - segment_ids.shape[0]
    ids = lax.pad(segment_ids, np.int32(-1), [(0, padding, 0)]).reshape(plan.num_sums, plan.rows)
    sum_rows = first_partial_row + lax.broadcasted_iota(np.int32, ids.shape, 0)
    first = ids[:, :1]
    return jnp.where(ids == first, sum_rows, ids).reshape(-1)[: segment_ids.shape[0]], first[:, 0]


def _output_rows_of_blocks(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """Output rows for few segments: each block of rows except the first has a partial sum for every segment."""
    block = lax.div(lax.iota(np.int32, segment_ids.shape[0]), np.int32(plan.rows))
    is_partial = (block > 0) & (segment_ids >= 0)
    sum_rows = first_partial_row + (block - 1) * num_segments + segment_ids
    owners = jnp.tile(lax.iota(np.int32, num_segments), plan.num_sums // num_segments)
    return jnp.where(is_partial, sum_rows, segment_ids), owners


def _multiplicative_hash(numbers: Array) -> Array:
    """Integer hash whose upper bits are evenly distributed for consecutive or equidistant `numbers`."""
    return numbers * np.uint32(0x9E3779B1)


def _num_sampled_rows(segment_ids: Array, num_segments: int, chunk_size: int) -> Array:
    """Number of rows of each segment in a sample of one row, at a hashed offset, per chunk of `chunk_size` rows."""
    chunk = lax.iota(np.uint32, segment_ids.shape[0] // chunk_size)
    rows = chunk * chunk_size + (_multiplicative_hash(chunk) >> 16) % chunk_size
    sample = segment_ids.at[rows.astype(np.int32)].get(mode="promise_in_bounds")
    return jax.ops.segment_sum(full_like(sample, 1), sample, num_segments, mode="drop")


def _output_rows_by_sampling(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """Output rows for many segments: rows of one chunk and one segment go to one slot, picked by a hash.

    A segment has 2**bits slots, about one per `plan.rows` rows. A chunk is `sample_stride` adjacent rows. Slot 0 is the
    segment's own output row. The other slots are adjacent partial sums. Short segments have only slot 0:

        bits 0, 2, 0, 1 of segments 0, 1, 2, 3      partial sums 0, 1, 2 of segment 1, then 3 of segment 3
    """
    chunk_size = plan.sample_stride
    num_sampled = _num_sampled_rows(segment_ids, num_segments, chunk_size)
    is_long = num_sampled >= plan.long_segment_rows // chunk_size

    def assign_slots(segment_ids: Array) -> RowsAndOwners:
        bits = jnp.where(is_long, 32 - lax.clz(num_sampled * chunk_size // plan.rows - 1), 0)
        num_partial = lax.shift_left(scalar_like(bits, 1), bits) - 1
        ends = jnp.cumsum(num_partial)
        owners = jnp.searchsorted(ends, lax.iota(np.int32, plan.num_sums), side="right")
        # Two numbers in one gather.
        packed = gather_value_unchecked((ends - num_partial) * 32 + bits, segment_ids)
        first, bits = lax.shift_right_logical(packed, np.int32(5)), (packed & 31).astype(np.uint32)
        hashes = _multiplicative_hash(lax.iota(np.uint32, segment_ids.shape[0]) // chunk_size)
        # A shift by 32 gives slot 0.
        slot = lax.shift_right_logical(hashes, np.uint32(32) - bits).astype(np.int32)
        is_partial = (slot > 0) & (segment_ids >= 0)
        output_rows = jnp.where(is_partial, first_partial_row + first + slot - 1, segment_ids)
        return output_rows, owners.astype(np.int32)

    def keep_ids(segment_ids: Array) -> RowsAndOwners:
        return segment_ids, full_like(segment_ids[: plan.num_sums], -1)

    all_short = all_true_across_vmap(jnp.logical_not(is_long))
    rows_and_owners: RowsAndOwners = lax.cond(all_short, keep_ids, assign_slots, segment_ids)
    return rows_and_owners
