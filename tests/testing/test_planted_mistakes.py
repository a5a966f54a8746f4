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


def sliding(size, width, stride, padding="VALID", kind="sum", **options):
    return PoolCase(kind, X[:size], None, (width,), (stride,), padding, **options)


def adaptive_call(size, outputs, name="adaptive_avg_pool"):
    return Call(pools()[name], {"x": X[:size], "output_shape": (outputs,)})


PAIR = sliding(7, 3, 2, ((2, 0),))
DILATED = sliding(8, 3, 2, ((1, 2),), window_dilation=(2,))
CEIL = sliding(8, 3, 2, ((1, 1),), "avg", ceil_mode=True)
DROPPED = sliding(5, 2, 3, ((1, 1),), ceil_mode=True)
EXCLUDED = sliding(6, 4, 2, ((2, 2),), "avg", count_include_pad=False)
SAME = sliding(7, 4, 1, "SAME")
SAME_MAX = sliding(7, 4, 1, "SAME", "max")
SAME_LOWER = sliding(7, 4, 1, "SAME_LOWER")
SAME_DILATED = sliding(8, 3, 2, "SAME", window_dilation=(2,))
RAGGED = adaptive_call(7, 3, "adaptive_max_pool_with_argmax")
Axis, make_axis, bounds = window.Axis, window._make_axis, positions.ragged_window_bounds
adaptive_axis = adaptive._adaptive_axis.__wrapped__

# function, its text, the mistake, and a call that shows it
MISTAKES = [
    (window._output_size, " // stride + 1", " // stride", sliding(9, 3, 2)),
    (window._output_size, "return out - 1 if", "return out if", DROPPED),
    (
        window._output_size,
        "-(-(padded_size - span) // stride)",
        "(padded_size - span) // stride",
        CEIL,
    ),
    (make_axis, "size + low, ceil_mode", "size + low + high, ceil_mode", DROPPED),
    (make_axis, '== "SAME" else', '!= "SAME" else', SAME),
    (make_axis, '== "SAME" else', '!= "SAME" else', SAME_LOWER),
    (make_axis, "* stride + span - size", "* stride + window - size", SAME_DILATED),
    (make_axis, "(-(-size // stride) - 1)", "(size // stride - 1)", sliding(7, 3, 2, "SAME")),
    (make_axis, "low, high = padding", "high, low = padding", PAIR),
    (make_axis, "(window - 1) * dilation + 1", "window * dilation", DILATED),
    (Axis.num_taps_counted, "self.low + self.high", "self.low + 9", CEIL),
    (Axis.last_tap_inside, "self.size - 1", "self.size", EXCLUDED),
    (Axis.first_tap_inside, "-((out_index", "0 * ((out_index", EXCLUDED),
    (window.window_access, "tap * dim.dilation", "tap", DILATED),
    (window.window_access, "- dim.low", "+ dim.low", PAIR),
    (window.AxisAccess.valid_range, "last + 1", "last", SAME),
    (window.AxisAccess.transposed, "d // self.stride, tap", "d // self.stride - 1, tap", SAME_MAX),
    (bounds, "window_numbers)\n", "window_numbers, dim.out - 1)\n", RAGGED),
    (bounds, "+ 1, dim.out - 1)", "+ 1)", adaptive_call(7, 3)),
    (
        adaptive_axis,
        "return axis_type(axis, length, width",
        "return axis_type(axis, length, width + 1",
        adaptive_call(8, 4),
    ),
]


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


@pytest.mark.parametrize(("function", "right", "wrong", "case"), MISTAKES)
def test_geometry_mistake_is_detected(function, right, wrong, case, plant):
    call = case.call() if isinstance(case, PoolCase) else case
    y = call.answer().y
    dy = np.arange(1, 1 + y.size, dtype=np.float32).reshape(y.shape)
    case = dataclasses.replace(case, dy=dy)
    assert_pool_matches(call.pool.function, case)
    plant(function, right, wrong)
    with pytest.raises((AssertionError, ValueError)):
        assert_pool_matches(call.pool.function, case)
