"""Plans of pools over boxes, on both sides of each limit."""

from jaxpool._plan.boxes import (
    boxes_in_memory,
    concatenates_levels,
    gathers_pixels,
    gathers_points,
    num_box_parts,
    num_matmul_boxes,
)
from jaxpool._plan.tuning import LIMITS, TUNING


def test_gather_choice_by_sample_count():
    """A count of None means that cells have different numbers of points."""
    few = LIMITS.max_gathered_samples
    assert [gathers_points(count) for count in (few, few + 1, None)] == [True, False, False]
    assert [gathers_pixels("cpu", count) for count in (few, few + 1)] == [True, False]
    assert not gathers_pixels("gpu", few)


def test_small_levels_are_concatenated():
    most = 10 * TUNING["cpu"].max_concatenated_bytes // 4
    assert [concatenates_levels("cpu", [n, 5], 4, 10) for n in (most - 5, most - 4)] == [
        True,
        False,
    ]
    assert not concatenates_levels("cpu", [5, None], 4, 10)
    assert not concatenates_levels("gpu", [1], 4, 10)


def test_num_box_parts():
    # Channels for which a row of five cells fits one part
    row = LIMITS.max_points_in_memory // (5 * 16)
    assert num_box_parts((1, 5), 16, row) == 1
    assert num_box_parts((6, 5), 16, row // 3) == 2
    assert num_box_parts((6, 5), 16, row // 4) == 2
    assert num_box_parts((6, 5), 16, row // 6) == 1
    assert num_box_parts((6, 5), 16, row) == 6
    assert num_box_parts((6, 5), 16, 2 * row) == 6
    assert num_box_parts((6, 5), 16, "C") == 1


def test_num_matmul_boxes():
    most = LIMITS.boxes_per_matmul
    assert [num_matmul_boxes(count) for count in (1, most, most + 1)] == [1, most, most]


def test_boxes_in_memory():
    points = LIMITS.max_points_in_memory
    assert boxes_in_memory((2, 4), points // 16) == 2
    assert boxes_in_memory((2, 4), points // 16 + 1) == 1
    assert boxes_in_memory((2, 4), points) == 1
    assert boxes_in_memory((2, 4), 0) == points // 8
