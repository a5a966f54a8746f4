"""The passes of sums along one axis, evaluated with NumPy, equal the sum over each window."""

import itertools

import numpy as np
import pytest

from jaxpool._geometry.window import make_window
from jaxpool._plan.problem import Problem
from jaxpool._plan.sum_pool import plan_sum
from jaxpool.testing._windows import NoWindowError, sliding_windows

WINDOWS = [  # taps, stride, dilation, padding
    *itertools.product((1, 2, 31, 32, 33, 64, 67, 100), (1, 2, 3, 16), (1, 2), ((0, 0), (5, 3))),
    (100, 40, 1, (60, 0)),
    (99, 7, 3, (0, 90)),
    (66, 64, 1, (65, 1)),
    (50, 100, 1, (7, 0)),
    (33, 12, 1, (0, 0)),
    (33, 20, 3, (9, 9)),
    (37, 2, 2, (0, 0)),  # parts of dilated windows
    (41, 37, 1, (0, 0)),  # a stride that parts do not divide
    (63, 40, 1, (0, 0)),  # parts of 20 taps
    (40, 8, 1, (0, 0)),  # no remaining taps
]


def evaluate_pass(phases, array):
    """Evaluate a pass: the sum of the elements that each position reads."""
    found = np.zeros(sum(access.out for access in phases), np.int64)
    for phase, access in enumerate(phases):
        assert access.size == len(array)
        for position in range(access.out):
            places = [access.stride * position + offset for offset, _ in access.tap_offsets]
            there = [array[place] for place in places if 0 <= place < len(array)]
            found[position * len(phases) + phase] = sum(there)
    return found


def evaluate_plan(plan, x):
    """Evaluate all passes. The second source of a pass is the input of the previous pass."""
    before, now = None, x
    for each in plan.passes:
        (reads,), *more = each.sources
        new = evaluate_pass(reads, now)
        for (reads,) in more:
            new += evaluate_pass(reads, before)
        before, now = now, new
    return now


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_passes_sum_every_window(platform, transposed):
    lengths = set()
    for taps, stride, dilation, pads in WINDOWS:
        given = (190, 1), (taps,), (stride,), (pads,)
        try:
            windows = sliding_windows(*given, window_dilation=(dilation,), allow_empty=True)
        except NoWindowError:
            continue
        options = {"window_dilation": (dilation,), "empty_windows": "allow"}
        problem = Problem(make_window(*given, **options), (190, 1), "int32", platform)
        plan = plan_sum(problem, is_transposed=transposed)
        if plan.disjoint_dims or not plan.passes:
            assert (taps <= stride and dilation == 1 and transposed) or taps == stride == 1
            continue
        (elements,) = windows.element_positions
        matrix = np.zeros((len(elements), 190), np.int64)
        for output, held in enumerate(elements):
            matrix[output, held] = 1
        matrix = matrix.T if transposed else matrix
        x = np.random.default_rng(0).integers(-99, 99, matrix.shape[1])
        np.testing.assert_array_equal(evaluate_plan(plan, x), matrix @ x, err_msg=str(given))
        lengths.add(len(plan.passes))
    assert lengths == {1, 2}


def test_passes_are_independent_of_the_order_of_axes():
    shape = (2, 3, 40, 41)
    windows = (
        make_window(shape, (9, 5), 2, axes=(2, 3)),
        make_window(shape, (5, 9), 2, axes=(3, 2)),
    )
    one, other = (plan_sum(Problem(window, shape, "float32", "cpu")) for window in windows)
    assert one == other
