"""How many boxes, and parts of a box, are pooled at once."""

from jaxpool._plan.regions import (
    boxes_at_once,
    boxes_of_a_product,
    parts_of_a_box,
)
from jaxpool._plan.tuning import LIMITS


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
