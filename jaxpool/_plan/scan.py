"""How a running extreme grows: by how many times its reach in a pass."""

from __future__ import annotations

import dataclasses

from jaxpool._plan.problem import Keep, Platform, keep_on
from jaxpool._plan.tuning import TUNING


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """After pass k each element holds the extreme of the last `ways`^k: a pass joins `ways` of those before."""

    ways: int
    keep: Keep


def plan_scan(on: Platform) -> ScanPlan:
    """The plan of a running extreme on a platform."""
    return ScanPlan(TUNING[on].scan_ways, keep_on(on))
