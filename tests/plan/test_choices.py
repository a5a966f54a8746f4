"""Plans of everything except windowed maxima, minima and sums, on both sides of each limit."""

import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import full_window, make_window
from jaxpool._ops.ranged import num_batch_chunks
from jaxpool._plan.blur import blur_groups, blur_layout
from jaxpool._plan.max_pool import choose_residual, plan_max, plan_scatter, uses_select_and_scatter
from jaxpool._plan.problem import (
    Layout,
    Problem,
    barrier_of,
    fits_tables,
    is_ordinary_pool,
    nbytes,
    num_elements,
    row_size,
    single_region,
    split_tap_loop,
)
from jaxpool._plan.reduce import plan_fold, reduces_as_floats
from jaxpool._plan.scan import plan_scan
from jaxpool._plan.scatter import scatters_in_order, scatters_to_rows
from jaxpool._plan.segments import counts_ties_in_branch
from jaxpool._plan.tuning import CPU, LIMITS, NEVER, PORTABLE, TUNING


def window_1d(taps):
    return make_window((1, 4 * taps, 1), (taps,))


@pytest.mark.parametrize(
    ("window", "split", "kept"),
    [
        (window_1d(LIMITS.max_mask_taps), True, "bits"),
        (window_1d(LIMITS.max_mask_taps + 1), True, "arrays"),
        (window_1d(LIMITS.max_mask_taps + 1), False, "tap"),
        (full_window((1, LIMITS.max_sliding_taps, 1), (1,)), True, "bits"),
        (full_window((1, LIMITS.max_sliding_taps, 1), (1,)), False, "tap"),
        (full_window((1, LIMITS.max_sliding_taps + 1, 1), (1,)), True, "rank"),
        (full_window((1, LIMITS.max_sliding_taps + 1, 1), (1,)), False, "rank"),
        (make_window((1, 5, 5, 1), (5, 4)), False, "tap"),  # covers only one axis
    ],
)
def test_residual_choice(window, split, kept):
    assert choose_residual(window, split=split) == kept


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
def test_residual_choice_on_tpu(window, split, kept):
    assert choose_residual(window, split=split, platform="tpu") == kept


def test_adaptive_pool_as_ordinary_pool():
    longest = LIMITS.max_adaptive_taps
    assert is_ordinary_pool(adaptive_window((1, 2 * longest, 1), (2,), None))
    assert not is_ordinary_pool(adaptive_window((1, 2 * longest + 2, 1), (2,), None))
    assert not is_ordinary_pool(adaptive_window((1, 8, 7, 1), (4, 3), None))
    assert is_ordinary_pool(adaptive_window((1, 8, 6, 1), (4, 3), None))


@pytest.mark.parametrize("platform", TUNING)
def test_scan_plan_per_platform(platform):
    plan = plan_scan(platform)
    assert (plan.radix, plan.barrier) == (
        TUNING[platform].scan_radix,
        barrier_of(platform),
    )
    assert plan.barrier == ("call" if platform == "cpu" else "barrier")
    # Comparisons on CPU treat subnormal floats as zeros
    assert plan.uses_keys is (platform == "cpu")


@pytest.mark.parametrize("platform", TUNING)
def test_scan_block_size_per_platform(platform):
    """Blocks are for CPU only, and neither for explicitly sharded arrays nor for symbolic shapes."""
    assert (
        plan_scan(platform, (4, 1000, 2), is_sharded=False).min_block_size
        == TUNING[platform].min_scan_block_size
    )
    for shape, sharded in (((4, 1000, 2), True), ((None, 1000, 2), False)):
        assert plan_scan(platform, shape, sharded).min_block_size == NEVER


def test_scan_block_length_prefers_divisors():
    """On CPU, an axis longer than 125 has blocks of its largest divisor from 13 to 25, else of 25."""
    plan = plan_scan("cpu", (1000, 2), is_sharded=False)
    assert (plan.radix, plan.min_block_size) == (5, 25)
    lengths = {125: None, 126: 21, 127: 25, 130: 13, 144: 24, 156: 13, 363: 25, 1000: 25}
    assert {size: plan.block_length(size) for size in lengths} == lengths
    assert plan_scan("gpu", (1000, 2), is_sharded=False).block_length(1000) is None


def test_scan_pass_distances():
    plan = plan_scan("cpu", (1000, 2), is_sharded=False)
    assert [len(plan.pass_distances(size)) for size in (1, 2, 5, 6, 25, 26)] == [0, 1, 1, 2, 2, 3]
    assert plan.pass_distances(12) == [range(1, 5), range(5, 12, 5)]


