"""Windows of adaptive pools, compared with the slices that define them."""

import numpy as np
import pytest

from jaxpool._geometry.adaptive import (
    FloorDivisionTable,
    RaggedAxis,
    adaptive_window,
    ragged_first_permutation,
)
from jaxpool._geometry.window import Axis, make_window


def adaptive_slices(size, out):
    return [range(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@pytest.mark.parametrize("out", range(1, 17))
def test_adaptive_window_taps(out):
    for size in range(1, 14):
        assert_adaptive_axis(size, out)


def assert_adaptive_axis(size, out):
    (dim,) = adaptive_window((1, size, 1), (out,), None).dims
    wanted = adaptive_slices(size, out)
    assert (dim.axis, dim.size, dim.out) == (1, size, out)
    assert isinstance(dim, RaggedAxis) == (size % out != 0)
    sources = dim.tap_positions()
    assert sources.shape == (out, dim.window)
    for row, real in zip(sources, wanted, strict=True):
        assert row.tolist() == [*real] + [size] * (dim.window - len(real))
    if not isinstance(dim, RaggedAxis):
        assert dim == Axis(1, size, size // out, size // out, 1, 0, 0, out)
        return
    longest = max(map(len, wanted))
    assert dim == RaggedAxis(1, size, longest, longest, 1, 0, 0, out)
    assert (dim.is_padded, dim.used_high) == (True, 0)
    assert [dim.last_tap_inside(i) for i in range(out)] == [len(real) - 1 for real in wanted]
    holding = [sum(position in real for real in wanted) for position in range(size)]
    assert dim.max_overlap == max(holding)


@pytest.mark.parametrize(
    ("count", "numerator", "denominator", "parts"),
    [(13, 5, 7, 1), (10**7, 63, 10**7, 1), (10**7, 1_428_572, 10**7, 6716), (64, 10**7, 63, 1)],
)
def test_floors_of_products_beyond_32_bits(count, numerator, denominator, parts):
    floors = FloorDivisionTable(count, numerator, denominator)
    whole, rest = floors.divmod_arrays()
    assert len(whole) == parts
    i = np.unique(np.linspace(0, count - 1, 1000).astype(int))
    q, r = i // floors.block_length, i % floors.block_length
    for more in (0, denominator - 1):
        inner = rest[q].astype(int) + r * numerator + more
        assert inner.max() < 2**31
        assert (whole[q] + inner // denominator == (i * numerator + more) // denominator).all()


def test_ragged_axes_come_first():
    window = adaptive_window((2, 8, 9, 7, 3), (4, 4, 3), None)
    assert ragged_first_permutation(window, 5) == ((2, 3, 0, 1, 4), (2, 3, 0, 1, 4))
    window = adaptive_window((2, 8, 9, 3), (4, 4), None)
    assert ragged_first_permutation(window, 4) == ((2, 0, 1, 3), (1, 2, 0, 3))


def test_output_size_none_or_int():
    assert adaptive_window((2, 8, 9, 3), (None, 4), None).output_shape == (8, 4)
    assert adaptive_window((2, 8, 9, 3), [4, None], (3, -4)).output_shape == (4, 2)
    assert adaptive_window((2, 8, 9, 3), 3, (1, 2)).output_shape == (3, 3)


def test_axis_is_identity_and_is_global():
    idle, whole = Axis(1, 5, 1, 1, 1, 0, 0, 5), Axis(1, 5, 5, 1, 1, 0, 0, 1)
    assert (idle.is_identity, idle.is_global, whole.is_identity, whole.is_global) == (
        True,
        False,
        False,
        True,
    )
    assert Axis(1, 1, 1, 1, 1, 0, 0, 1).is_global
    more = [
        Axis(1, 5, 1, 2, 1, 0, 0, 3),
        Axis(1, 5, 1, 1, 1, 0, 0, 4),
        Axis(1, 5, 1, 1, 1, 1, -1, 5),
        Axis(1, 5, 5, 1, 1, 1, 0, 1),
        Axis(1, 5, 5, 1, 1, 1, 1, 3),
        Axis(1, 5, 5, 1, 2, 2, 2, 1),
        Axis(1, 5, 4, 1, 1, 0, 0, 2),
        Axis(1, 5, 4, 2, 1, 0, 0, 1),
    ]
    assert not any(dim.is_identity or dim.is_global for dim in more)


def test_tap_positions():
    (dim,) = make_window((5, 1), (3,), (2,), 1, window_dilation=2).dims
    assert dim.tap_positions().tolist() == [[5, 1, 3], [1, 3, 5]]
    assert dim.tap_positions().dtype == np.int32
    assert (dim.span, dim.covered_size, dim.used_high) == (5, 7, 1)
