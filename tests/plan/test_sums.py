"""The passes of sums along one axis, evaluated with NumPy, equal the sum over each window."""

import itertools

import numpy as np
import pytest

from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._plan.problem import Problem
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import CPU, TUNING

WINDOWS = [  # taps, stride, dilation, padding
    *itertools.product((1, 2, 31, 32, 33, 64, 67, 100), (1, 2, 3, 16), (1, 2), ((0, 0), (5, 3))),
    (100, 40, 1, (60, 0)),
    (99, 7, 3, (0, 90)),
    (66, 64, 1, (65, 1)),
    (50, 100, 1, (7, 0)),
    (33, 12, 1, (0, 0)),
    (33, 20, 3, (9, 9)),
]


def read(phases, array):
    """Evaluate a pass: the sum of the elements that each position reads."""
    found = np.zeros(sum(access.out for access in phases), np.int64)
    for phase, access in enumerate(phases):
        assert access.size == len(array)
        for position in range(access.out):
            places = [access.stride * position + offset for offset, _ in access.pairs]
            there = [array[place] for place in places if 0 <= place < len(array)]
            found[position * len(phases) + phase] = sum(there)
    return found


def carried_out(plan, x):
    """Evaluate all passes. The second source of a pass is the input of the previous pass."""
    before, now = None, x
    for each in plan.passes:
        (now_reads,), *more = each.sources
        new = read(now_reads, now) + sum(read(phases, before) for (phases,) in more)
        before, now = now, new
    return now


def positions(each):
    """Return the positions in the regions of a pass along one axis, and their expected number.

    The last round of phases may be cut off.
    """
    ((phases,), *_), (cuts,) = each.sources, each.layout.cuts
    count = sum(access.out for access in phases)
    held = [
        turn * len(phases) + phase
        for cut in cuts
        for turn in range(cut.first, cut.stop)
        for phase in range(cut.phases)
    ]
    return [position for position in held if position < count], count


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_passes_add_up_every_window(platform, transposed):
    lengths = set()
    for taps, stride, dilation, pads in WINDOWS:
        shape = (190, 1)
        if (taps - 1) * dilation + 1 > 190 + sum(pads):
            continue
        options = {"window_dilation": (dilation,), "empty": "allow"}
        window = make_window(shape, (taps,), (stride,), (pads,), **options)
        (dim,), problem = window.dims, Problem(window, shape, "int32", platform)
        plan = plan_sum(problem, transposed=transposed)
        if dim.idle or plan.separate or plan.whole:
            assert plan.passes == ()
            assert plan.separate == () or (taps <= stride and dilation == 1 and transposed)
            continue
        matrix = np.zeros((dim.out, dim.size), np.int64)
        for output, tap in itertools.product(range(dim.out), range(taps)):
            at = output * stride - dim.low + tap * dilation
            if 0 <= at < dim.size:
                matrix[output, at] += 1
        matrix = matrix.T if transposed else matrix
        x = np.random.default_rng(0).integers(-99, 99, matrix.shape[1])
        np.testing.assert_array_equal(carried_out(plan, x), matrix @ x, err_msg=str(dim))
        lengths.add(len(plan.passes))
        for each in plan.passes:
            if each.layout.reading != "tables":
                held, count = positions(each)
                assert held == list(range(count))
    assert lengths == {1, 2}


def passes(*args, platform="cpu", dtype="float32", **options):
    window = make_window(*args)
    plan = plan_sum(Problem(window, args[0], dtype, platform), **options)
    return [(each.axes, each.layout.reading, each.layout.regions) for each in plan.passes]


def test_the_transpose_of_two_passes_is_one_where_their_phases_do_not_take_turns():
    """Windows of 33 taps at stride 12 consist of parts of 6 taps, with 3 taps left over; 36 taps have no rest."""
    tall = (1, 200, 1, 64)
    assert len(passes(tall, (33, 1), (12, 1), platform="portable")) == 2
    assert len(passes(tall, (33, 1), (12, 1), platform="portable", transposed=True)) == 1
    assert len(passes(tall, (36, 1), (12, 1), platform="portable", transposed=True)) == 2


