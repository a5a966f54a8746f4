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

    loop_boxes: int  # boxes per loop
    tile_shape: tuple[Any, ...]  # rows and columns of a tile


def plan_cells(platform: Platform, sizes: tuple[Any, ...]) -> CellPlan:
    """The plan for boxes in images of `sizes` (B, H, W)."""
    tuning = TUNING[platform]
    limits = zip((tuning.tile_rows, tuning.tile_columns), sizes[1:], strict=True)
    tile_shape = tuple(size if limit == NEVER else int(limit) for limit, size in limits)
    return CellPlan(tuning.boxes_per_loop, tile_shape)


def gathers_pixels(platform: Platform, num_samples: int | None) -> bool:
    """Whether cells with `num_samples` points per axis (None if it varies by cell) gather their pixels."""
    return TUNING[platform].gathers_box_pixels and gathers_points(num_samples)


def gathers_points(num_samples: int | None) -> bool:
    """Whether cells have few enough points per axis for one gather per point."""
    return num_samples is not None and num_samples <= LIMITS.max_gathered_samples


def concatenates_levels(
    platform: Platform, level_sizes: Sequence[int | None], itemsize: int, num_boxes: int
) -> bool:
    """Whether `num_boxes` boxes read one concatenation of levels of `level_sizes` elements of `itemsize` bytes."""
    known_sizes = [size for size in level_sizes if size is not None]
    return (
        len(known_sizes) == len(level_sizes)
        and itemsize * sum(known_sizes) <= TUNING[platform].max_concatenated_bytes * num_boxes
    )


def num_box_parts(grid_shape: tuple[int, int], num_pixels: int, channels: Any) -> int:
    """Number of equal groups of cell rows for sending the cotangents of a box to `num_pixels` pixels per cell."""
    rows, columns = grid_shape
    max_rows = boxes_in_memory((columns, num_pixels), channels) if is_int(channels) else rows
    divisors = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    return next((parts for parts in divisors if rows <= parts * max_rows), rows)


def num_matmul_boxes(num_boxes: int) -> int:
    """Number of boxes per matrix product, out of `num_boxes`."""
    return min(LIMITS.boxes_per_matmul, num_boxes)


def boxes_in_memory(point_counts: tuple[int, ...], channels: int) -> int:
    """Number of boxes whose `point_counts`, with `channels` each, are in memory at the same time."""
    return max(1, LIMITS.max_points_in_memory // (math.prod(point_counts) * max(1, channels)))
