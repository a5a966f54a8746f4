"""Windows of adaptive pools, compared with the slices that define them."""

import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Axis, make_window


@pytest.mark.parametrize("out", [*range(1, 17), 25, 36, 59])
def test_adaptive_window_taps(out):
    for size in (*range(1, 14), 24, 39):
        (dim,) = adaptive_window((1, size, 1), (out,), None).dims
        wanted = [range(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        longest = max(map(len, wanted))
        for row, real in zip(dim.tap_positions(), wanted, strict=True):
            assert row.tolist() == [*real] + [size] * (longest - len(real))
        assert (dim.window, dim.is_padded) == (longest, size % out != 0)
        holding = [sum(position in real for real in wanted) for position in range(size)]
        assert dim.max_overlap == max(holding)


def test_padded_axes_come_first():
    window = adaptive_window((2, 8, 9, 7, 3), (4, 4, 3), None)
    assert window.padded_axes_first(5) == ((2, 3, 0, 1, 4), (2, 3, 0, 1, 4))
    window = adaptive_window((2, 8, 9, 3), (4, 4), None)
    assert window.padded_axes_first(4) == ((2, 0, 1, 3), (1, 2, 0, 3))


def test_windows_of_equal_lengths_are_those_of_a_pool():
    window = adaptive_window((2, 8, 9, 3), (4, 3), None)
    assert window.as_window() == make_window((2, 8, 9, 3), (2, 3), (2, 3))


def test_output_size_none_or_int():
    assert adaptive_window((2, 8, 9, 3), (None, 4), None).output_shape == (8, 4)
    assert adaptive_window((2, 8, 9, 3), [4, None], (3, -4)).output_shape == (4, 2)
    assert adaptive_window((2, 8, 9, 3), 3, (1, 2)).output_shape == (3, 3)


@pytest.mark.parametrize(
    ("sizes", "identity", "covers"),  # size, window, stride, dilation, low, high, out
    [
        ((5, 1, 1, 1, 0, 0, 5), True, False),
        ((5, 5, 1, 1, 0, 0, 1), False, True),
        ((1, 1, 1, 1, 0, 0, 1), True, True),
        ((5, 1, 2, 1, 0, 0, 3), False, False),
        ((5, 1, 1, 1, 0, 0, 4), False, False),
        ((5, 1, 1, 1, 1, -1, 5), False, False),
        ((5, 5, 1, 1, 1, 0, 1), False, False),
        ((5, 5, 1, 1, 1, 1, 3), False, False),
        ((5, 5, 1, 2, 2, 2, 1), False, False),
        ((5, 4, 1, 1, 0, 0, 2), False, False),
        ((5, 4, 2, 1, 0, 0, 1), False, False),
    ],
)
def test_axis_is_identity_and_is_global(sizes, identity, covers):
    dim = Axis(1, *sizes)
    assert (dim.is_identity, dim.is_global) == (identity, covers)
