"""Sorting networks, and positions of ranks."""

import itertools

import pytest

from jaxpool._geometry.window import make_window
from jaxpool._plan.rank_pool import possible_positions, sorting_network


def apply_network(count, ranks, values):
    """Return the values at `ranks` after the network. Values marked as unused become None, which cannot be compared."""
    values = list(values)
    for low, high, less, greater in sorting_network(count, ranks):
        two = values[low], values[high]
        values[low] = min(two) if less else None
        values[high] = max(two) if greater else None
    return [values[rank] for rank in ranks]


@pytest.mark.parametrize("count", range(1, 9))
def test_sorting_network_sorts(count):
    """A network that sorts all sequences of zeros and ones sorts everything (Knuth 5.3.4, theorem Z)."""
    for ranks in [*[(rank,) for rank in range(count)], tuple(range(count))]:
        for values in itertools.product((0, 1), repeat=count):
            assert apply_network(count, ranks, values) == [sorted(values)[rank] for rank in ranks]


def test_sorting_network_has_no_unneeded_comparator():
    """Full sorts have Batcher's number of comparators; one rank has only those that it depends on."""
    whole = {count: len(sorting_network(count, tuple(range(count)))) for count in (1, 2, 4, 8, 16)}
    assert whole == {1: 0, 2: 1, 4: 5, 8: 19, 16: 63}
    assert len(sorting_network(9, (0,))) == 8
    assert len(sorting_network(9, (4,))) < len(sorting_network(9, tuple(range(9))))


@pytest.mark.parametrize(
    ("rank", "positions"), [(1, (1,)), (-1, (5,)), ("higher", (1, 2, 3)), ("lower", (0, 1, 2))]
)
def test_possible_positions(rank, positions):
    """Windows at the ends of the axes have 2, 3 or 4 of 6 elements."""
    window = make_window((1, 5, 4, 1), (3, 2), (2, 1), "SAME")
    assert possible_positions(window, rank) == positions
