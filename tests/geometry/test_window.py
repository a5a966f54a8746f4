"""Window geometry, against loops over every tap and against lax."""

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Axis, Window, full_window, make_window, replace_sizes
from jaxpool.testing import Geometry, geometries
from jaxpool.testing._windows import NoWindowError, sliding_windows
from tests.support import lax_pools


def window_of(geometry: Geometry) -> Window:
    fields = dataclasses.asdict(geometry)
    return make_window(fields.pop("shape"), **fields)


def tap_positions(dim, output):
    return [output * dim.stride - dim.low + tap * dim.dilation for tap in range(dim.window)]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    "padding", ["VALID", "SAME", "SAME_LOWER", *[[(low, 3 - low)] for low in range(4)]], ids=str
)
def test_windows_match_oracle(padding, ceil_mode):
    """Sizes, the position of each tap, and the divisor of an average."""
    for size, window, stride, dilation in itertools.product(*[range(1, n) for n in (9, 5, 5, 4)]):
        arguments = (size,), window, stride, padding
        options = {"window_dilation": dilation, "ceil_mode": ceil_mode, "axes": (0,)}
        try:
            wanted = sliding_windows(*arguments, **options, allow_empty=True)
        except NoWindowError:
            with pytest.raises(ArgumentError):
                make_window(*arguments, **options, empty_windows="allow")
            continue
        geometry = make_window(*arguments, **options, empty_windows="allow")
        (dim,), (elements,) = geometry.dims, wanted.element_positions
        assert (geometry.output_shape, geometry.size) == (
            wanted.output_shape,
            wanted.taps_per_window,
        )
        assert (dim.first_empty_window() is None) == bool(wanted.min_elements_per_window)
        for output, row in enumerate(dim.tap_positions().tolist()):
            assert [at for at in row if at < size] == elements[output]
            assert dim.num_taps_counted(output) == wanted.num_taps_counted((output,))


@given(geometries())
def test_num_taps_inside(geometry):
    for dim in window_of(geometry).dims:
        for output in range(dim.out):
            inside = [
                tap for tap, at in enumerate(tap_positions(dim, output)) if 0 <= at < dim.size
            ]
            assert dim.num_taps_inside(output) == len(inside)
            assert inside == list(
                range(dim.first_tap_inside(output), dim.last_tap_inside(output) + 1)
            )


@given(geometries())
def test_num_taps_counted_includes_explicit_padding(geometry):
    for dim in window_of(geometry).dims:
        for output in range(dim.out):
            reach = range(-dim.low, dim.size + dim.high)
            assert dim.num_taps_counted(output) == sum(
                at in reach for at in tap_positions(dim, output)
            )


@given(geometries())
def test_covered_size_used_high_and_is_padded(geometry):
    window = window_of(geometry)
    for dim in window.dims:
        reached = [at for output in range(dim.out) for at in tap_positions(dim, output)]
        assert min(reached) == -dim.low
        assert dim.covered_size == max(reached) + dim.low + 1
        assert dim.used_high == max(reached) + 1 - dim.size
        assert dim.is_padded == (min(reached) < 0 or max(reached) >= dim.size)
    assert window.is_padded == any(dim.is_padded for dim in window.dims)


@given(geometries())
def test_has_overlap(geometry):
    window = window_of(geometry)
    reached = [
        position
        for output in np.ndindex(*window.output_shape)
        for position in itertools.product(
            *(tap_positions(dim, o) for dim, o in zip(window.dims, output, strict=True))
        )
    ]
    inside = [
        position
        for position in reached
        if all(0 <= at < dim.size for at, dim in zip(position, window.dims, strict=True))
    ]
    if window.has_overlap:
        # Padding included, because two windows may overlap in padding only.
        assert len(set(reached)) < len(reached)
    else:
        assert len(set(inside)) == len(inside)


@given(geometries(ceil_mode=False))
def test_output_shape_matches_lax(geometry):
    fields = dataclasses.asdict(geometry)
    x = jax.ShapeDtypeStruct(fields.pop("shape"), np.float32)
    fields.pop("ceil_mode")
    expected = jax.eval_shape(lambda x: lax_pools.max_pool(x, **fields), x).shape
    window = window_of(geometry)
    assert window.pooled_shape(x.shape) == expected
    assert window.unpooled_shape(expected) == x.shape


# (size, window, stride, padding, dilation) -> PyTorch's output sizes without and with ceil_mode
CEIL_SIZES = [
    ((5, 2, 2, 0, 1), 2, 3),
    ((6, 2, 2, 0, 1), 3, 3),
    ((7, 3, 2, 0, 1), 3, 3),
    ((8, 3, 2, 0, 1), 3, 4),
    ((8, 3, 2, 1, 1), 4, 5),
    ((6, 3, 3, 1, 1), 2, 3),
    ((5, 2, 3, 1, 1), 2, 2),  # a third window would start in the high padding
    ((4, 1, 3, 0, 1), 2, 2),
    ((4, 1, 2, 0, 1), 2, 2),  # a third window would start beyond the input
    ((9, 3, 2, 0, 2), 3, 3),
    ((10, 3, 2, 0, 2), 3, 4),
    ((10, 3, 4, 1, 3), 2, 3),
]


