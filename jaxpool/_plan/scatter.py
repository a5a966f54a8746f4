"""Choices between scatters and gathers, and plans of the partial sums of segments, which bound rounding errors."""

import dataclasses
import functools
from typing import ClassVar, Literal

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import ArrayProblem, Platform, Shape, num_elements
from jaxpool._plan.tuning import LIMITS, TUNING


def scatters_in_order(platform: Platform, shape: Shape, is_sharded: bool) -> bool:
    """Whether one scatter into the array of `shape`, flattened with int32 positions, writes elements in order."""
    fits_flat = not is_sharded and None not in shape and fits_int32(num_elements(shape))
    return fits_flat and TUNING[platform].has_ordered_scatters


def flattens_scatter(problem: ArrayProblem, output_shape: Shape) -> bool:
    """Whether a scatter into the array of `output_shape` has one flat position per element, and no batch axes."""
    fits_flat = all(fits_int32(num_elements(shape)) for shape in (problem.shape, output_shape))
    return problem.tuning.flattens_scatters and fits_flat and problem.is_on_one_device


def scatters_to_rows(platform: Platform, shape: Shape, num_segments: int, is_sharded: bool) -> bool:
    """Whether segment cotangents are scattered to the selected rows; if not, each row compares row numbers."""
    if not scatters_in_order(platform, shape, is_sharded):
        return False
    return num_segments * TUNING[platform].min_scattered_rows <= int(shape[0] or 0)


def counts_ties_in_branch(platform: Platform, shape: Shape) -> bool:
    """Whether ties within segments are counted in a `lax.cond` branch that runs only if there is a tie."""
    is_countable = num_elements(shape) < 2**32  # the predicate counts elements in uint32
    return TUNING[platform].branches_on_ties and is_countable


@dataclasses.dataclass(frozen=True)
class PartialSums:
    """Layout of `num_sums` partial sums of segment rows. Each complete partial sum is added to its segment.

    - "runs", for sorted ids: each block of `rows` rows has one partial sum, for the segment of its first row.
    - "blocks", for few segments: each block of `rows` rows, except the first block, has a partial sum per segment.
    - "sampled": long segments, detected in a sample of the ids, have partial sums of about `rows` rows.
    """

    form: Literal["runs", "blocks", "sampled"]
    rows: int
    num_sums: int
    sample_stride: ClassVar[int] = LIMITS.rows_per_sampled_id  # rows per segment id in the sample
    long_segment_rows: ClassVar[int] = LIMITS.min_long_segment_rows  # a long segment, at least


@functools.cache
def plan_partial_sums(rows: int, num_segments: int, is_sorted: bool) -> tuple[PartialSums, ...]:
    """Partial sums of `rows` rows in `num_segments` segments, then partial sums of these sums, until few are left."""
    if not fits_int32(num_segments + rows):
        return ()  # row numbers are int32
    sum_rows = LIMITS.partial_sum_rows
    block_rows = max(sum_rows, num_segments * LIMITS.min_rows_per_partial_sum)
    max_rows = 4 * block_rows  # maximum number of rows that are added in sequence
    if is_sorted:
        max_rows, sums = 4 * sum_rows, PartialSums("runs", sum_rows, -(-rows // sum_rows))
    elif block_rows <= 4 * LIMITS.min_long_segment_rows:
        sums = PartialSums("blocks", block_rows, (-(-rows // block_rows) - 1) * num_segments)
    else:
        max_rows, sum_rows = 4 * LIMITS.min_long_segment_rows, 4 * sum_rows
        sums = PartialSums("sampled", sum_rows, 2 * rows // sum_rows)
        is_sorted = True  # partial sums are ordered by the segment that they belong to
    if rows <= max_rows:
        return ()
    return sums, *plan_partial_sums(sums.num_sums, num_segments, is_sorted)
