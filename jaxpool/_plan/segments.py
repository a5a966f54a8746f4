"""Plans for ties of segments, and for partial sums of long segments, which bound the rounding error of sums."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import Platform, Shape, elements
from jaxpool._plan.tuning import LIMITS, TUNING


def counts_ties_if_any(platform: Platform, shape: Shape) -> bool:
    """Whether ties of segments are counted in a branch that runs only if there is a tie.

    The predicate counts elements in uint32, which bounds the size of the array.
    """
    return TUNING[platform].ties_tested and elements(shape) < 2**32


@dataclasses.dataclass(frozen=True)
class PartialSums:
    """`number` partial sums, which are added to the segments that own them once they are complete.

    - "runs", for sorted ids: one partial sum per block of `length` rows, for the segment of the first row of the block.
    - "blocks", for few segments: one partial sum per segment in each block of `length` rows but the first.
    - "sampled": partial sums of about `length` rows for long segments, detected in a sample of the ids.
    """

    form: Literal["runs", "blocks", "sampled"]
    length: int
    number: int
    chunk: int = LIMITS.rows_per_sample  # rows per sampled id
    least: int = LIMITS.rows_of_long_segment  # rows of a long segment


@functools.cache
def partial_sums(rows: int, count: int, is_sorted: bool) -> tuple[PartialSums, ...]:
    """The partial sums of `rows` rows in `count` segments, then partial sums of these, until few rows are left.

    At most one partial sum per `rows_per_partial_sum` rows keeps memory and time close to those of a single sum.
    """
    if not fits_int32(count + rows):
        return ()  # row numbers are int32
    length = LIMITS.rows_of_partial_sum
    by_blocks = max(length, count * LIMITS.rows_per_partial_sum)
    most = 4 * by_blocks  # rows added in sequence
    if is_sorted:
        most, level = 4 * length, PartialSums("runs", length, -(-rows // length))
    elif by_blocks <= 4 * LIMITS.rows_of_long_segment:
        level = PartialSums("blocks", by_blocks, (-(-rows // by_blocks) - 1) * count)
    else:
        most, length = 4 * LIMITS.rows_of_long_segment, 4 * length
        level = PartialSums("sampled", length, 2 * rows // length)
        is_sorted = True  # partial sums are ordered by their owners
    return (level, *partial_sums(level.number, count, is_sorted)) if rows > most else ()
