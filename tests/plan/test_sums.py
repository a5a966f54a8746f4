"""The passes of sums along one axis, evaluated with NumPy, equal the sum over each window."""

import itertools

import numpy as np
import pytest

from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._plan.problem import Problem
from jaxpool._plan.sum_pool import plan_sum

WINDOWS = [  # taps, stride, dilation, padding
    *itertools.product((1, 2, 31, 32, 33, 64, 67, 100), (1, 2, 3, 16), (1, 2), ((0, 0), (5, 3))),
    (100, 40, 1, (60, 0)),
    (99, 7, 3, (0, 90)),
    (66, 64, 1, (65, 1)),
    (50, 100, 1, (7, 0)),
    (33, 12, 1, (0, 0)),
    (33, 20, 3, (9, 9)),
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
        (now_reads,), *more = each.sources
        new = evaluate_pass(now_reads, now) + sum(
            evaluate_pass(phases, before) for (phases,) in more
        )
        before, now = now, new
    return now


def covered_positions(each):
    """Return the positions in the regions of a pass along one axis, and their expected number.

    The last round of phases may be cut off.
    """
    ((phases,), *_), (cuts,) = each.sources, each.layout.axis_regions
    count = sum(access.out for access in phases)
    held = [
        turn * len(phases) + phase
        for cut in cuts
        for turn in range(cut.start, cut.stop)
        for phase in range(cut.num_phases)
    ]
    return [position for position in held if position < count], count


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_passes_sum_every_window(platform, transposed):
    lengths = set()
    for taps, stride, dilation, pads in WINDOWS:
        shape = (190, 1)
        if (taps - 1) * dilation + 1 > 190 + sum(pads):
            continue
        options = {"window_dilation": (dilation,), "empty_windows": "allow"}
        window = make_window(shape, (taps,), (stride,), (pads,), **options)
        (dim,), problem = window.dims, Problem(window, shape, "int32", platform)
        plan = plan_sum(problem, is_transposed=transposed)
        if dim.is_identity or plan.disjoint_dims or plan.global_dims:
            assert plan.passes == ()
            assert plan.disjoint_dims == () or (taps <= stride and dilation == 1 and transposed)
            continue
        matrix = np.zeros((dim.out, dim.size), np.int64)
        for output, tap in itertools.product(range(dim.out), range(taps)):
            at = output * stride - dim.low + tap * dilation
            if 0 <= at < dim.size:
                matrix[output, at] += 1
        matrix = matrix.T if transposed else matrix
        x = np.random.default_rng(0).integers(-99, 99, matrix.shape[1])
        np.testing.assert_array_equal(evaluate_plan(plan, x), matrix @ x, err_msg=str(dim))
        lengths.add(len(plan.passes))
        for each in plan.passes:
            if each.layout.read_mode != "tables":
                held, count = covered_positions(each)
                assert held == list(range(count))
    assert lengths == {1, 2}


def pass_summary(*args, platform="cpu", dtype="float32", **options):
    window = make_window(*args)
    plan = plan_sum(Problem(window, args[0], dtype, platform), **options)
    return [(each.axes, each.layout.read_mode, each.layout.num_regions) for each in plan.passes]


def test_transpose_of_two_passes_may_be_one():
    """Windows of 33 taps at stride 12 consist of parts of 6 taps, with 3 taps left over; 36 taps have no rest."""
    tall = (1, 200, 1, 64)
    assert len(pass_summary(tall, (33, 1), (12, 1), platform="portable")) == 2
    assert len(pass_summary(tall, (33, 1), (12, 1), platform="portable", is_transposed=True)) == 1
    assert len(pass_summary(tall, (36, 1), (12, 1), platform="portable", is_transposed=True)) == 2


def test_global_and_disjoint_sums():
    shape = (1, 12, 9, 4)
    window = Window((Axis(1, 12, 12, 1, 1, 0, 0, 1), Axis(2, 9, 3, 3, 1, 0, 0, 3)))
    problem = Problem(window, shape, "float32", "cpu")
    plan, spread = plan_sum(problem), plan_sum(problem, is_transposed=True)
    assert [dim.axis for dim in plan.global_dims] == [dim.axis for dim in spread.global_dims] == [1]
    assert (plan.disjoint_dims, [each.axes for each in plan.passes]) == ((), [(2,)])
    assert ([dim.axis for dim in spread.disjoint_dims], spread.passes) == ([2], ())
    apart = make_window(shape, (2, 2), (2, 2))
    dilated = make_window(shape, (2, 2), (2, 2), window_dilation=(2, 1))
    for each, axes in ((apart, [1, 2]), (dilated, [2])):
        plan = plan_sum(Problem(each, shape, "float32", "cpu"), is_transposed=True)
        assert [dim.axis for dim in plan.disjoint_dims] == axes
