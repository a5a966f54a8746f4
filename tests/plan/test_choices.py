"""Choices between implementations, on both sides of each limit."""

import dataclasses
import math

import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import make_window
from jaxpool._plan.boxes import (
    boxes_in_memory,
    choose_cotangent_form,
    concatenates_levels,
    gathers_pixels,
    gathers_points,
    num_box_parts,
)
from jaxpool._plan.max_pool import (
    choose_residual,
    plan_centre_comparison,
    plan_max,
    plan_tie_folds,
    uses_select_and_scatter,
)
from jaxpool._plan.problem import (
    Problem,
    always_scales,
    barrier_of,
    fits_tables,
    is_ordinary_pool,
    nbytes,
    num_batch_chunks,
    num_elements,
    row_size,
    taps_per_loop_step,
)
from jaxpool._plan.rank_pool import merges_rows, uses_backward_loop, uses_sorting_network
from jaxpool._plan.reduce import reduces_as_floats
from jaxpool._plan.scatter import (
    counts_ties_in_branch,
    flattens_scatter,
    scatters_in_order,
    scatters_to_rows,
)
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import CPU, GPU, LIMITS


def adaptive(sizes, output_shape):
    return adaptive_window((1, *sizes, 1), output_shape, None)


def whole(taps):
    return make_window((1, taps, 1), (taps,))


def sliding(taps, stride=1):
    return make_window((1, 999, 1), (taps,), (stride,))


def rows_of(channels, platform="cpu", *, sharded=False):
    shape = (1, 40, 9, channels)
    return Problem(shape, "float32", platform, make_window(shape, (3, 3)), is_sharded=sharded)


def windows_on(platform, taps, *, sharded=False):
    shape = (1, 99, 1)
    window = make_window(shape, (taps,), padding="SAME")
    return Problem(shape, "float32", platform, window, is_sharded=sharded)


def has_product_of_all_boxes(boxes, level, channels=4, platform="gpu"):
    form = choose_cotangent_form(platform, (boxes, 2, 3, channels), [(1, 8, 8), level])
    return form == "product"


def gathers_elements(problem):
    return plan_sum(problem).passes[0].layout.read_mode == "clamped"


def scaled_taps(taps):
    return Problem((1, 99, 1), "float32", "gpu", make_window((1, 99, 1), (taps,)))


def of_dtype(dtype, platform):
    return Problem((1, 9, 8), dtype, platform, make_window((1, 9, 8), (3,)))


TALL = (1, CPU.max_table_positions + 2, 1, 16)


def tables(shape, *, window=(3, 3), platform="cpu", sharded=False, transposed=False):
    """Return a problem and how its window, or the transpose of it, reads an array."""
    known = tuple(size or 8 for size in shape)
    given = make_window(known, window)
    step = plan_max(Problem(known, "float32", "portable", given)).forward[0].step
    phases = step.transposed_phases if transposed else step.phases
    return Problem(shape, "float32", platform, given, is_sharded=sharded), phases


