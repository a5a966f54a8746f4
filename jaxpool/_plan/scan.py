"""Plans of running (cumulative) maxima and minima."""

import dataclasses

from jaxpool._plan.problem import ArrayProblem, BarrierKind, barrier_of, num_elements
from jaxpool._plan.tuning import NEVER


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """Passes of a running maximum. After pass k each element holds the maximum of the last `radix`**k elements."""

    radix: int
    barrier: BarrierKind
    uses_keys: bool = False  # True to compare floats as order-preserving integers
    # Elements: an axis is cut into blocks of at least this length. Separate passes scan the totals of the blocks.
    min_block_size: float = NEVER
    # True to compute the totals of blocks first, and to store no scanned block
    reduces_first: bool = False

    def pass_distances(self, size: int) -> list[range]:
        """Offsets of the earlier elements that each pass combines with an element, for an axis of length `size`."""
        span = 1
        distances: list[range] = []
        while span < size:
            distances.append(range(span, min(self.radix * span, size), span))
            span *= self.radix
        return distances

    def block_length(self, size: int) -> int | None:
        """Block length for an axis of length `size`, a divisor of `size` if possible; None for an axis without blocks.

        A block has at most `radix`**k elements, with the smallest k such that `radix`**k >= `min_block_size`.
        """
        span = self.radix
        while span < self.min_block_size and span < size:
            span *= self.radix
        if span * self.radix >= size:
            return None
        divisors = [length for length in range(span // 2 + 1, span + 1) if size % length == 0]
        return max(divisors, default=span)

    @property
    def totals_block_length(self) -> int:
        """Block length of totals and of segments, if `reduces_first`: their passes cost more than joins."""
        return 2 * self.radix


def plan_scan(problem: ArrayProblem) -> ScanPlan:
    """The plan of a running extremum or of segment sums. An array with a sharding in its type has no blocks."""
    tuning, shape = problem.tuning, problem.shape
    allows_blocks = not problem.is_sharded and None not in shape and num_elements(shape) > 0
    min_block = tuning.min_scan_block_size if allows_blocks else NEVER
    # XLA would all-reduce the result of a gather along an axis that it partitions.
    reduces_first = tuning.reduces_before_scan and allows_blocks and not problem.is_partitioned
    barrier: BarrierKind = "row-major barrier" if reduces_first else barrier_of(problem.platform)
    return ScanPlan(
        tuning.scan_radix, barrier, tuning.subnormals_are_zero, min_block, reduces_first
    )
