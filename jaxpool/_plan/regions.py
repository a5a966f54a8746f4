"""What is chosen for pools of boxes: how cells read pixels, and how pixels get their cotangents."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jaxpool._arguments.sizes import is_int
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class CellPlan:
    """Cells are read a pixel at a time, in loops over boxes; pixels collect cotangents, in loops over tiles."""

    together: int  # boxes in a loop
    tile: tuple[Any, ...]  # rows and columns


def plan_cells(platform: Platform, sizes: tuple[Any, ...]) -> CellPlan:
    """The plan for boxes of images of `sizes`, B, H and W."""
    tuning = TUNING[platform]
    limits = zip((tuning.tile_rows, tuning.tile_columns), sizes[1:], strict=True)
    tile = tuple(size if limit == NEVER else int(limit) for limit, size in limits)
    return CellPlan(tuning.boxes_of_a_walk, tile)


def reads_pixels(platform: Platform, samples: int | None) -> bool:
    """Whether cells of so many points an axis read their pixels one by one; None if that differs from cell to cell."""
    return TUNING[platform].box_pixels and few_points(samples)


def few_points(samples: int | None) -> bool:
    """Whether cells have so few points an axis that these may be gathered."""
    return samples is not None and samples <= LIMITS.box_samples


def joins_levels(
    platform: Platform, sizes: Sequence[int | None], itemsize: int, boxes: int
) -> bool:
    """Whether levels of so many numbers of `itemsize` bytes are made one array, for so many boxes to be read of it."""
    known = [size for size in sizes if size is not None]
    return (
        len(known) == len(sizes) and itemsize * sum(known) <= TUNING[platform].joined_bytes * boxes
    )


def parts_of_a_box(cells: tuple[int, int], pixels: int, channels: Any) -> int:
    """In how many parts, of as many rows each, the cells of a box send their cotangents to so many pixels each."""
    rows, columns = cells
    most = boxes_at_once((columns, pixels), channels) if is_int(channels) else rows
    divisors = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    return next((parts for parts in divisors if rows <= parts * most), rows)


def boxes_of_a_product(count: int) -> int:
    """How many of `count` boxes are in one matrix product."""
    return min(LIMITS.boxes_of_a_product, count)


def boxes_at_once(cells: tuple[int, ...], channels: int) -> int:
    """Of how many boxes of so many cells the points are held at once, if they are many."""
    return max(1, LIMITS.box_points // (math.prod(cells) * max(1, channels)))
