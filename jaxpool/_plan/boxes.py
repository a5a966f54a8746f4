"""Plans of pools of boxes (RoI pooling): how cells read pixels, and how cotangents reach the pixels."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jaxpool._arguments.sizes import is_int
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class CellPlan:
    """Loop sizes: forward loops read the cells of boxes pixel by pixel, backward loops add cotangents tile by tile."""

    together: int  # boxes per loop
    tile: tuple[Any, ...]  # rows and columns of a tile


def plan_cells(platform: Platform, sizes: tuple[Any, ...]) -> CellPlan:
    """The plan for boxes in images of `sizes` (B, H, W)."""
    tuning = TUNING[platform]
    limits = zip((tuning.tile_rows, tuning.tile_columns), sizes[1:], strict=True)
    tile = tuple(size if limit == NEVER else int(limit) for limit, size in limits)
    return CellPlan(tuning.boxes_of_a_walk, tile)


def reads_pixels(platform: Platform, samples: int | None) -> bool:
    """Whether cells with `samples` points per axis gather their pixels; `samples` is None if it varies by cell."""
    return TUNING[platform].box_pixels and few_points(samples)


def few_points(samples: int | None) -> bool:
    """Whether cells have few enough points per axis for one gather per point."""
    return samples is not None and samples <= LIMITS.box_samples


def joins_levels(
    platform: Platform, sizes: Sequence[int | None], itemsize: int, boxes: int
) -> bool:
    """Whether feature levels of `sizes` elements of `itemsize` bytes are concatenated, to be read by `boxes` boxes."""
    known = [size for size in sizes if size is not None]
    return (
        len(known) == len(sizes) and itemsize * sum(known) <= TUNING[platform].joined_bytes * boxes
    )


def parts_of_a_box(cells: tuple[int, int], pixels: int, channels: Any) -> int:
    """Number of equal groups of cell rows for sending the cotangents of a box to `pixels` pixels per cell."""
    rows, columns = cells
    most = boxes_at_once((columns, pixels), channels) if is_int(channels) else rows
    divisors = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    return next((parts for parts in divisors if rows <= parts * most), rows)


def boxes_of_a_product(count: int) -> int:
    """Number of boxes per matrix product, out of `count`."""
    return min(LIMITS.boxes_of_a_product, count)


def boxes_at_once(points: tuple[int, ...], channels: int) -> int:
    """Number of boxes whose `points`, with `channels` each, are in memory at the same time."""
    return max(1, LIMITS.box_points // (math.prod(points) * max(1, channels)))
