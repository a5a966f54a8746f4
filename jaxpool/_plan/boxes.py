"""Plans of RoI pooling: how the grid cells of boxes read pixels, and how cotangents of cells reach the pixels."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from jaxpool._arguments.sizes import is_int
from jaxpool._plan.problem import Platform, Shape, num_elements
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


@dataclasses.dataclass(frozen=True)
class BoxMaxPlan:
    """Loops of an RoI max pool. One loop of the backward pass adds cotangents of cells to the pixels of one tile."""

    boxes_per_group: int  # a loop of the forward pass reads the pixels of one group
    tile_shape: tuple[int, ...]
    # Cells per axis that one step of a backward loop adds. A pixel is in no more if a box has a pixel per cell.
    cells_per_step: int


def plan_box_max(platform: Platform, image_shape: tuple[int, ...], num_boxes: int) -> BoxMaxPlan:
    """The plan of an RoI max pool of `num_boxes` boxes of images of `image_shape`."""
    tuning = TUNING[platform]
    limits = zip((tuning.tile_rows, tuning.tile_columns), image_shape, strict=True)
    tile_shape = tuple(size if limit == NEVER else int(limit) for limit, size in limits)
    return BoxMaxPlan(min(tuning.boxes_per_loop, num_boxes), tile_shape, LIMITS.max_cells_per_step)


def matmul_group_size(num_boxes: int) -> int:
    """Number of boxes of an RoI mean pool per matrix product."""
    return min(LIMITS.boxes_per_matmul, num_boxes)


def gathers_pixels(platform: Platform, num_samples: int | None) -> bool:
    """Whether RoI cells gather pixels; `num_samples` is the points per axis of a cell, None if it varies by cell."""
    return TUNING[platform].gathers_box_pixels and gathers_points(num_samples)


# How cotangents of cells that gather pixels reach the pixels.
# "scatter": one scatter per box, which adds rows in order.
# "product": one product of matrices with the weights of all boxes and images.
# "grouped products": products for one group of boxes after another.
CotangentForm = Literal["scatter", "product", "grouped products"]


def choose_cotangent_form(
    platform: Platform, dy_shape: Shape, levels: Sequence[tuple[int, int, int]]
) -> CotangentForm:
    """The form of the transpose of gathers, for cotangents of `dy_shape` = (K, cells, cells, C) and pyramid levels."""
    tuning = TUNING[platform]
    if tuning.has_ordered_scatters:
        return "scatter"
    boxes, rows_per_box, _, channels = dy_shape
    row_sizes = ((batch * height, width) for batch, height, width in levels)
    num_rows, widths = zip(*row_sizes, strict=True)
    operands = (boxes, rows_per_box, max(num_rows)), (boxes, rows_per_box, max(widths), channels)
    fits = max(map(num_elements, operands)) <= tuning.max_box_product_elements
    return "product" if fits else "grouped products"


def gathers_points(num_samples: int | None) -> bool:
    """Whether `num_samples`, the sampling points per axis of an RoI cell, is small enough for a gather per point."""
    return num_samples is not None and num_samples <= LIMITS.max_gathered_samples


def concatenates_levels(
    platform: Platform, level_sizes: Sequence[int | None], itemsize: int, num_boxes: int
) -> bool:
    """Whether boxes read one concatenated array of all pyramid levels, which have `level_sizes` elements."""
    num_bytes = itemsize * sum(math.inf if size is None else size for size in level_sizes)
    return num_bytes <= TUNING[platform].max_concatenated_bytes * num_boxes


def num_box_parts(grid_shape: tuple[int, int], num_pixels: int, channels: int) -> int:
    """Number of equal groups of grid rows when a box scatters cotangents group by group to `num_pixels` per cell."""
    rows, columns = grid_shape
    max_rows = boxes_in_memory((columns, num_pixels), channels) if is_int(channels) else rows
    divisors = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    return next((parts for parts in divisors if rows <= parts * max_rows), rows)


def boxes_in_memory(point_counts: tuple[int, ...], channels: int) -> int:
    """Number of boxes to process at a time, so that their points (`point_counts` per box) fit in memory."""
    return max(1, LIMITS.max_points_in_memory // (math.prod(point_counts) * max(1, channels)))