@pytest.mark.parametrize(("sizes", "floor", "ceil"), CEIL_SIZES)
def test_ceil_mode_output_sizes(sizes, floor, ceil):
    size, window, stride, padding, dilation = sizes
    arguments = {"strides": (stride,), "padding": padding, "window_dilation": (dilation,)}
    assert make_window((size, 1), (window,), **arguments).output_shape == (floor,)
    rounded_up = make_window((size, 1), (window,), **arguments, ceil_mode=True)
    assert rounded_up.output_shape == (ceil,)


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


def test_strides_default_to_one():
    assert make_window((6, 6, 1), (2, 2)).output_shape == (5, 5)


def test_same_padding_uses_dilated_window():
    window = make_window((8, 1), (3,), (2,), "SAME", window_dilation=(3,))
    assert window.output_shape == (4,)
    assert (window.dims[0].low, window.dims[0].high) == (2, 3)


def test_default_and_negative_axes():
    assert make_window((2, 3, 8, 9, 4), (2, 2)).axes == (2, 3)
    assert make_window((2, 3, 8, 9), (2, 2), axes=(-2, -1)).axes == (2, 3)
    assert make_window((2, 3, 8, 9), (2, 1), axes=(3, 1)).window_shape == (2, 1)


def test_taps_are_row_major_in_the_order_of_axes():
    window = make_window((5, 5), (2, 3), axes=(1, 0))
    assert window.size == math.prod(window.window_shape) == 6
    assert [window.unravel(flat) for flat in range(6)] == [*itertools.product(range(2), range(3))]


def test_starts_and_tap_positions():
    axis = make_window((5,), (3,), (2,), [(2, 1)], axes=(0,)).dims[0]
    assert axis.starts().tolist() == [-2, 0, 2]
    assert (axis.tap_positions() < axis.size).astype(int).tolist() == [
        [0, 0, 1],
        [1, 1, 1],
        [1, 1, 1],
    ]
    wide = make_window((4,), (2,), padding=[(1, 1)], window_dilation=3, axes=(0,)).dims[0]
    assert wide.starts().tolist() == [-1, 0, 1]
    assert (wide.tap_positions() < wide.size).astype(int).tolist() == [[0, 1], [1, 1], [1, 0]]
    ragged = adaptive_window((5,), (3,), (0,)).dims[0]
    assert ragged.starts().tolist() == [0, 1, 3]
    assert (ragged.tap_positions() < ragged.size).astype(int).tolist() == [
        [1, 1, 0],
        [1, 1, 1],
        [1, 1, 0],
    ]


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER"])
@pytest.mark.parametrize(("size", "window", "stride"), [(4, 1, 2), (9, 2, 4), (8, 1, 3)])
def test_same_padding_is_not_negative_for_large_strides(padding, size, window, stride):
    axis = make_window((size,), (window,), (stride,), padding, axes=(0,)).dims[0]
    rest = max(0, (axis.out - 1) * stride + window - size)
    assert (axis.out, axis.low + axis.high, min(axis.low, axis.high)) == (
        -(-size // stride),
        rest,
        0,
    )


def test_replace_sizes():
    assert replace_sizes((2, None, 4), (1, 0), (7, 8)) == (8, 7, 4)


def test_windows_are_frozen_and_hashable():
    one = make_window([4, 4, 1], [2, 2], 2, "SAME")
    two = make_window((4, 4, 1), (2, 2), (2, 2), "SAME")
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, make_window((4, 4, 1), (2, 2))}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.dims = ()


def test_full_window_covers_its_axes():
    window = full_window((2, 3, 5), (2, 1))
    assert window.dims == (Axis(2, 5, 5, 1, 1, 0, 0, 1), Axis(1, 3, 3, 1, 1, 0, 0, 1))
    assert window.window_shape == window.input_shape == (5, 3)
    assert window.output_shape == (1, 1)
    assert not window.is_padded
    assert not window.has_overlap


def test_too_long_window_error_shows_sizes():
    with pytest.raises(ArgumentError) as raised:
        make_window((3, 1), (5,), (1,), ((2, 1),), window_dilation=2)
    assert "the padded input, 6 along axis 0 (it spans 9)" in raised.value.args[1]


def test_empty_windows_raise_unless_allowed():
    with pytest.raises(ArgumentError):
        make_window((2, 1), (1,), (1,), 1)
    allowed = make_window((2, 1), (1,), (1,), 1, empty_windows="allow")
    assert [allowed.dims[0].num_taps_inside(output) for output in range(4)] == [0, 1, 1, 0]


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1)])
def test_is_int_accepts_integers(value):
    assert is_int(value)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None, (1,)])
def test_is_int_rejects_other_types(value):
    assert not is_int(value)