def blur_pass_axes(window, strides=None, platform="cpu"):
    """Return the axes of each pass of a blur."""
    window = make_window((1, 200, 200, 200), window, strides, axes=(1, 2, 3)[: len(window)])
    return [group.axes for group in blur_groups(window, platform)]


def test_blur_passes():
    """The axis with the largest reduction comes first. Several axes share a pass up to a number of taps."""
    assert blur_pass_axes((5, 5)) == [(1,), (2,)]
    assert blur_pass_axes((5, 5), (1, 2)) == [(2,), (1,)]
    assert blur_pass_axes((3, 9, 5), (2, 3, 2)) == [(1,), (2,), (3,)]
    assert blur_pass_axes((2, 1, 3)) == [(1,), (3,)]
    assert blur_pass_axes((1, 1)) == []
    few = CPU.blur_taps_per_element
    assert blur_pass_axes((4, few), (2, 2)) == [(1, 2)]
    assert blur_pass_axes((4, few + 1), (2, 2)) == [(1,), (2,)]
    most = PORTABLE.max_blur_taps
    assert blur_pass_axes((most, 1, 1), platform="gpu") == [(1,)]
    assert blur_pass_axes((1, most, 2), platform="gpu") == [(2,), (3,)]


@pytest.mark.parametrize(("taps", "reading"), [(9, "bounded"), (10, "padded")])
def test_transposed_blur_read_mode(taps, reading):
    shape = (1, 40, 40, 64)
    problem = Problem(make_window(shape, (taps, 1)), shape, "float32", "cpu")
    assert CPU.bounds_checked_taps == 9
    assert blur_layout(problem, is_transposed=True).read_mode == reading


def test_ordered_scatter_choice():
    """An ordered scatter is for CPU, into a flat array with 32-bit positions."""
    shape = (2, 8, 16, 5)
    assert scatters_in_order("cpu", shape, False)
    wide = (2**11, 2**10, 2**10)
    assert not scatters_in_order("cpu", wide, False)
    assert not scatters_in_order("cpu", shape, True)
    assert not scatters_in_order("cpu", (None, *shape), False)
    assert not any(
        scatters_in_order(platform, shape, False) for platform in ("gpu", "tpu", "portable")
    )


def test_problem_properties():
    def problem(dtype, platform="cpu", thresholds=None):
        shape = (1, 8, 3)
        return Problem(make_window(shape, (2,)), shape, dtype, platform, thresholds=thresholds)

    found = [problem(dtype) for dtype in ("bool", "int8", "float8_e4m3fn", "bfloat16", "float64")]
    assert [each.bits for each in found] == [8, 8, 8, 16, 64]
    assert [each.is_low_precision for each in found] == [False, False, True, True, False]
    assert [each.sum_bits for each in found] == [8, 8, 32, 32, 64]
    assert [problem(dtype).is_low_precision for dtype in ("float32", "uint16")] == [False, False]
    assert problem("int8", "gpu").tuning is TUNING["gpu"]
    assert problem("int8", "gpu", PORTABLE).tuning is PORTABLE
    assert (barrier_of("gpu", CPU), barrier_of("cpu", PORTABLE)) == ("call", "barrier")
    assert (num_elements((2, 3)), num_elements((2, None)), num_elements(())) == (6, float("inf"), 1)
    assert (
        row_size((2, 3, 4, 5), (1,)),
        row_size((2, 3, 4, 5), (0, 2)),
        row_size((2, 3), ()),
    ) == (20, 5, 6)
    assert (nbytes((2, 3), 16), nbytes((2, None), 8)) == (12, float("inf"))


def test_no_tables_for_symbolic_or_sharded_arrays():
    shape = (1, 8, 9, 16)
    window = make_window(shape, (3, 3))
    reads = plan_max(Problem(window, shape, "float32", "cpu")).forward[0].step.phases
    one = Problem(window, shape, "float32", "cpu")
    assert fits_tables(one, reads)
    assert not fits_tables(Problem(window, (None, 8, 9, 16), "float32", "cpu"), reads)
    assert not fits_tables(Problem(window, shape, "float32", "cpu", is_sharded=True), reads)
    assert not fits_tables(Problem(window, shape, "float32", "gpu"), reads)
    far = (1, CPU.max_table_positions + 2, 1, 16)
    long = make_window(far, (3, 1))
    step = plan_max(Problem(long, far, "float32", "portable")).forward[0].step
    assert fits_tables(Problem(long, far, "float32", "cpu"), step.phases)
    assert not fits_tables(Problem(long, far, "float32", "cpu"), step.transposed_phases)


