"""Passes of blurs, running maxima, reductions and select-and-scatter, on both sides of each limit."""

import dataclasses

import pytest

from jaxpool._geometry.window import make_window
from jaxpool._plan.blur import blur_layout, copies_only_ends, pass_windows
from jaxpool._plan.max_pool import plan_max, plan_scatter
from jaxpool._plan.problem import ArrayProblem, Problem
from jaxpool._plan.reduce import plan_folds
from jaxpool._plan.scan import ScanPlan, plan_scan
from jaxpool._plan.tuning import CPU, NEVER, PORTABLE


def test_scan_has_blocks():
    """Blocks are for CPU and GPU, and neither for explicitly sharded arrays nor for symbolic shapes."""
    plans = {
        (platform, shape, sharded): plan_scan(
            ArrayProblem(shape, "float32", platform, is_sharded=sharded)
        )
        for platform in ("cpu", "gpu", "tpu")
        for shape in ((4, 1000, 2), (None, 1000, 2), (0, 1000, 2))
        for sharded in (False, True)
    }
    with_blocks = {case for case, plan in plans.items() if plan.min_block_size != NEVER}
    assert with_blocks == {("cpu", (4, 1000, 2), False), ("gpu", (4, 1000, 2), False)}
    reduced_first = [case for case, plan in plans.items() if plan.reduces_first]
    assert reduced_first == [("gpu", (4, 1000, 2), False)]
    assert plans["tpu", (4, 1000, 2), False].block_length(1000) is None


def test_scans_of_partitioned_arrays_store_blocks():
    """XLA would all-reduce their gathers."""
    problem = ArrayProblem((4, 1000, 2), "float32", "gpu", is_partitioned=True)
    assert not plan_scan(problem).reduces_first
    problem = dataclasses.replace(problem, is_partitioned=False)
    assert plan_scan(problem).reduces_first


@pytest.mark.parametrize(
    ("plan", "lengths"),
    [
        (
            ScanPlan(5, "call", min_block_size=25),
            {125: None, 126: 21, 127: 25, 130: 13, 144: 24, 156: 13, 363: 25, 1000: 25},
        ),
        (
            ScanPlan(6, "barrier", min_block_size=30),
            {216: None, 217: 31, 227: 36, 256: 32, 1000: 25, 36**2: 36},
        ),
    ],
)
def test_scan_block_length(plan, lengths):
    """The largest divisor that the passes cover, from half their span on, else the span."""
    assert {size: plan.block_length(size) for size in lengths} == lengths


def test_scan_pass_distances():
    plan = ScanPlan(5, "call")
    assert [len(plan.pass_distances(size)) for size in (1, 2, 5, 6, 25, 26)] == [0, 1, 1, 2, 2, 3]
    assert plan.pass_distances(12) == [range(1, 5), range(5, 12, 5)]


FEW, MANY = CPU.blur_taps_per_element, PORTABLE.max_blur_taps


@pytest.mark.parametrize(
    ("window", "strides", "platform", "axes"),
    [
        ((5, 5), None, "cpu", [(1,), (2,)]),
        ((5, 5), (1, 2), "cpu", [(2,), (1,)]),  # the largest reduction comes first
        ((3, 9, 5), (2, 3, 2), "cpu", [(1,), (2,), (3,)]),
        ((2, 1, 3), None, "cpu", [(1,), (3,)]),
        ((1, 1), None, "cpu", []),
        ((4, FEW), (2, 2), "cpu", [(1, 2)]),
        ((4, FEW + 1), (2, 2), "cpu", [(1,), (2,)]),
        ((MANY, 1, 1), None, "gpu", [(1,)]),
        ((1, MANY, 2), None, "gpu", [(2,), (3,)]),
    ],
)
def test_axes_of_blur_passes(window, strides, platform, axes):
    given = make_window((1, 200, 200, 200), window, strides, axes=(1, 2, 3)[: len(window)])
    assert [group.axes for group in pass_windows(given, platform)] == axes


@pytest.mark.parametrize(("taps", "reading"), [(9, "bounded"), (10, "padded")])
def test_transposed_blur_read_mode(taps, reading):
    shape = (1, 40, 40, 64)
    problem = Problem(shape, "float32", "cpu", make_window(shape, (taps, 1)))
    assert blur_layout(problem, is_transposed=True).read_mode == reading


