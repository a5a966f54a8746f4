"""The oracle's geometry: worked examples, and the padding of lax.

`tests/api` compares the library with this geometry, and `tests/compat/test_torch.py` compares the library with PyTorch.
"""

import itertools

import numpy as np
import pytest
from jax import lax

from jaxpool.testing._windows import NoWindowError, adaptive_windows, sliding_windows


def window_elements(size, window, strides=1, padding="VALID", **options):
    return sliding_windows(
        (size,), window, strides, padding, axes=(0,), **options
    ).element_positions[0]


@pytest.mark.parametrize(
    ("windows", "wanted"),
    [
        (window_elements(5, 2, 2), [[0, 1], [2, 3]]),
        (window_elements(5, 2, 2, ceil_mode=True), [[0, 1], [2, 3], [4]]),
        (window_elements(4, 1, 3, ceil_mode=True), [[0], [3]]),
        (window_elements(4, 1, 2, ceil_mode=True), [[0], [2]]),  # no window starts at the end
        # No window starts in the padding after the end.
        (window_elements(5, 2, 3, 1, ceil_mode=True), [[0], [2, 3]]),
        (window_elements(3, 4, 1, "SAME"), [[0, 1, 2], [0, 1, 2], [1, 2]]),
        (window_elements(3, 4, 1, "SAME_LOWER"), [[0, 1], [0, 1, 2], [0, 1, 2]]),
        (window_elements(4, 2, 1, [(2, 0)], window_dilation=2), [[0], [1], [0, 2], [1, 3]]),
        (window_elements(4, 2, 1, [(0, 2)], window_dilation=2), [[0, 2], [1, 3], [2], [3]]),
        (adaptive_windows((5,), (3,), (0,)).element_positions[0], [[0, 1], [1, 2, 3], [3, 4]]),
        (adaptive_windows((2,), (3,), (0,)).element_positions[0], [[0], [0, 1], [1]]),
    ],
)
def test_worked_examples(windows, wanted):
    assert windows == wanted


@pytest.mark.parametrize("two", [2, np.int8(2), (2, 2), [2, 2], np.array([2, 2])])
def test_argument_forms(two):
    shape, axes = (9, 9), (-2, -1)
    pads, empty = ((2, 2), (2, 2)), {"allow_empty": True}
    wanted = sliding_windows(shape, (2, 2), (2, 2), pads, axes=(0, 1), **empty)
    assert sliding_windows(shape, two, two, two, axes=axes, **empty) == wanted
    assert sliding_windows((9, 9, 1), (2, 2), None).output_shape == (8, 8)
    assert adaptive_windows(shape, two, axes).output_shape == (2, 2)
    assert adaptive_windows(shape, (None, 2), axes).output_shape == (9, 2)


@pytest.mark.parametrize(
    ("size", "window", "padding", "dilation"),
    [(3, 4, 0, 1), (3, 2, 0, 3), (2, 1, 1, 1), (2, 2, ((1, 1),), 3)],
)
def test_empty_window_raises(size, window, padding, dilation):
    with pytest.raises(NoWindowError):
        window_elements(size, window, 1, padding, window_dilation=dilation)


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER"])
def test_same_padding_matches_lax(padding):
    for size, window, stride, dilation in itertools.product(*[range(1, n) for n in (13, 5, 5, 4)]):
        span = (window - 1) * dilation + 1
        ((low, high),) = lax.padtype_to_pads((size,), (span,), (stride,), padding)
        options = {"window_dilation": dilation, "axes": (0,), "allow_empty": True}
        windows = sliding_windows((size,), window, stride, padding, **options)
        assert (-windows.tap_positions[0][0].start, windows.padded_axis_ends[0] - size) == (
            low,
            high,
        )
        assert windows.output_shape == (-(-size // stride),)