def test_tables_of_empty_phases():
    shape = (1, 8, 9, 16)
    problem = Problem(make_window(shape, (3, 3)), shape, "float32", "cpu")
    assert fits_tables(problem, [])
    assert not fits_tables(problem, [()])


def test_extra_position_along_first_axis_with_phases():
    shape = (1, 8, 8, 8, 1)
    step = plan_max(Problem(make_window(shape, (2, 2, 2), (1, 2, 2)), shape, "int8", "portable"))
    phases = step.forward[0].step.transposed_phases
    ends = [
        [cut.stop for cut in cuts]
        for cuts in single_region(phases, extra_position=True).axis_regions
    ]
    assert ends == [[8], [5], [4]]
    ends = [[cut.stop for cut in cuts] for cuts in single_region(phases).axis_regions]
    assert ends == [[8], [4], [4]]
    assert Layout("tables").num_regions == 1


@pytest.mark.parametrize(
    ("shape", "window", "strides", "groups"),
    [
        ((1, 416, 256, 128), (4, 4), (1, 1), [[1], [2]]),  # 52 MiB fits into fast memory twice
        ((1, 417, 256, 128), (4, 4), (1, 1), [[1, 2]]),
        ((8, 32, 32, 128), (2, 3), (2, 2), [[1, 2]]),
        ((8, 32, 32, 128), (2, 3), (2, 1), [[1], [2]]),  # not strided along both axes
        ((1, 49, 49, 128), (7, 7), (7, 7), [[1, 2]]),
        ((1, 50, 50, 128), (2, 25), (2, 25), [[1], [2]]),  # 50 taps
    ],
)
def test_select_and_scatter_axis_groups(shape, window, strides, groups):
    problem = Problem(make_window(shape, window, strides), shape, "float32", "tpu")
    found = plan_scatter(problem).groups
    assert [[dim.axis for dim in group] for group in found] == groups


def test_pooled_axis_is_not_batch_axis():
    shape = (32, 32, 8, 128)
    for axes, together in (((0, 1), False), ((1, 2), True)):
        window = make_window(shape, (4, 4), (2, 2), axes=axes)
        found = plan_scatter(Problem(window, shape, "float32", "tpu")).groups
        assert (len(found) == 1) is together, axes


def scatter_comparison(window, strides, dtype="float32"):
    """Return the kind of comparison of a TPU's select_and_scatter."""
    shape = (1, 160, 160, 128)
    return plan_scatter(
        Problem(make_window(shape, window, strides), shape, dtype, "tpu")
    ).comparison


def test_float32_compares_numbers_and_nan_separately():
    assert scatter_comparison((5, 5), (1, 1)) == "joined"


def test_bfloat16_overlapping_windows_compare_in_order():
    assert scatter_comparison((3, 3), (2, 2), "bfloat16") == "in order"
    assert scatter_comparison((3, 3), (3, 3), "bfloat16") == "joined"


def test_select_and_scatter_only_on_tpu_below_64_bits():
    def found(dtype, platform):
        return uses_select_and_scatter(
            Problem(make_window((1, 9, 8), (3,)), (1, 9, 8), dtype, platform)
        )

    types = ("bfloat16", "float32", "float64")
    assert [found(dtype, "tpu") for dtype in types] == [True, True, False]
    assert not any(found("float32", platform) for platform in ("cpu", "gpu", "portable"))


