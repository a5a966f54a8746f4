"""Plans of running maxima and minima."""

import dataclasses

from jaxpool._plan.problem import Barrier, Platform, Shape, barrier_on, elements
from jaxpool._plan.tuning import NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """Passes of a running maximum. After pass k each element holds the maximum of the last `ways`**k elements."""

    ways: int
    barrier: Barrier
    keys: bool = False  # compare floats as integers in the same order
    # Elements: if passes reach as many, the axis is cut into blocks, whose totals are joined by further passes.
    blocks: float = NEVER

    def passes(self, size: int) -> list[range]:
        """The distances to the elements that each pass joins, for an axis or a block of `size`."""
        reach = 1
        distances: list[range] = []
        while reach < size:
            distances.append(range(reach, min(self.ways * reach, size), reach))
            reach *= self.ways
        return distances

    def block(self, size: int) -> int | None:
        """The length of the blocks of an axis of `size`, a divisor of `size` if possible; None for no blocks.

        The length is the reach of the passes, once it is at least `blocks` elements. An axis that one more pass would
        cover has no blocks.
        """
        reach = self.ways
        while reach < self.blocks and reach < size:
            reach *= self.ways
        if reach * self.ways >= size:
            return None
        divisors = [length for length in range(reach // 2 + 1, reach + 1) if size % length == 0]
        return max(divisors, default=reach)


def plan_scan(platform: Platform, shape: Shape = (), sharded: bool = True) -> ScanPlan:
    """The plan of a running maximum or minimum. An array with a sharding in its type has no blocks."""
    tuning = TUNING[platform]
    known = not sharded and None not in shape and elements(shape) > 0
    blocks = tuning.scan_block if known else NEVER
    return ScanPlan(tuning.scan_ways, barrier_on(platform), tuning.subnormals_are_zero, blocks)
