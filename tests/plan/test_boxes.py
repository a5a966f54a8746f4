"""Plans of pools over boxes, on both sides of each limit."""

from jaxpool._plan.boxes import (
    boxes_at_once,
    boxes_of_a_product,
    few_points,
    joins_levels,
    parts_of_a_box,
    reads_pixels,
)
from jaxpool._plan.tuning import LIMITS, TUNING


def test_cells_of_few_points_gather_them_and_on_cpu_read_pixels_one_by_one():
    """A count of None means that cells have different numbers of points."""
    few = LIMITS.box_samples
    assert [few_points(count) for count in (few, few + 1, None)] == [True, False, False]
    assert [reads_pixels("cpu", count) for count in (few, few + 1)] == [True, False]
    assert not reads_pixels("gpu", few)


def test_small_levels_are_joined():
    most = 10 * TUNING["cpu"].joined_bytes // 4
    assert [joins_levels("cpu", [n, 5], 4, 10) for n in (most - 5, most - 4)] == [True, False]
    assert not joins_levels("cpu", [5, None], 4, 10)
    assert not joins_levels("gpu", [1], 4, 10)


def test_in_how_many_parts_the_cells_of_a_box_are_sent():
    row = LIMITS.box_points // (5 * 16)  # channels for which a row of five cells fits one part
    assert parts_of_a_box((1, 5), 16, row) == 1
    assert parts_of_a_box((6, 5), 16, row // 3) == 2
    assert parts_of_a_box((6, 5), 16, row // 4) == 2
    assert parts_of_a_box((6, 5), 16, row // 6) == 1
    assert parts_of_a_box((6, 5), 16, row) == 6
    assert parts_of_a_box((6, 5), 16, 2 * row) == 6
    assert parts_of_a_box((6, 5), 16, "C") == 1


def test_how_many_boxes_are_in_a_product():
    most = LIMITS.boxes_of_a_product
    assert [boxes_of_a_product(count) for count in (1, most, most + 1)] == [1, most, most]


def test_of_how_many_boxes_points_are_held():
    points = LIMITS.box_points
    assert boxes_at_once((2, 4), points // 16) == 2
    assert boxes_at_once((2, 4), points // 16 + 1) == 1
    assert boxes_at_once((2, 4), points) == 1
    assert boxes_at_once((2, 4), 0) == points // 8
