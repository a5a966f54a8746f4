"""What is chosen for pools of boxes: how cells read pixels, and how pixels get their cotangents."""

import dataclasses
import math
from typing import Any

from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class CellPlan:
    """Cells are read a pixel at a time, in loops over boxes; pixels collect cotangents, in loops over tiles."""

    together: int  # boxes in a loop
    tile: tuple[Any, ...]  # rows and columns


def plan_cells(on: Platform, sizes: tuple[Any, ...]) -> CellPlan:
    """The plan for boxes of images of `sizes`, B, H and W."""
    tuning = TUNING[on]
    limits = zip((tuning.tile_rows, tuning.tile_columns), sizes[1:], strict=True)
    tile = tuple(size if limit == NEVER else int(limit) for limit, size in limits)
    return CellPlan(tuning.boxes_of_a_walk, tile)


def reads_pixels(on: Platform, samples: int | None) -> bool:
    """Whether cells of so many points an axis read their pixels one by one; None if that differs from cell to cell."""
    return TUNING[on].box_pixels and few_points(samples)


def few_points(samples: int | None) -> bool:
    """Whether cells have so few points an axis that these may be gathered."""
    return samples is not None and samples <= LIMITS.box_samples


def joins_levels(lookups: int, pixels: int) -> bool:
    """Whether the levels of a pyramid are made one array for so many lookups of their pixels."""
    return lookups >= LIMITS.lookups_of_a_pixel * pixels


def boxes_of_a_product(count: int) -> int:
    """How many of `count` boxes are in one matrix product."""
    return min(LIMITS.boxes_of_a_product, count)


def boxes_at_once(cells: tuple[int, ...], channels: int) -> int:
    """Of how many boxes of so many cells the points are held at once, if they are many."""
    return max(1, LIMITS.box_points // (math.prod(cells) * max(1, channels)))
