"""Plans for ties of segments, and for partial sums of long segments, which bound the rounding error of sums."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import Platform, Shape, num_elements
from jaxpool._plan.tuning import LIMITS, TUNING


def counts_ties_in_branch(platform: Platform, shape: Shape) -> bool:
    """Whether ties of segments are counted in a branch that runs only if there is a tie.

    The predicate counts elements in uint32, which bounds the size of the array.
    """
    return TUNING[platform].branches_on_ties and num_elements(shape) < 2**32


@dataclasses.dataclass(frozen=True)
class PartialSums:
    """`num_sums` partial sums, which are added to the segments that own them once they are complete.

    - "runs", for sorted ids: one partial sum per block of `rows` rows, for the segment of the first row of the
      block.
    - "blocks", for few segments: one partial sum per segment in each block of `rows` rows but the first.
    - "sampled": partial sums of about `rows` rows for long segments, detected in a sample of the ids.
    """

    form: Literal["runs", "blocks", "sampled"]
    rows: int
    num_sums: int
    sample_stride: int = LIMITS.rows_per_sampled_id  # rows per sampled id
    long_segment_rows: int = LIMITS.min_long_segment_rows  # rows of a long segment


@functools.cache
def plan_partial_sums(rows: int, num_segments: int, is_sorted: bool) -> tuple[PartialSums, ...]:
    """Partial sums of `rows` rows in `num_segments` segments, and sums of these, until few rows are left.

    At most one partial sum per `min_rows_per_partial_sum` rows keeps memory and time close to those of a single sum.
    """
    if not fits_int32(num_segments + rows):
        return ()  # row numbers are int32
    sum_rows = LIMITS.partial_sum_rows
    block_rows = max(sum_rows, num_segments * LIMITS.min_rows_per_partial_sum)
    max_rows = 4 * block_rows  # rows added in sequence
    if is_sorted:
        max_rows, sums = (4 * sum_rows, PartialSums("runs", sum_rows, -(-rows // sum_rows)))
    elif block_rows <= 4 * LIMITS.min_long_segment_rows:
        sums = PartialSums("blocks", block_rows, (-(-rows // block_rows) - 1) * num_segments)
    else:
        max_rows, sum_rows = 4 * LIMITS.min_long_segment_rows, 4 * sum_rows
        sums = PartialSums("sampled", sum_rows, 2 * rows // sum_rows)
        is_sorted = True  # partial sums are ordered by their owners
    return (
        (sums, *plan_partial_sums(sums.num_sums, num_segments, is_sorted))
        if rows > max_rows
        else ()
    )