@pytest.mark.parametrize(
    ("shape", "window", "strides", "platform", "expected"),
    [
        ((1, 32, 32, 64), (9, 9), 1, "cpu", True),  # an axis per pass
        ((1, 32, 32, 64), (10, 1), 1, "cpu", False),
        ((1, 32, 31, 64), (9, 9), 1, "cpu", False),
        ((1, 32, 32, 64), (3, 3), 2, "cpu", True),
        ((1, 32, 32, 64), (4, 3), 2, "cpu", False),  # 12 terms in a pass over both axes
        ((1, 2, 512, 64), (3, 3), 1, "cpu", True),
        ((1, 2, 512, 64), (4, 3), 1, "cpu", False),  # padding of 2 reflects 2 rows twice
        ((1, 32, 32, 64), (9, 9), 1, "gpu", False),
        ((None, 32, 32, 64), (9, 9), 1, "cpu", False),
    ],
)
def test_blur_copies_only_ends(shape, window, strides, platform, expected):
    given = make_window(shape, window, strides, padding="SAME", axes=(1, 2))
    assert copies_only_ends(Problem(shape, "float32", platform, given)) is expected


LARGE = (16, 112, 112, 64)


@pytest.mark.parametrize(
    ("shape", "axes", "options", "folds"),
    [
        ((1 << 15,), (0,), {}, [(0, 1 << 12)]),
        ((1 << 18,), (0,), {}, [(0, 1 << 15), (0, 1 << 12)]),
        ((1 << 18,), (0,), {"of_ties": True}, [(0, 1 << 15), (0, 1 << 12)]),
        (((1 << 15) - 1,), (0,), {}, []),
        *[((1 << 15,), (0,), {"platform": each}, []) for each in ("gpu", "tpu", "portable")],
        ((1 << 15,), (0,), {"is_sharded": True}, []),
        ((1 << 15,), (0,), {"dtype": "float16"}, [(0, 1 << 12)]),
        ((1 << 15,), (0,), {"dtype": "float8_e4m3fn"}, []),
        ((None, 1 << 15), (1,), {}, []),
        ((7, 1 << 13), (0,), {}, [(0, 1)]),  # all rows in one fold
        ((4, 1 << 13), (0,), {"of_ties": True}, [(0, 1)]),  # chunks of one row
        ((3, 1 << 14), (0,), {"of_ties": True}, [(0, 2), (0, 1)]),  # not in one fold
        ((1 << 12, 16), (1,), {}, [(1, 1)]),  # 8 chunks would have 64 bits each
        ((1 << 13, 32), (1,), {}, [(1, 8), (1, 1)]),
        ((1 << 12, 16), (1,), {"dtype": "float16"}, [(1, 1)]),
        ((1 << 12, 17), (1,), {"dtype": "float16"}, [(1, 16), (1, 1)]),  # a multiple of 8
        ((1 << 12, 100), (1,), {"dtype": "float16"}, [(1, 16), (1, 1)]),
        ((1 << 12, 9), (1,), {"dtype": "float64", "of_ties": True}, [(1, 8), (1, 4)]),
        ((1 << 12, 8), (1,), {"dtype": "float64", "of_ties": True}, [(1, 4)]),  # not all 8
        ((1 << 12, 32), (1,), {"of_ties": True}, [(1, 8)]),
        ((1 << 12, 64), (1,), {"of_ties": True}, [(1, 8)]),
        ((1 << 12, 63), (1,), {"of_ties": True}, [(1, 16), (1, 8)]),
        ((1 << 15, 1), (1,), {}, []),
        ((16, 1 << 11), (0,), {}, [(0, 2)]),
        ((17, 1 << 11), (0,), {}, [(0, 3)]),
        ((64, 64, 8), (1, 0), {}, [(0, 8)]),  # the first of two
        ((5, 64, 1 << 10), (0, 1), {}, [(1, 8), (1, 1)]),
        (LARGE, (1, 2), {}, [(1, 14), (1, 2), (2, 14)]),
        (LARGE, (3,), {"dtype": "float16", "of_ties": True}, [(3, 16)]),
        ((64, 7, 7, 512), (1, 2), {}, [(1, 1), (2, 1)]),
        ((4, 32, 112, 64), (0, 1, 2, 3), {}, [(1, 4), (2, 14)]),  # not the leading axis of size 4
        ((4, 64, 64, 32, 2), (4,), {}, [(4, 1)]),  # as in maxout
        ((4, 64, 64, 32, 2), (4,), {"of_ties": True}, []),
    ],
)
def test_reduction_folds(shape, axes, options, folds):
    """The axis and the length of the chunks of each successive fold."""
    given = {"dtype": "float32", "platform": "cpu", "of_ties": False} | options
    of_ties = given.pop("of_ties")
    found = plan_folds(ArrayProblem(shape, **given), axes, of_ties=of_ties)
    assert [(each.axis, each.chunk_length) for each in found] == folds


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_length_of_a_last_axis_is_folded(dtype):
    """XLA for CPU reduces integer keys of an axis without a fold slowly."""
    shapes = [(1 << 14, size) for size in range(2, 130)]
    problems = [ArrayProblem(shape, dtype, "cpu") for shape in shapes]
    assert all(plan_folds(problem, [1], of_ties=False) for problem in problems)


