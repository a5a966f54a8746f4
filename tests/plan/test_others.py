"""What is chosen for all but windowed extremes and sums, on both sides of each limit."""

import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import full_window, make_window
from jaxpool._plan import others
from jaxpool._plan.layout import Layout, fits_tables, in_one_region
from jaxpool._plan.max_pool import plan_max, plan_scatter, residual
from jaxpool._plan.problem import Problem, barrier_on, elements, nbytes, row
from jaxpool._plan.tuning import CPU, LIMITS, NEVER, PORTABLE, TUNING


def line(taps):
    return make_window((1, 4 * taps, 1), (taps,))


@pytest.mark.parametrize(
    ("window", "split", "kept"),
    [
        (line(LIMITS.masked_taps), True, "bits"),
        (line(LIMITS.masked_taps + 1), True, "arrays"),
        (line(LIMITS.masked_taps + 1), False, "tap"),
        (full_window((1, LIMITS.whole_taps, 1), (1,)), True, "bits"),
        (full_window((1, LIMITS.whole_taps, 1), (1,)), False, "tap"),
        (full_window((1, LIMITS.whole_taps + 1, 1), (1,)), True, "rank"),
        (full_window((1, LIMITS.whole_taps + 1, 1), (1,)), False, "rank"),
        (make_window((1, 5, 5, 1), (5, 4)), False, "tap"),  # not whole along one axis
    ],
)
def test_what_is_kept(window, split, kept):
    assert residual(window, split=split) == kept


@pytest.mark.parametrize(
    ("window", "split", "kept"),
    [
        (make_window((1, 8, 8, 1), (3, 3), padding="SAME"), False, "input"),
        (make_window((1, 8, 8, 1), (5, 5), (2, 2)), False, "input"),
        (make_window((1, 64, 64, 1), (31, 31)), False, "input"),
        (make_window((1, 64, 64, 1), (3, 35)), False, "tap"),  # too many comparisons
        (make_window((1, 8, 8, 1), (3, 3), window_dilation=2), False, "tap"),
        (make_window((1, 8, 8, 1), (3, 3)), True, "bits"),
    ],
)
def test_what_is_kept_on_a_tpu(window, split, kept):
    assert residual(window, split=split, platform="tpu") == kept


def test_a_grid_for_windows_of_unequal_lengths_and_for_long_ones():
    longest = LIMITS.adaptive_window
    assert others.needs_no_grid(adaptive_window((1, 2 * longest, 1), (2,), None))
    assert not others.needs_no_grid(adaptive_window((1, 2 * longest + 2, 1), (2,), None))
    assert not others.needs_no_grid(adaptive_window((1, 8, 7, 1), (4, 3), None))
    assert others.needs_no_grid(adaptive_window((1, 8, 6, 1), (4, 3), None))


def test_limits_are_the_last_that_are_read_one_by_one():
    places, taps = LIMITS.adaptive_places, LIMITS.fold_taps
    assert [others.one_by_one(places + more) for more in (0, 1)] == [True, False]
    assert [others.in_one_go(taps + more, 1) for more in (0, 1)] == [True, False]
    assert [others.in_one_go(taps + 9 + more, taps + 9) for more in (0, 1)] == [True, False]


@pytest.mark.parametrize("on", TUNING)
def test_a_scan_is_kept_as_its_platform_keeps(on):
    plan = others.plan_scan(on)
    assert (plan.ways, plan.barrier) == (TUNING[on].scan_ways, barrier_on(on))
    assert plan.barrier == ("conditional" if on == "cpu" else "barrier")


@pytest.mark.parametrize("on", TUNING)
def test_the_axis_of_a_scan_is_cut_into_blocks(on):
    """On CPU; not one whose type says that it is sharded, nor where a size is not known."""
    assert others.plan_scan(on, (4, 1000, 2), sharded=False).blocks == TUNING[on].scan_block
    for shape, sharded in (((4, 1000, 2), True), ((None, 1000, 2), False)):
        assert others.plan_scan(on, shape, sharded).blocks == NEVER


def blurred(window, strides=None, on="cpu"):
    """The axes of each pass."""
    window = make_window((1, 200, 200, 200), window, strides, axes=(1, 2, 3)[: len(window)])
    return [group.axes for group in others.blur_groups(window, on)]


def test_the_passes_of_a_blur():
    """Of the axis whose stride leaves least first; of several together up to a number of taps."""
    assert blurred((5, 5)) == [(1,), (2,)]
    assert blurred((5, 5), (1, 2)) == [(2,), (1,)]
    assert blurred((3, 9, 5), (2, 3, 2)) == [(1,), (2,), (3,)]
    assert blurred((2, 1, 3)) == [(1,), (3,)]
    assert blurred((1, 1)) == []
    few = CPU.blur_taps_an_element
    assert blurred((4, few), (2, 2)) == [(1, 2)]
    assert blurred((4, few + 1), (2, 2)) == [(1,), (2,)]
    most = PORTABLE.blur_taps
    assert blurred((most, 1, 1), on="gpu") == [(1,)]
    assert blurred((1, most, 2), on="gpu") == [(2,), (3,)]


