"""Geometry computed without a loop over all windows, compared with a loop."""

import random

import numpy as np
import pytest

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import MAX_WINDOW_OVERHANG, make_window


def random_windows(count):
    chance = random.Random(0)
    for _ in range(count):
        size, window, stride = (chance.randint(1, n) for n in (9, 6, 6))
        pads = (chance.randint(0, 30), chance.randint(0, 30))
        options = {"window_dilation": chance.randint(1, 12), "ceil_mode": chance.random() < 0.5}
        yield size, window, stride, pads, options


def test_the_first_empty_window():
    positions = set()
    for size, window, stride, pads, options in random_windows(1500):
        arguments = ((size, 1), (window,), (stride,), (pads,))
        try:
            (dim,) = make_window(*arguments, **options, empty_windows="allow").dims
        except ArgumentError:
            continue
        empty = [output for output in range(dim.out) if not dim.num_taps_inside(output)]
        assert dim.first_empty_window() == (empty[0] if empty else None), dim
        positions.add(min(empty[0], 2) if empty else None)
    assert positions == {None, 0, 1, 2}


def test_num_taps_counted():
    """Taps before the end of the padded input count. In ceil mode the last window may extend beyond it."""
    over = 0
    for size, window, stride, pads, options in random_windows(400):
        try:
            arguments = ((size, 1), (window,), (stride,), (pads,))
            (dim,) = make_window(*arguments, **options, empty_windows="allow").dims
        except ArgumentError:
            continue
        for output in range(dim.out):
            first = output * stride - pads[0]
            taps = [first + tap * dim.dilation for tap in range(window)]
            inside = [at for at in taps if at < size + pads[1]]
            assert dim.num_taps_counted(output) == len(inside), dim
            over += len(inside) < window
    assert over > 20


def test_longest_adaptive_window():
    for size in range(1, 40):
        for count in range(1, 60):
            (dim,) = adaptive_window((size, 1), (count,), None).dims
            ends = [-(-(i + 1) * size // count) for i in range(count)]
            assert dim.window == max(end - i * size // count for i, end in enumerate(ends))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_stride_is_clamped_to_padded_size(ceil_mode):
    for size, window, low, high in [(1, 1, 0, 0), (4, 2, 1, 0), (5, 3, 0, 2), (4, 4, 3, 3)]:
        total = size + low + high
        shapes = {
            make_window((size, 1), (window,), (stride,), ((low, high),), ceil_mode=ceil_mode)
            for stride in (total, total + 1, 10**9, 2**62)
        }
        assert len(shapes) == 1
        (dim,) = shapes.pop().dims
        assert (dim.out, dim.stride) == (1, total)


def test_window_size_limits():
    longest = 4 + MAX_WINDOW_OVERHANG
    assert make_window((4, 1), (longest,), padding="SAME").output_shape == (4,)
    with pytest.raises(ArgumentError, match="longer than the input"):
        make_window((4, 1), (longest + 1,), padding="SAME")
    with pytest.raises(ArgumentError, match=r"fewer than 2\*\*32"):
        make_window((4, 4, 1), (2**16, 2**16), padding="SAME")
    assert adaptive_window((4, 1), (longest,), None).output_shape == (longest,)
    with pytest.raises(ArgumentError, match="more than the input"):
        adaptive_window((4, 1), (longest + 1,), None)
    with pytest.raises(ArgumentError, match="more windows than the input has positions"):
        adaptive_window((4, 4, 1), (2**13, 2**13), None)


def test_number_of_taps_fits_index():
    shape = (1, 2**16, 2**16, 1)
    assert make_window(shape, (2**16, 2**16 - 1)).size == 2**32 - 2**16
    with pytest.raises(ArgumentError, match=r"fewer than 2\*\*32"):
        make_window(shape, (2**16, 2**16))


@pytest.mark.parametrize(("channels", "hinted"), [(1, True), (2, False), (3, True)])
def test_channels_first_hint(channels, hinted):
    with pytest.raises(ArgumentError) as raised:
        make_window((8, channels, 28, 28), (5, 5))
    assert ("pass axes=(2, 3)" in raised.value.hint) is hinted


def test_sizes_near_int64_limit():
    far = 2**63 - 1
    with pytest.raises(ArgumentError, match="window 0 along axis 0 holds none"):
        make_window((10,), (3,), (1,), ((far, 0),), axes=(0,))
    axis = make_window((2,), (3,), (far,), ((0, far),), axes=(0,)).dims[0]
    outputs = np.arange(axis.out)
    assert (axis.num_taps_counted(outputs).tolist(), axis.num_taps_inside(outputs).tolist()) == (
        [3],
        [2],
    )