def axes_of(groups):
    return [[dim.axis for dim in group] for group in groups]


SMALL = (8, 64, 64, 64)


@pytest.mark.parametrize(
    ("shape", "window", "strides", "axes", "groups"),
    [
        (SMALL, (2, 3), (2, 1), (1, 2), [[1, 2]]),  # 6 taps, strides of 2
        (SMALL, (7, 1), (2, 1), (1, 2), [[1]]),
        (SMALL, (2, 4), (2, 1), (1, 2), [[1], [2]]),
        (SMALL, (2, 2), (1, 1), (1, 2), [[1], [2]]),
        (SMALL, (3, 3), (2, 2), (1, 2), [[1, 2]]),
        (SMALL, (4, 4), (2, 2), (1, 2), [[1], [2]]),
        (SMALL, (7, 7), (7, 7), (1, 2), [[1, 2]]),
        (SMALL, (2, 25), (2, 25), (1, 2), [[1], [2]]),  # 50 taps
        # At once, select_and_scatter would select the first tied element in memory order.
        (SMALL, (2, 2), (2, 2), (2, 1), [[2], [1]]),
    ],
)
def test_select_and_scatter_axis_groups(shape, window, strides, axes, groups):
    problem = Problem(shape, "float32", "tpu", make_window(shape, window, strides, axes=axes))
    assert axes_of(plan_scatter(problem).groups) == groups


@pytest.mark.parametrize(
    ("window", "axes", "groups"),
    [
        ((5, 5), (1, 2), [[1, 2]]),
        ((5, 6), (1, 2), [[1], [2]]),
        ((3, 3), (2, 1), [[2, 1]]),
        ((1, 1), (1, 2), []),
    ],
)
def test_value_groups_up_to_25_taps(window, axes, groups):
    problem = Problem(SMALL, "float32", "tpu", make_window(SMALL, window, axes=axes))
    assert axes_of(plan_max(problem).value_groups) == groups


@pytest.mark.parametrize(
    ("strides", "dtype", "comparison"),
    [
        ((1, 1), "float32", "joined"),
        ((2, 2), "bfloat16", "in order"),
        ((3, 3), "bfloat16", "joined"),
    ],
)
def test_select_and_scatter_comparison(strides, dtype, comparison):
    window = make_window(SMALL, (3, 3), strides)
    assert plan_scatter(Problem(SMALL, dtype, "tpu", window)).comparison == comparison


@pytest.mark.parametrize(
    ("shape", "axes", "order"),
    [
        ((16, 128, 128, 3), (1, 2), (0, 3, 1, 2)),
        ((2, 64, 16), (1,), ()),  # 64 of 128 lanes in place of 16
        ((2, 65, 16), (1,), (0, 2, 1)),
        ((2, 9, 28, 9, 1), (1, 3), (0, 2, 4, 1, 3)),
        ((16, 1, 128, 128), (2, 3), ()),
        ((8, 64, 64, 64), (1, 2), ()),
        ((None, 128, 128, 3), (1, 2), ()),
    ],
)
def test_few_channels_are_permuted(shape, axes, order):
    known = tuple(size or 8 for size in shape)
    window = make_window(known, (2,) * len(axes), (2,) * len(axes), axes=axes)
    plan = plan_scatter(Problem(shape, "float32", "tpu", window))
    assert plan.permutation == order
    if order:
        assert axes_of(plan.groups) == [[axis] for axis in axes]
        sharded = Problem(shape, "float32", "tpu", window, is_sharded=True)
        assert not plan_scatter(sharded).permutation
