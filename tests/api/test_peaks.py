"""`local_maxima` and `local_minima`: plateaus, ends of an axis, NaN, infinities and even window sizes."""

import numpy as np
import pytest

import jaxpool

nan, inf = np.nan, np.inf
TIE_RULES = ("first", "last", "all")


def peak_indices(values, ties, window=3, name="local_maxima"):
    x = np.asarray(values, np.float32)
    return np.flatnonzero(getattr(jaxpool, name)(x, window, axes=(0,), ties=ties)).tolist()


@pytest.mark.parametrize(
    ("values", "first", "last", "every"),
    [
        ([0, 2, 1, 3, 0], [1, 3], [1, 3], [1, 3]),
        ([1, 1, 1, 1, 0], [0], [3], [0, 1, 2, 3]),  # a plateau wider than a window
        ([0, 5, 5, 0, 5], [1, 4], [2, 4], [1, 2, 4]),
        ([-inf, -inf, 0, -inf, -inf], [0, 2], [2, 4], [0, 2, 4]),
        ([-inf] * 3, [0], [2], [0, 1, 2]),
        ([1, nan, 9, 0, nan], [1, 4], [1, 4], [1, 4]),
        ([0.0, -0.0, -1, 3, 2], [0, 3], [1, 3], [0, 1, 3]),
        ([7], [0], [0], [0]),
    ],
)
def test_worked_examples(values, first, last, every):
    for ties, want in zip(TIE_RULES, (first, last, every), strict=True):
        assert peak_indices(values, ties) == want
        assert peak_indices(np.negative(values), ties, name="local_minima") == want


def test_even_window_has_its_extra_element_at_the_end():
    assert peak_indices([3, 2, 1, 5, 4], "first", 2) == [0, 1, 3, 4]
    assert peak_indices([3, 2, 1, 5, 4], "first", 4) == [0, 3]


def test_all_local_maxima_equal_their_max_pool():
    x = np.random.default_rng(0).integers(0, 9, (1, 8, 8, 3)).astype(np.int8)
    marks = jaxpool.local_maxima(x, (3, 3), ties="all")
    np.testing.assert_array_equal(marks, x == jaxpool.max_pool(x, (3, 3), padding="SAME"))


def test_tied_neighbors_are_marked_by_axes_order():
    x = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0]], np.float32)
    for axes, want in (((0, 1), [[0, 2], [1, 0]]), ((1, 0), [[1, 0]])):
        marks = jaxpool.local_maxima(x, (3, 3), axes=axes)
        assert np.argwhere(marks).tolist() == want
