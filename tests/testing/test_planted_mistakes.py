"""Mistakes planted in `jaxpool/_geometry`: the oracle must find each of them in a public function."""

import ast
import dataclasses
import inspect
import sys
import textwrap

import jax
import numpy as np
import pytest

from jaxpool._geometry import adaptive, window
from jaxpool._kernels import positions
from jaxpool.testing import Call, PoolCase, assert_pool_matches, pools

X = np.random.default_rng(0).standard_normal((9, 1)).astype(np.float32)


def sliding_case(size, width, stride, padding="VALID", kind="sum", **options):
    return PoolCase(kind, X[:size], None, (width,), (stride,), padding, **options)


def adaptive_call(size, outputs, name="adaptive_avg_pool"):
    return Call(pools()[name], {"x": X[:size], "output_shape": (outputs,)})


VALID = sliding_case(9, 3, 2)
SAME = sliding_case(7, 4, 1, "SAME")
PAIR = sliding_case(7, 3, 2, ((2, 0),))
DILATED = sliding_case(8, 3, 2, ((1, 2),), window_dilation=(2,))
CEIL = sliding_case(8, 3, 2, ((1, 1),), "avg", ceil_mode=True)
DROPPED = sliding_case(5, 2, 3, ((1, 1),), ceil_mode=True)
EXCLUDED = sliding_case(6, 4, 2, ((2, 2),), "avg", count_include_pad=False)
MEDIAN = sliding_case(6, 4, 2, ((2, 1),), "median")
LARGEST = sliding_case(7, 4, 1, "SAME", "max")
Axis = window.Axis

# function, its text, the mistake, and a call that shows it
MISTAKES = {
    "one window less": (
        window._output_size,
        "return (padded_size - span) // stride + 1",
        "return (padded_size - span) // stride",
        VALID,
    ),
    "one window more in ceil mode": (
        window._output_size,
        "return out - 1 if (out - 1) * stride >= size_without_high_padding else out",
        "return out",
        DROPPED,
    ),
    "ceil mode rounds down": (
        window._output_size,
        "out = -(-(padded_size - span) // stride) + 1",
        "out = (padded_size - span) // stride + 1",
        CEIL,
    ),
    "padding after the end counts where a window may start": (
        window._make_axis,
        "stride, size + low, ceil_mode)",
        "stride, size + low + high, ceil_mode)",
        DROPPED,
    ),
    "SAME is SAME_LOWER": (
        window._make_axis,
        'total_padding // 2 if padding == "SAME" else',
        'total_padding - total_padding // 2 if padding == "SAME" else',
        SAME,
    ),
    "SAME_LOWER is SAME": (
        window._make_axis,
        "else total_padding - total_padding // 2",
        "else total_padding // 2",
        dataclasses.replace(SAME, padding="SAME_LOWER"),
    ),
    "SAME does not count dilation": (
        window._make_axis,
        "* stride + span - size, 0)",
        "* stride + window - size, 0)",
        dataclasses.replace(DILATED, padding="SAME"),
    ),
    "SAME rounds its size down": (
        window._make_axis,
        "(-(-size // stride) - 1)",
        "(size // stride - 1)",
        sliding_case(7, 3, 2, "SAME"),
    ),
    "low and high padding swapped": (
        window._make_axis,
        "low, high = padding",
        "high, low = padding",
        PAIR,
    ),
    "a dilated window too long by its dilation": (
        window._make_axis,
        "span = (window - 1) * dilation + 1",
        "span = window * dilation",
        DILATED,
    ),
    "an overhang counts in the divisor": (
        Axis.num_taps_counted,
        "min(self.size + self.low + self.high, self.covered_size)",
        "self.covered_size",
        CEIL,
    ),
    "padding counts in the divisor": (
        Axis.last_tap_inside,
        "self.size - 1 + self.low",
        "self.size + self.low",
        EXCLUDED,
    ),
    "low padding counts in the divisor": (
        Axis.first_tap_inside,
        "-((out_index * self.stride - self.low) // self.dilation)",
        "0 * out_index",
        EXCLUDED,
    ),
    "offsets of taps without dilation": (
        window.window_access,
        "tap * dim.dilation - dim.low",
        "tap - dim.low",
        DILATED,
    ),
    "offsets of taps on the other side": (
        window.window_access,
        "- dim.low, tap * tap_stride",
        "+ dim.low, tap * tap_stride",
        PAIR,
    ),
    "the last element is not read": (
        window.AxisAccess.valid_range,
        "min(stop, last + 1)",
        "min(stop, last)",
        SAME,
    ),
    "elements read by the windows before": (
        window.AxisAccess.transposed,
        "d // self.stride, tap",
        "d // self.stride - 1, tap",
        LARGEST,
    ),
    "adaptive windows start at a ceiling": (
        positions.ragged_window_bounds,
        "start = scaled_floor_division(table, window_numbers)",
        "start = scaled_floor_division(table, window_numbers, dim.out - 1)",
        adaptive_call(7, 3, "adaptive_max_pool_with_argmax"),
    ),
    "adaptive windows end at a floor": (
        positions.ragged_window_bounds,
        "scaled_floor_division(table, window_numbers + 1, dim.out - 1)",
        "scaled_floor_division(table, window_numbers + 1)",
        adaptive_call(7, 3),
    ),
    "adaptive windows of one size too wide": (
        adaptive._adaptive_axis.__wrapped__,
        "width, width, 1, 0, 0, num_windows)\n    width = ",
        "width + 1, width, 1, 0, 0, num_windows)\n    width = ",
        adaptive_call(8, 4),
    ),
}


def clear_all_caches():
    """Clear the caches of jax and jaxpool, which hold results of the changed functions."""
    jax.clear_caches()
    for name, module in list(sys.modules.items()):
        if name.startswith("jaxpool."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@pytest.fixture
def plant(monkeypatch):
    """A function that replaces text in the body of a function, for one test."""

    def planted(function, right, wrong):
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(right) == 1
        tree = ast.parse(source.replace(right, wrong))
        tree.body[0].decorator_list = []
        namespace = {}
        exec(compile(tree, "planted", "exec"), function.__globals__, namespace)
        monkeypatch.setattr(function, "__code__", namespace[function.__name__].__code__)
        clear_all_caches()

    yield planted
    monkeypatch.undo()
    clear_all_caches()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_geometry_mistake_is_detected(mistake, plant):
    function, right, wrong, case = MISTAKES[mistake]
    call = case.call() if isinstance(case, PoolCase) else case
    y = call.answer().y
    dy = np.arange(1, 1 + y.size, dtype=np.float32).reshape(y.shape)
    case = dataclasses.replace(case, dy=dy)
    assert_pool_matches(call.pool.function, case)
    plant(function, right, wrong)
    with pytest.raises((AssertionError, ValueError)):
        assert_pool_matches(call.pool.function, case)
