"""Window geometry, against the windows of the oracle and against loops over every tap."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import MAX_WINDOW_OVERHANG, make_window, replace_sizes
from jaxpool.testing import Geometry, geometries, pools
from jaxpool.testing._windows import NoWindowError, sliding_windows

PADS = [*[(low, 3 - low) for low in range(4)], (9, 0), (0, 9), (5, 5)]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding", ["VALID", "SAME", "SAME_LOWER", *[[each] for each in PADS]])
def test_windows_match_oracle(padding, ceil_mode):
    """Positions of taps, the divisor of an average, the first window of padding alone, and the padding in use."""
    for size, window, stride, dilation in itertools.product(*[range(1, n) for n in (9, 5, 5, 5)]):
        arguments = (size,), window, stride, padding
        options = {"window_dilation": dilation, "ceil_mode": ceil_mode, "axes": (0,)}
        try:
            wanted = sliding_windows(*arguments, **options, allow_empty=True)
        except NoWindowError:
            with pytest.raises(ArgumentError):
                make_window(*arguments, **options, empty_windows="allow")
            continue
        geometry = make_window(*arguments, **options, empty_windows="allow")
        (dim,), (elements,), (taps,) = (
            geometry.dims,
            wanted.element_positions,
            wanted.tap_positions,
        )
        assert (geometry.output_shape, geometry.size) == (
            wanted.output_shape,
            wanted.taps_per_window,
        )
        empty = [output for output, held in enumerate(elements) if not held]
        assert dim.first_empty_window() == (empty[0] if empty else None)
        counts = dim.num_taps_inside(dim.representative_windows())
        assert {*counts.tolist()} == {*map(len, elements)}
        for output, row in enumerate(dim.tap_positions().tolist()):
            inside = [tap for tap, at in enumerate(taps[output]) if 0 <= at < size]
            assert [at for at in row if at < size] == elements[output]
            assert dim.num_taps_counted(output) == wanted.num_taps_counted((output,))
            assert dim.num_taps_inside(output) == len(inside)
            first, last = dim.first_tap_inside(output), dim.last_tap_inside(output)
            assert inside == list(range(first, last + 1))
        assert dim.low == -taps[0][0]
        assert dim.used_high == taps[-1][-1] + 1 - size
        assert dim.covered_size == taps[-1][-1] + 1 - taps[0][0]
        assert geometry.is_padded == dim.is_padded == (taps[0][0] < 0 or taps[-1][-1] >= size)


@given(geometries())
def test_shapes_and_overlap_match_oracle(geometry: Geometry):
    fields = dataclasses.asdict(geometry)
    shape = fields.pop("shape")
    window, wanted = make_window(shape, **fields), sliding_windows(shape, **fields)
    assert window.pooled_shape(shape) == wanted.output_shape_of(shape)
    assert window.unpooled_shape(window.pooled_shape(shape)) == shape
    assert window.has_overlap or not wanted.has_overlapping_windows
    if window.has_overlap:
        # Padding included, because two windows may overlap in padding only.
        every = [[*itertools.chain(*windows)] for windows in wanted.tap_positions]
        assert any(len(set(reached)) < len(reached) for reached in every)


@pytest.mark.parametrize(
    ("padding", "low", "high"),
    [
        ("VALID", 0, 0),
        ("SAME", 1, 2),
        ("SAME_LOWER", 2, 1),
        (1, 1, 1),
        ((2,), 2, 2),
        ([2], 2, 2),
        (((0, 3),), 0, 3),
        ([[1, 0]], 1, 0),
        (np.int64(2), 2, 2),
    ],
)
def test_forms_of_padding(padding, low, high):
    (dim,) = make_window((7, 1), (4,), (1,), padding).dims
    assert (dim.low, dim.high) == (low, high)


@pytest.mark.parametrize("value", [2, np.int32(2), (2, 2), [2, 2], (np.int64(2), 2)])
@pytest.mark.parametrize("argument", ["window_shape", "strides", "window_dilation"])
def test_int_and_list_arguments_are_normalized(argument, value):
    arguments = {"window_shape": (2, 2), "axes": (1, 2)} | {argument: value}
    written_out = arguments | {argument: (2, 2)}
    assert make_window((1, 9, 9, 1), **arguments) == make_window((1, 9, 9, 1), **written_out)


def test_default_and_negative_axes():
    assert make_window((2, 3, 8, 9, 4), (2, 2)).axes == (2, 3)
    assert make_window((2, 3, 8, 9), (2, 2), axes=(-2, -1)).axes == (2, 3)
    assert make_window((2, 3, 8, 9), (2, 1), axes=(3, 1)).window_shape == (2, 1)
    assert replace_sizes((2, None, 4), (1, 0), (7, 8)) == (8, 7, 4)


def test_taps_are_row_major_in_the_order_of_axes():
    window = make_window((5, 5), (2, 3), axes=(1, 0))
    assert [window.unravel(flat) for flat in range(6)] == [*itertools.product(range(2), range(3))]


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


@pytest.mark.parametrize(
    "name", [n for n, pool in pools().items() if pool.takes("window_dilation")]
)
def test_dilation_of_one_element_has_no_effect(name):
    """Also dilations and strides beyond int32."""
    x = np.arange(8, dtype=np.float32).reshape(1, 4, 2, 1)
    mask = np.arange(4)[:, None, None] < 3

    def program(dilation, stride):
        pool = pools()[name].of(
            **{"window_shape": (1, 2), "strides": (stride, 1), "window_dilation": (dilation, 1)},
            **{"padding": "VALID", "where": mask, "key": None, "kernel": np.ones((1, 2), x.dtype)},
        )
        return str(jax.make_jaxpr(jax.value_and_grad(lambda x: pool(x).sum()))(x))

    for dilation, stride in ((2**31, 1), (2**62, 2**62)):
        assert program(dilation, stride) == program(1, min(stride, 4))


def test_window_size_limits():
    longest, shape = 4 + MAX_WINDOW_OVERHANG, (1, 2**16, 2**16, 1)
    assert make_window((4, 1), (longest,), padding="SAME").output_shape == (4,)
    with pytest.raises(ArgumentError, match="longer than the input"):
        make_window((4, 1), (longest + 1,), padding="SAME")
    assert adaptive_window((4, 1), (longest,), None).output_shape == (longest,)
    with pytest.raises(ArgumentError, match="more than the input"):
        adaptive_window((4, 1), (longest + 1,), None)
    with pytest.raises(ArgumentError, match="more windows than the input has positions"):
        adaptive_window((4, 4, 1), (2**13, 2**13), None)
    assert make_window(shape, (2**16, 2**16 - 1)).size == 2**32 - 2**16
    with pytest.raises(ArgumentError, match=r"fewer than 2\*\*32"):
        make_window(shape, (2**16, 2**16))


@pytest.mark.parametrize(("channels", "hinted"), [(1, True), (2, False), (3, True)])
def test_channels_first_hint(channels, hinted):
    with pytest.raises(ArgumentError) as raised:
        make_window((8, channels, 28, 28), (5, 5))
    assert ("pass axes=(2, 3)" in raised.value.hint) is hinted


def test_too_long_window_error_shows_sizes():
    with pytest.raises(ArgumentError) as raised:
        make_window((3, 1), (5,), (1,), ((2, 1),), window_dilation=2)
    assert "the padded input, 6 along axis 0 (it spans 9)" in raised.value.args[1]


def test_sizes_near_int64_limit():
    far = 2**63 - 1
    with pytest.raises(ArgumentError, match="window 0 along axis 0 holds none"):
        make_window((10,), (3,), (1,), ((far, 0),), axes=(0,))
    axis = make_window((2,), (3,), (far,), ((0, far),), axes=(0,)).dims[0]
    outputs = np.arange(axis.out)
    counts = axis.num_taps_counted(outputs).tolist(), axis.num_taps_inside(outputs).tolist()
    assert counts == ([3], [2])


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None, (1,)])
def test_is_int_rejects_other_types(value):
    assert not is_int(value)


class _Integer:
    """An integer without comparisons or arithmetic."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_sizes_are_converted_by_index_method():
    two, none = _Integer(2), _Integer(0)
    of_ints = make_window((8, 9), (2, 2), (2, 2), ((0, 2), (0, 2)), axes=(0, 1), window_dilation=2)
    of_objects = make_window(
        (8, 9), (two, two), two, ((none, two),) * 2, axes=(0, 1), window_dilation=two
    )
    assert of_objects == of_ints
    for sizes in ((two, None), two):
        assert adaptive_window((8, 9), sizes, (0, 1)).pooled_shape((8, 9))[0] == 2
    for padding in ((two, two), (two, two, none)):
        with pytest.raises(ArgumentError, match="padding"):
            make_window((8,), (2,), (1,), padding, axes=(0,))
    with pytest.raises(ArgumentError, match="output_shape"):
        adaptive_window((8, 9), (none, two), (0, 1))
