"""Plans of running maxima and minima."""

import dataclasses

from jaxpool._plan.problem import BarrierKind, Platform, Shape, barrier_of, num_elements
from jaxpool._plan.tuning import NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """Passes of a running maximum. After pass k each element holds the maximum of the last `radix`**k elements."""

    radix: int
    barrier: BarrierKind
    uses_keys: bool = False  # compare floats as integers in the same order
    # Elements: if passes reach as many, the axis is cut into blocks, whose totals are joined by further passes.
    min_block_size: float = NEVER

    def pass_distances(self, size: int) -> list[range]:
        """The distances to the elements that each pass joins, for an axis or a block of `size`."""
        span = 1
        distances: list[range] = []
        while span < size:
            distances.append(range(span, min(self.radix * span, size), span))
            span *= self.radix
        return distances

    def block_length(self, size: int) -> int | None:
        """The length of the blocks of an axis of `size`, a divisor of `size` if possible; None for no blocks.

        The length is the reach of the passes, once it is at least `min_block_size` elements. An axis that one more pass
        would cover has no blocks.
        """
        span = self.radix
        while span < self.min_block_size and span < size:
            span *= self.radix
        if span * self.radix >= size:
            return None
        divisors = [length for length in range(span // 2 + 1, span + 1) if size % length == 0]
        return max(divisors, default=span)


def plan_scan(platform: Platform, shape: Shape = (), is_sharded: bool = True) -> ScanPlan:
    """The plan of a running maximum or minimum. An array with a sharding in its type has no blocks."""
    tuning = TUNING[platform]
    allows_blocks = not is_sharded and None not in shape and num_elements(shape) > 0
    min_block = tuning.min_scan_block_size if allows_blocks else NEVER
    return ScanPlan(tuning.scan_radix, barrier_of(platform), tuning.subnormals_are_zero, min_block)