ROW, NETWORK = int(CPU.min_tap_loop_row), CPU.max_sorting_network_taps
LEAST, MOST = int(CPU.min_float_reduction_size), int(CPU.min_folded_elements)
PER_SEGMENT = CPU.min_scattered_rows
# Elements of all levels but one, so that ten boxes read one array
OPERAND = GPU.max_box_product_elements
LEVELS = 10 * CPU.max_concatenated_bytes // 4 - 5
CHOICES = [  # choice, arguments for which it is True, and lists of arguments for which it is False
    (is_ordinary_pool, [adaptive([2 * LIMITS.max_adaptive_taps], (2,))]),
    (is_ordinary_pool, [adaptive([8, 6], (4, 3))], [adaptive([8, 7], (4, 3))]),
    (is_ordinary_pool, [sliding(3)], [adaptive([2 * LIMITS.max_adaptive_taps + 2], (2,))]),
    (uses_backward_loop, [sliding(LIMITS.max_mask_taps + 1)], [sliding(LIMITS.max_mask_taps)]),
    (uses_backward_loop, [sliding(99)], [sliding(99, 99)]),
    (uses_sorting_network, [NETWORK, "cpu"], [NETWORK + 1, "cpu"]),
    (merges_rows, [rows_of(ROW - 1)], [rows_of(ROW)], [rows_of(ROW - 1, "gpu")]),
    (merges_rows, [rows_of(2)], [rows_of(1)], [rows_of(2, sharded=True)]),
    (uses_select_and_scatter, [of_dtype("float32", "tpu")], [of_dtype("float64", "tpu")]),
    *[
        (uses_select_and_scatter, [of_dtype("bfloat16", "tpu")], [of_dtype("float32", platform)])
        for platform in ("cpu", "gpu", "portable")
    ],
    (fits_tables, tables((1, 8, 9, 16)), tables((None, 8, 9, 16)), (rows_of(16), [()])),
    (fits_tables, (rows_of(16), []), tables((1, 8, 9, 16), sharded=True)),
    (
        fits_tables,
        tables(TALL, window=(3, 1)),
        tables(TALL, window=(3, 1), transposed=True),
        tables((1, 8, 9, 16), platform="gpu"),
    ),
    (reduces_as_floats, ["cpu", (3, LEAST), (1,)], ["cpu", (3, LEAST - 1), (1,)]),
    (reduces_as_floats, ["cpu", (1, MOST - 1), (1,)], ["cpu", (1, MOST), (1,)]),
    (reduces_as_floats, ["cpu", (4, LEAST // 4), (0, 1)], ["cpu", (4, LEAST // 4), (0,)]),
    (reduces_as_floats, ["cpu", (3, 99), (1,)], ["gpu", (3, 99), (1,)], ["cpu", (None, 99), (1,)]),
    *[
        (scatters_in_order, ["cpu", (2, 8, 16, 5), False], [platform, (2, 8, 16, 5), False])
        for platform in ("gpu", "tpu", "portable")
    ],
    (
        scatters_in_order,
        ["cpu", (2**11, 2**10, 2**10 - 1), False],
        ["cpu", (2**11, 2**10, 2**10), False],
        ["cpu", (2, 8), True],
        ["cpu", (None, 8), False],
    ),
    (
        scatters_to_rows,
        ["cpu", (3 * PER_SEGMENT, 8), 3, False],
        ["cpu", (3 * PER_SEGMENT - 1, 8), 3, False],
        ["cpu", (3 * PER_SEGMENT, 8), 3, True],
        ["gpu", (3 * PER_SEGMENT, 8), 3, False],
        ["cpu", (None, 8), 3, False],
    ),
    (
        gathers_elements,
        [rows_of(16, "gpu")],
        [rows_of(16, "cpu")],
        [rows_of(16, "gpu", sharded=True)],
        [dataclasses.replace(rows_of(16, "gpu"), is_partitioned=True)],
    ),
    *[
        (
            flattens_scatter,
            [rows_of(16, "gpu"), (1, 80, 9, 16)],
            [rows_of(16, platform), (1, 80, 9, 16)],
            [rows_of(16, "gpu"), (1, 2**16, 2**15, 16)],
            [rows_of(16, "gpu"), (None, 80, 9, 16)],
            [rows_of(16, "gpu", sharded=True), (1, 80, 9, 16)],
            [dataclasses.replace(rows_of(16, "gpu"), is_partitioned=True), (1, 80, 9, 16)],
        )
        for platform in ("cpu", "tpu", "portable")
    ],
    *[
        (
            always_scales,
            [scaled_taps(GPU.max_scaled_taps)],
            [scaled_taps(GPU.max_scaled_taps + 1)],
            [dataclasses.replace(scaled_taps(2), platform=platform)],
            [dataclasses.replace(scaled_taps(2), is_sharded=True)],
            [dataclasses.replace(scaled_taps(2), is_partitioned=True)],
            [dataclasses.replace(scaled_taps(2), shape=(None, 99, 1))],
            [dataclasses.replace(scaled_taps(2), shape=(0, 99, 1))],
            [dataclasses.replace(scaled_taps(2), shape=(2**25, 99, 1))],
        )
        for platform in ("cpu", "tpu", "portable")
    ],
    (counts_ties_in_branch, ["cpu", (2**31, 1)], ["portable", (2,)]),
    (counts_ties_in_branch, ["cpu", (2**32 - 1,)], ["cpu", (2**32,)]),
    (gathers_points, [LIMITS.max_gathered_samples], [LIMITS.max_gathered_samples + 1], [None]),
    (gathers_pixels, ["gpu", 4], ["gpu", 5], ["tpu", 4]),
    # Operands of 2 rows of cells per box: boxes and channels in columns, or the rows of all images.
    (
        has_product_of_all_boxes,
        [OPERAND // 128, (1, 8, 16)],
        [OPERAND // 128 + 1, (1, 8, 16)],
        [OPERAND // 128, (1, 8, 16), None],
        [1, (1, 8, 16), 4, "cpu"],
        [1, (1, 8, 16), 4, "tpu"],
    ),
    (has_product_of_all_boxes, [OPERAND // 1024, (64, 8, 16)], [OPERAND // 512, (64, 8, 16)]),
    (
        plan_centre_comparison,
        [windows_on("gpu", GPU.max_compared_taps)],
        [windows_on("gpu", GPU.max_compared_taps + 1)],
        [windows_on("gpu", 3, sharded=True)],
        [windows_on("cpu", 3)],
        [windows_on("tpu", 3)],
    ),
    (
        concatenates_levels,
        ["cpu", [LEVELS, 5], 4, 10],
        ["cpu", [LEVELS + 1, 5], 4, 10],
        ["cpu", [5, None], 4, 10],
        ["tpu", [1], 4, 10],
    ),
]


@pytest.mark.parametrize(("choice", "inside", "beyond"), [(c, a, b) for c, a, *b in CHOICES])
def test_choice_on_both_sides_of_its_limit(choice, inside, beyond):
    assert choice(*inside)
    assert not any(choice(*each) for each in beyond)


@pytest.mark.parametrize(
    ("dtype", "bits", "sum_bits", "low_precision"),
    [
        ("bool", 8, 8, False),
        ("uint16", 16, 16, False),
        ("float8_e4m3fn", 8, 32, True),
        ("bfloat16", 16, 32, True),
        ("float32", 32, 32, False),
        ("float64", 64, 64, False),
    ],
)
def test_bits_per_element(dtype, bits, sum_bits, low_precision):
    problem = of_dtype(dtype, "cpu")
    found = problem.bits, problem.sum_bits, problem.is_low_precision
    assert found == (bits, sum_bits, low_precision)


def test_sizes_of_arrays():
    assert (num_elements((2, 3)), num_elements((2, None)), num_elements(())) == (6, math.inf, 1)
    assert (row_size((2, 3, 4, 5), (1,)), row_size((2, 3, 4, 5), (0, 2))) == (20, 5)
    assert row_size((2, 3), ()) == 6
    assert (nbytes((2, 3), 16), nbytes((2, None), 8)) == (12, math.inf)
    assert (barrier_of("cpu"), barrier_of("gpu")) == ("call", "barrier")


LONG = LIMITS.max_mask_taps + 1


@pytest.mark.parametrize(
    ("window", "kept", "kept_if_split", "kept_on_tpu"),
    [
        (sliding(LONG - 1), "tap", "bits", "tap"),  # on TPU too many comparisons
        (sliding(LONG), "tap", "arrays", "tap"),
        (whole(LIMITS.max_sliding_taps), "tap", "bits", "input"),
        (whole(LIMITS.max_sliding_taps + 1), "rank", "rank", "rank"),
        (make_window((1, 5, 5, 1), (5, 4)), "tap", "bits", "input"),  # covers only one axis
        (make_window((1, 99, 17, 1), (1, 17)), "tap", "bits", "input"),
        (make_window((1, 8, 8, 1), (5, 5), (2, 2)), "tap", "bits", "input"),
        (make_window((1, 64, 64, 1), (32, 32)), "tap", "arrays", "input"),
        (make_window((1, 64, 64, 1), (3, 33)), "tap", "arrays", "tap"),
        (make_window((1, 8, 8, 1), (3, 3), window_dilation=2), "tap", "bits", "tap"),
    ],
)
def test_residual_choice(window, kept, kept_if_split, kept_on_tpu):
    assert choose_residual(window, split=False) == kept
    assert choose_residual(window, split=True) == kept_if_split
    assert choose_residual(window, split=False, platform="tpu") == kept_on_tpu


@pytest.mark.parametrize(("rows", "regions"), [(16, 1), (17, 3)])
def test_max_plan_regions(rows, regions):
    """A window of 9 taps with 4 on each side is inside the array at 8 of 16 positions, and at 9 of 17."""
    shape = (1, rows, 1, CPU.min_region_bytes // 32)
    problem = Problem(shape, "float32", "cpu", make_window(shape, (9, 1), padding="SAME"))
    layout = plan_max(problem).forward[0].layout
    assert math.prod(map(len, layout.axis_regions)) == regions


@pytest.mark.parametrize(
    ("window", "stride", "size", "platform", "deinterleaves"),
    [
        (3, 2, 28, "cpu", True),
        (3, 2, 33, "cpu", False),  # longer rows are vectorised anyway
        (4, 3, 28, "cpu", True),
        (5, 4, 28, "cpu", False),
        (3, 1, 14, "cpu", False),
        (3, 2, 28, "gpu", False),
        (3, 2, 14, "cpu", True),
        (2, 2, 14, "cpu", False),  # disjoint windows: only for 8 to 15 outputs
        (2, 2, 16, "cpu", True),
        (2, 2, 30, "cpu", True),
        (2, 2, 32, "cpu", False),
    ],
)
def test_deinterleaved_last_axis(window, stride, size, platform, deinterleaves):
    def modes(axis):
        shape = (2, size) if axis else (size, 2)
        windows = make_window(shape, (window,), (stride,), axes=(axis,))
        plan = plan_max(Problem(shape, "float32", platform, windows))
        return plan.forward[0].layout.read_mode, plan.value[0].layout.read_mode

    forward, value = modes(1)
    assert (forward == "deinterleaved") == deinterleaves
    assert value != "deinterleaved"
    assert "deinterleaved" not in modes(0)


def test_tap_loop_steps():
    assert (taps_per_loop_step(), taps_per_loop_step(has_weights=True)) == (16, 8)


def test_folds_over_ties():
    """A window is halved until few taps, or the taps of one stride, are left; covering windows have stride 1."""

    def num_halvings(fold):
        return 0 if fold.halves is None else 1 + num_halvings(fold.halves)

    for taps, stride, over_taps, over_windows in (
        (6, 1, 0, 0),
        (7, 1, 1, 1),
        (28, 9, 3, 3),
        (9, 9, 0, 1),
    ):
        folds = plan_tie_folds(sliding(taps, stride))
        assert [num_halvings(*each) for each in (folds.over_taps, folds.over_windows)] == [
            over_taps,
            over_windows,
        ]


HALF = int(CPU.max_chunk_elements) // 2


@pytest.mark.parametrize(
    ("shape", "platform", "count"),
    [
        ((1, 2 * HALF), "cpu", 1),
        ((2, HALF), "cpu", 1),
        ((4, HALF), "cpu", 2),
        ((3, HALF), "cpu", 3),
        ((6, HALF), "cpu", 3),
        ((3, 2 * HALF + 1), "cpu", 3),
        ((1, 2 * HALF + 1), "cpu", 1),
        ((4, None), "cpu", 1),
        ((4, HALF), "gpu", 1),
    ],
)
def test_batch_chunks_divide_batch(shape, platform, count):
    window = make_window((1, 9), (1,), axes=(1,))
    assert num_batch_chunks(Problem(shape, "float32", platform, window)) == count


def test_boxes_at_a_time():
    points = LIMITS.max_points_in_memory
    found = [boxes_in_memory((2, 4), count) for count in (points // 16, points // 16 + 1, points)]
    assert found == [2, 1, 1]
    assert boxes_in_memory((2, 4), 0) == points // 8


def test_num_box_parts():
    # Channels for which a row of five cells fits one part
    row = LIMITS.max_points_in_memory // (5 * 16)
    parts = {row // 6: 1, row // 4: 2, row // 3: 2, row: 6, 2 * row: 6, "C": 1}
    assert {channels: num_box_parts((6, 5), 16, channels) for channels in parts} == parts
    assert num_box_parts((1, 5), 16, row) == 1


def test_passes_of_sums_are_independent_of_the_order_of_axes():
    shape = (2, 3, 40, 41)
    windows = (
        make_window(shape, (9, 5), 2, axes=(2, 3)),
        make_window(shape, (5, 9), 2, axes=(3, 2)),
    )
    one, other = (plan_sum(Problem(shape, "float32", "cpu", window)) for window in windows)
    assert one == other