def test_what_is_put_in_order():
    """By one scatter on CPU, into a flat array whose places 32 bits hold."""
    shape = (2, 8, 16, 5)
    assert others.puts_in_order("cpu", shape, False)
    wide = (2**11, 2**10, 2**10)
    assert not others.puts_in_order("cpu", wide, False)
    assert not others.puts_in_order("cpu", shape, True)
    assert not others.puts_in_order("cpu", (None, *shape), False)
    assert not any(others.puts_in_order(on, shape, False) for on in ("gpu", "tpu", "portable"))


def test_numbers_of_a_problem():
    def problem(dtype, platform="cpu", thresholds=None):
        shape = (1, 8, 3)
        return Problem(make_window(shape, (2,)), shape, dtype, platform, thresholds=thresholds)

    found = [problem(dtype) for dtype in ("bool", "int8", "float8_e4m3fn", "bfloat16", "float64")]
    assert [each.bits for each in found] == [8, 8, 8, 16, 64]
    assert [each.low_precision for each in found] == [False, False, True, True, False]
    assert [each.sum_bits for each in found] == [8, 8, 32, 32, 64]
    assert [problem(dtype).low_precision for dtype in ("float32", "uint16")] == [False, False]
    assert problem("int8", "gpu").tuning is TUNING["gpu"]
    assert problem("int8", "gpu", PORTABLE).tuning is PORTABLE
    assert (barrier_on("gpu", CPU), barrier_on("cpu", PORTABLE)) == ("conditional", "barrier")
    assert (elements((2, 3)), elements((2, None)), elements(())) == (6, float("inf"), 1)
    assert (row((2, 3, 4, 5), (1,)), row((2, 3, 4, 5), (0, 2)), row((2, 3), ())) == (20, 5, 6)
    assert (nbytes((2, 3), 16), nbytes((2, None), 8)) == (12, float("inf"))


def test_no_tables_where_sizes_or_devices_are_not_known():
    shape = (1, 8, 9, 16)
    window = make_window(shape, (3, 3))
    reads = plan_max(Problem(window, shape, "float32", "cpu")).forward[0].step.phases
    one = Problem(window, shape, "float32", "cpu")
    assert fits_tables(one, reads)
    assert not fits_tables(Problem(window, (None, 8, 9, 16), "float32", "cpu"), reads)
    assert not fits_tables(Problem(window, shape, "float32", "cpu", sharded=True), reads)
    assert not fits_tables(Problem(window, shape, "float32", "gpu"), reads)
    far = (1, CPU.longest_table + 2, 1, 16)
    long = make_window(far, (3, 1))
    step = plan_max(Problem(long, far, "float32", "portable")).forward[0].step
    assert fits_tables(Problem(long, far, "float32", "cpu"), step.phases)
    assert not fits_tables(Problem(long, far, "float32", "cpu"), step.transposed)


def test_a_spare_turn_is_of_the_first_axis_that_has_phases():
    shape = (1, 8, 8, 8, 1)
    step = plan_max(Problem(make_window(shape, (2, 2, 2), (1, 2, 2)), shape, "int8", "portable"))
    phases = step.forward[0].step.transposed
    ends = [[cut.stop for cut in cuts] for cuts in in_one_region(phases, spare_turn=True).cuts]
    assert ends == [[8], [5], [4]]
    ends = [[cut.stop for cut in cuts] for cuts in in_one_region(phases).cuts]
    assert ends == [[8], [4], [4]]
    assert Layout("tables").regions == 1


@pytest.mark.parametrize(
    ("shape", "window", "strides", "groups"),
    [
        ((1, 416, 256, 128), (4, 4), (1, 1), [[1], [2]]),  # 52 MiB, which fast memory holds twice
        ((1, 417, 256, 128), (4, 4), (1, 1), [[1, 2]]),
        ((8, 32, 32, 128), (2, 3), (2, 2), [[1, 2]]),
        ((8, 32, 32, 128), (2, 3), (2, 1), [[1], [2]]),  # not strided along both axes
        ((1, 49, 49, 128), (7, 7), (7, 7), [[1, 2]]),
        ((1, 50, 50, 128), (2, 25), (2, 25), [[1], [2]]),  # 50 taps
    ],
)
def test_the_instruction_goes_over_all_axes_at_once_or_one_after_another(
    shape, window, strides, groups
):
    problem = Problem(make_window(shape, window, strides), shape, "float32", "tpu")
    found = plan_scatter(problem).groups
    assert [[dim.axis for dim in group] for group in found] == groups


def test_ties_of_segments_are_counted_by_a_sum_of_32_bits():
    assert others.counts_ties_if_any("cpu", (2**31, 1))
    assert others.counts_ties_if_any("cpu", (2**32 - 1,))
    assert not others.counts_ties_if_any("cpu", (2**32,))
    assert not others.counts_ties_if_any("portable", (2,))