@pytest.mark.parametrize(("rows", "regions"), [(16, 1), (17, 3)])
def test_max_plan_regions(rows, regions):
    """A window of 9 taps with 4 on each side is inside the array at 8 of 16 positions, and at 9 of 17."""
    shape = (1, rows, 1, CPU.min_region_bytes // 32)
    problem = Problem(make_window(shape, (9, 1), padding="SAME"), shape, "float32", "cpu")
    assert plan_max(problem).forward[0].layout.num_regions == regions


def test_tap_loop_steps():
    assert (LIMITS.taps_per_loop_step, LIMITS.weighted_taps_per_loop_step) == (16, 8)
    assert split_tap_loop(35, has_weights=False) == (2, 16, 3)
    assert split_tap_loop(35, has_weights=True) == (4, 8, 3)
    assert split_tap_loop(32, has_weights=False) == (2, 16, 0)


def test_batch_chunks_divide_batch():
    half = int(CPU.max_chunk_elements) // 2
    parts = {
        (1, 2 * half): 1,
        (2, half): 1,
        (4, half): 2,
        (3, half): 3,
        (6, half): 3,
        (3, 2 * half + 1): 3,
        (1, 2 * half + 1): 1,
    }
    for shape, count in parts.items():
        assert num_batch_chunks(shape, "cpu") == count, shape
    assert num_batch_chunks((4, None), "cpu") == 1
    assert num_batch_chunks((4, half), "gpu") == 1


def test_segment_scatter_to_rows():
    per_segment = TUNING["cpu"].min_scattered_rows
    for rows, segments, sent in ((3 * per_segment, 3, True), (3 * per_segment - 1, 3, False)):
        assert scatters_to_rows("cpu", (rows, 8), segments, False) is sent
    assert not scatters_to_rows("cpu", (3 * per_segment, 8), 3, True)
    assert not scatters_to_rows("gpu", (3 * per_segment, 8), 3, False)


def test_small_arrays_are_reduced_as_floats():
    """For many elements per result, in an array too small to be folded."""
    least, most = int(CPU.min_float_reduction_size), int(CPU.min_folded_elements)
    assert most <= 2**16  # float32 holds all counts, and two bytes hold all indices

    def as_floats(*shape, axes=(1,), platform="cpu"):
        return reduces_as_floats(platform, shape, axes)

    assert [as_floats(3, n) for n in (least - 1, least)] == [False, True]
    assert [as_floats(1, n) for n in (most - 1, most)] == [True, False]
    assert [as_floats(4, least // 4, axes=axes) for axes in ((0,), (0, 1))] == [False, True]
    assert not as_floats(None, least)
    assert not as_floats(3, least, platform="gpu")


def fold_steps(shape, axes, bits=32, *, ties=False, platform="cpu", sharded=False):
    """Return the axis and the number of parts of each successive fold."""
    first = plan_fold(shape, axes, bits, platform, sharded, ties)
    found = [] if first is None else [first, *first.later_folds()]
    return [(each.axis, each.num_chunks) for each in found]


@pytest.mark.parametrize(
    ("shape", "axes", "options", "folds"),
    [
        ((1 << 15,), (0,), {}, [(0, 8)]),
        ((1 << 18,), (0,), {}, [(0, 8), (0, 8)]),
        ((1 << 18,), (0,), {"ties": True}, [(0, 8), (0, 8)]),
        (((1 << 15) - 1,), (0,), {}, []),
        ((1 << 15,), (0,), {"platform": "gpu"}, []),
        ((1 << 15,), (0,), {"sharded": True}, []),
        ((1 << 15,), (0,), {"bits": 16}, [(0, 8)]),
        ((1 << 15,), (0,), {"bits": 8}, []),
        ((None, 1 << 15), (1,), {}, []),
        ((7, 1 << 13), (0,), {}, [(0, 7)]),  # all rows in one fold
        ((4, 1 << 13), (0,), {"ties": True}, [(0, 4)]),  # parts of one row
        ((3, 1 << 14), (0,), {"ties": True}, [(0, 2), (0, 2)]),  # not in one fold
        ((1 << 12, 16), (1,), {}, [(1, 8)]),
        ((1 << 12, 15), (1,), {}, [(1, 8)]),
        ((1 << 12, 15), (1,), {"bits": 16}, [(1, 4)]),  # 8 parts would have 16 bits each
        ((1 << 13, 8), (1,), {"bits": 16}, [(1, 8)]),
        ((1 << 13, 9), (1,), {"bits": 16}, [(1, 4)]),
        ((1 << 12, 32), (1,), {"ties": True}, [(1, 4)]),  # 8 would have 4 elements each
        ((1 << 12, 64), (1,), {"ties": True}, [(1, 8)]),
        ((1 << 12, 63), (1,), {"ties": True}, [(1, 4), (1, 2)]),
        ((1 << 15, 1), (1,), {}, []),
        ((16, 1 << 11), (0,), {}, [(0, 8)]),
        ((17, 1 << 11), (0,), {}, [(0, 8)]),
        ((64, 64, 8), (1, 0), {}, [(0, 8)]),  # the first of two
        ((5, 64, 1 << 10), (0, 1), {}, [(1, 8), (1, 8)]),
    ],
)
def test_reduction_folds(shape, axes, options, folds):
    assert fold_steps(shape, axes, **options) == folds


def test_segment_tie_count_fits_32_bits():
    assert counts_ties_in_branch("cpu", (2**31, 1))
    assert counts_ties_in_branch("cpu", (2**32 - 1,))
    assert not counts_ties_in_branch("cpu", (2**32,))
    assert not counts_ties_in_branch("portable", (2,))
