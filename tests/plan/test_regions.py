"""What is chosen for pools of boxes, on both sides of each limit."""

import pytest

from jaxpool._plan.regions import (
    boxes_at_once,
    boxes_of_a_product,
    few_points,
    plan_cells,
    reads_pixels,
)
from jaxpool._plan.tuning import CPU, LIMITS, NEVER, TUNING


@pytest.mark.parametrize("on", TUNING)
def test_boxes_of_a_loop_and_tiles_of_an_image(on):
    """All of an image where no tile is set."""
    plan, tuning = plan_cells(on, (5, 30, 40)), TUNING[on]
    assert plan.together == tuning.boxes_of_a_walk
    tile = (CPU.tile_rows, CPU.tile_columns) if on == "cpu" else (30, 40)
    assert plan.tile == tile
    assert (tuning.tile_rows == NEVER) is (on != "cpu")


def test_few_points_are_gathered_and_on_cpu_their_pixels():
    few = LIMITS.box_samples
    assert [few_points(count) for count in (few, few + 1, None)] == [True, False, False]
    assert [reads_pixels("cpu", count) for count in (few, few + 1)] == [True, False]
    assert not reads_pixels("gpu", few)


def test_boxes_of_a_product_and_of_points_held_at_once():
    most, points = LIMITS.boxes_of_a_product, LIMITS.box_points
    assert [boxes_of_a_product(count) for count in (1, most, most + 1)] == [1, most, most]
    assert boxes_at_once((2, 4), points // 16) == 2
    assert boxes_at_once((2, 4), points // 16 + 1) == 1
    assert boxes_at_once((2, 4), points) == 1
    assert boxes_at_once((2, 4), 0) == points // 8