def test_whole_axes_come_first_and_windows_apart_are_spread():
    shape = (1, 12, 9, 4)
    window = Window((Axis(1, 12, 12, 1, 1, 0, 0, 1), Axis(2, 9, 3, 3, 1, 0, 0, 3)))
    problem = Problem(window, shape, "float32", "cpu")
    plan, spread = plan_sum(problem), plan_sum(problem, transposed=True)
    assert [dim.axis for dim in plan.whole] == [dim.axis for dim in spread.whole] == [1]
    assert (plan.separate, [each.axes for each in plan.passes]) == ((), [(2,)])
    assert ([dim.axis for dim in spread.separate], spread.passes) == ([2], ())
    apart = make_window(shape, (2, 2), (2, 2))
    dilated = make_window(shape, (2, 2), (2, 2), window_dilation=(2, 1))
    for each, axes in ((apart, [1, 2]), (dilated, [2])):
        plan = plan_sum(Problem(each, shape, "float32", "cpu"), transposed=True)
        assert [dim.axis for dim in plan.separate] == axes


@pytest.mark.parametrize(("size", "groups"), [(5, [[1, 2]]), (6, [[1], [2]])])
def test_a_tpu_reduces_all_axes_at_once_or_one_after_another(size, groups):
    shape = (1, 40, 40, 8)
    assert TUNING["tpu"].reduced_at_once == 25
    plan = plan_sum(Problem(make_window(shape, (size, size)), shape, "float32", "tpu"))
    assert plan.passes == ()
    assert [[dim.axis for dim in group] for group in plan.reduced] == groups


def test_axes_share_a_pass_while_there_are_few_taps():
    shape = (1, 40, 40, 64)
    assert [axes for axes, *_ in passes(shape, (3, 3))] == [(1, 2)]
    assert [axes for axes, *_ in passes(shape, (5, 5))] == [(2,), (1,)]
    assert [axes for axes, *_ in passes(shape, (5, 5), (2, 2))] == [(1, 2)]
    assert [axes for axes, *_ in passes(shape, (8, 8), (8, 8))] == [(2,), (1,)]
    assert [axes for axes, *_ in passes(shape, (7, 7), (7, 7))] == [(1, 2)]
    assert [axes for axes, *_ in passes(shape, (7, 7), platform="gpu")] == [(1, 2)]
    for channels, axes in ((2, [(1, 2)]), (1, [(2,), (1,)])):  # one channel does not vectorise
        assert [each for each, *_ in passes((1, 40, 40, channels), (4, 4))] == axes
    for dtype, axes in (("float32", [(1, 2)]), ("bfloat16", [(2,), (1,)])):
        found = passes(shape, (4, 4), (1, 2), dtype=dtype, transposed=True)
        assert [axes for axes, *_ in found] == axes, dtype


def test_a_small_array_is_padded_and_a_large_one_cut():
    small = CPU.sum_region_bytes // 4 // 64
    for rows, regions in ((small - 1, 1), (small, 2)):
        found = passes((1, rows, 1, 64), (11, 1), (1, 1), "SAME")
        assert found == [((1,), "bounded", regions)], rows


@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_parts_of_a_sum_have_as_many_taps_as_one_pass_at_most(platform):
    longest = TUNING[platform].longest_sum
    tall = (1, 40 * longest, 1, 64)
    assert [len(passes(tall, (longest + more, 1), platform=platform)) for more in (0, 1)] == [1, 2]
    assert parts(tall, longest, platform) == (longest, 2)
    assert parts(tall, longest + 1, platform) == (11, 6)  # 33 would take fewer terms per element


def parts(shape, taps, platform):
    """Return the taps per part and the parts per window, for windows of 2 * taps at stride `taps`."""
    window = make_window(shape, (2 * taps, 1), (taps, 1))
    first, second = plan_sum(Problem(window, shape, "float32", platform)).passes
    return tuple(len(each.sources[0][0][0].pairs) for each in (first, second))
