"""Sums of the rows of segments by scatters that add one row after another, with partial sums for long segments.

The rounding error of n float32 values added one by one grows with n: the sum of 2**25 ones stays at 2**24. Therefore
the output gets further rows for partial sums, and the plan decides which rows of x they sum. A second scatter, of far
fewer rows, adds the partial sums to the segments that own them:

    x        a b c d | e f g h | i j k l      ids 0 0 0 0 | 0 0 1 1 | 1 1 1 2, sorted, in blocks of four rows
    sums     segments 0, g+h, l               partial sums a+b+c+d, e+f, i+j+k, owned by 0, 0, 1

The output row of each row depends on the ids alone, so results have the same bits on every run.
"""

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.predicates import all_true_across_vmap
from jaxpool._plan.segments import PartialSums, partial_sums

# The output row of each row of x, and the segment that owns each partial sum.
RowsAndOwners = tuple[Array, Array]


def segment_sums_in_order(
    x: Array, segment_ids: Array, num_segments: int, is_sorted: bool
) -> Array:
    """Sum of the rows of each segment, (num_segments, ...); rows with ids out of range are left out."""
    levels = partial_sums(x.shape[0], num_segments, is_sorted) if x.dtype == np.float32 else ()
    if not levels:
        return jax.ops.segment_sum(x, segment_ids, num_segments, is_sorted, mode="drop")
    y = jnp.zeros((num_segments + sum(level.number for level in levels), *x.shape[1:]), x.dtype)
    start = num_segments
    # Rows of y from `num_segments` on are partial sums, which no id may name.
    segment_ids = jnp.where(
        (segment_ids >= 0) & (segment_ids < num_segments), segment_ids, np.int32(-1)
    )
    output_rows_by_form = {
        "runs": _output_rows_of_runs,
        "blocks": _output_rows_of_blocks,
        "sampled": _output_rows_by_sampling,
    }
    for level in levels:
        rows, owners = output_rows_by_form[level.form](segment_ids, num_segments, start, level)
        y = _scatter_add_rows(y, rows, x)
        x, segment_ids = y[start : start + level.number], owners
        start += level.number
    return _scatter_add_rows(y, segment_ids, x)[:num_segments]


def _scatter_add_rows(y: Array, output_rows: Array, x: Array) -> Array:
    return y.at[output_rows].add(x, mode="drop", wrap_negative_indices=False)


def _output_rows_of_runs(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """Each block has a partial sum for the segment of its first row."""
    rest = plan.number * plan.length - segment_ids.shape[0]
    blocks = lax.pad(segment_ids, np.int32(-1), [(0, rest, 0)]).reshape(plan.number, plan.length)
    partial = first_partial_row + lax.broadcasted_iota(np.int32, blocks.shape, 0)
    first = blocks[:, :1]
    return jnp.where(blocks == first, partial, blocks).reshape(-1)[: segment_ids.shape[0]], first[
        :, 0
    ]


def _output_rows_of_blocks(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """Each block except the first has a partial sum for every segment."""
    block = lax.div(lax.iota(np.int32, segment_ids.shape[0]), np.int32(plan.length))
    to_partial = (block > 0) & (segment_ids >= 0)
    rows = jnp.where(
        to_partial, first_partial_row + (block - 1) * num_segments + segment_ids, segment_ids
    )
    return rows, jnp.tile(lax.iota(np.int32, num_segments), plan.number // num_segments)


def _multiplicative_hash(numbers: Array) -> Array:
    """Hash with evenly distributed upper bits for consecutive or equidistant numbers."""
    return numbers * np.uint32(0x9E3779B1)


def _output_rows_by_sampling(
    segment_ids: Array, num_segments: int, first_partial_row: int, plan: PartialSums
) -> RowsAndOwners:
    """A long segment has 2**bits - 1 partial sums, by its number of rows in a sample.

    A hash distributes chunks of consecutive rows over the segment itself and its partial sums.
    """
    rows, chunk = segment_ids.shape[0], plan.chunk
    chunks = lax.iota(np.uint32, rows // chunk)
    at = chunks * np.uint32(chunk) + lax.shift_right_logical(
        _multiplicative_hash(chunks), np.uint32(16)
    ) % np.uint32(chunk)
    sample = segment_ids.at[at.astype(np.int32)].get(mode="promise_in_bounds")
    seen = jax.ops.segment_sum(lax.full_like(sample, 1), sample, num_segments, mode="drop")
    is_long = seen >= plan.least // chunk

    def rows_with_partial_sums(segment_ids: Array) -> RowsAndOwners:
        bits = jnp.where(is_long, 32 - lax.clz(seen * chunk // plan.length - 1), 0)
        partial = lax.shift_left(lax.full_like(bits, 1), bits) - 1
        ends = jnp.cumsum(partial)
        known = lax.clamp(np.int32(0), segment_ids, np.int32(num_segments - 1))
        table = (ends - partial) * 32 + bits  # one gather per row, not two
        entry = table.at[known].get(mode="promise_in_bounds")
        numbers = _multiplicative_hash(lax.div(lax.iota(np.uint32, rows), np.uint32(chunk)))
        which = lax.shift_right_logical(numbers, np.uint32(32) - (entry & 31).astype(np.uint32))
        which = which.astype(np.int32)  # 0 if `bits` is 0
        to_partial = (which > 0) & (segment_ids == known)
        owners = jnp.searchsorted(ends, lax.iota(np.int32, plan.number), side="right")
        place = jnp.where(
            to_partial,
            first_partial_row + lax.shift_right_logical(entry, np.int32(5)) + which - 1,
            segment_ids,
        )
        return place, owners.astype(np.int32)

    def rows_without_partial_sums(segment_ids: Array) -> RowsAndOwners:
        return segment_ids, lax.full_like(segment_ids[: plan.number], -1)

    placed: RowsAndOwners = lax.cond(
        all_true_across_vmap(jnp.logical_not(is_long)),
        rows_without_partial_sums,
        rows_with_partial_sums,
        segment_ids,
    )
    return placed
