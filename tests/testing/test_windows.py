"""The oracle's geometry: worked examples, and the sizes and windows of PyTorch and lax."""

import itertools

import numpy as np
import pytest
from jax import lax

from jaxpool.testing._windows import (
    NoWindowError,
    adaptive_windows,
    fractional_windows,
    sliding_windows,
)

try:
    import torch
except ImportError:
    torch = None

with_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


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


def membership(positions_along_axes, shape):
    """A bool array of shape (*shape, *outputs): True if an element belongs to a window."""
    y, rank = np.ones((), bool), len(shape)
    for windows, size in zip(positions_along_axes, shape, strict=True):
        y = np.multiply.outer(y, [[at in taps for taps in windows] for at in range(size)])
    return y.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])


def torch_pool_of_unit_arrays(pool, shape):
    """Results of a PyTorch pool for every array of zeros with a single 1."""
    size = int(np.prod(shape))
    y = pool(torch.eye(size, dtype=torch.float64).reshape(size, 1, *shape)).numpy()
    return y.reshape(*shape, *y.shape[2:])


@with_torch
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool_windows_match_torch(ceil_mode):
    compared = 0
    for size, window, stride, dilation in itertools.product(*[range(1, n) for n in (10, 5, 6, 4)]):
        for padding in range(window // 2 + 1):
            arguments = (size, window, stride, padding)
            options = {"window_dilation": dilation, "ceil_mode": ceil_mode}
            pool = torch.nn.MaxPool1d(window, stride, padding, dilation, ceil_mode=ceil_mode)
            try:
                y = torch_pool_of_unit_arrays(pool, (size,))
            except RuntimeError:  # PyTorch has no window either
                with pytest.raises(NoWindowError):
                    window_elements(*arguments, **options)
                continue
            elements = window_elements(*arguments, **options, allow_empty=True)
            want = membership([elements], (size,))
            np.testing.assert_array_equal(want, y == 1, str((arguments, options)))
            compared += 1
    assert compared > 700


@with_torch
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_avg_pool_windows_match_torch(ceil_mode):
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape, window, strides = (tuple(map(int, rng.integers(1, n, 2))) for n in (9, 5, 5))
        padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in window)
        pads = [(n, n) for n in padding]
        if any(n + 2 * p < k for n, k, p in zip(shape, window, padding, strict=True)):
            continue
        windows = sliding_windows((*shape, 1), window, strides, pads, ceil_mode=ceil_mode)
        pool = torch.nn.AvgPool2d(window, strides, padding, ceil_mode)
        y = torch_pool_of_unit_arrays(pool, shape)
        divisors = [windows.num_taps_counted(output) for output in np.ndindex(windows.output_shape)]
        want = membership(windows.element_positions, shape)
        want = want / np.reshape(divisors, windows.output_shape)
        np.testing.assert_allclose(y, want, rtol=1e-12)


@with_torch
def test_adaptive_windows_match_torch():
    for size, n in itertools.product(range(1, 14), range(1, 17)):
        want = membership(adaptive_windows((size,), (n,), (0,)).element_positions, (size,))
        y = torch_pool_of_unit_arrays(torch.nn.AdaptiveAvgPool1d(n), (size,))
        np.testing.assert_allclose(y, want / want.sum(0), rtol=1e-12)


@with_torch
def test_fractional_windows_match_torch():
    """PyTorch's random numbers start with the last axis in two dimensions."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        shape = tuple(map(int, rng.integers(1, 9, 2)))
        window = tuple(int(rng.integers(1, n + 1)) for n in shape)
        outs = tuple(int(rng.integers(1, n - k + 2)) for n, k in zip(shape, window, strict=True))
        samples = rng.random(2)
        each = torch.tensor(samples[::-1].copy()).expand(shape[0] * shape[1], 1, 2)
        pool = torch.nn.FractionalMaxPool2d(window, outs, _random_samples=each)
        positions = map(fractional_windows, samples, shape, window, outs)
        y = torch_pool_of_unit_arrays(pool, shape)
        np.testing.assert_array_equal(y == 1, membership(positions, shape))
