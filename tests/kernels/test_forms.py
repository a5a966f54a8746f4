"""Every form of every kernel equals the oracle. Changed thresholds select each form for small arrays."""

import contextlib
import dataclasses
import sys
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING
from jaxpool.testing import pools
from tests.search.programs import Program, check, programs
from tests.support.drawn import examples

POOLS = pools()
ARRAYS = 6  # of one program, one of each kind of values


def names_of(*arguments):
    """Return the functions that take all of these arguments."""
    return tuple(name for name, pool in POOLS.items() if pool.takes(*arguments))


SHORT_STEPS = {  # loops with two pieces per step
    "max_one_pass_taps": 1,
    "max_overlapping_taps": 1,
    "one_pass_taps_per_element": 0,
    "pieces_per_step": 2,
    "max_pass_taps": 1,
}
NO_TABLES = {"max_table_positions": 0, "min_vector_elements": 0, "max_deinterleaved_stride": 1}
REGIONS = {"min_region_bytes": 0, **NO_TABLES}
ROUTED_BY_TABLES = {
    "max_table_positions": NEVER,
    "min_route_table_row": 0,
    "max_route_table_windows": NEVER,
    "max_disjoint_phase_taps": 0,
}
LOOP_OVER_TAPS = {"max_mask_taps": 0}
FOLDED = {
    "min_folded_elements": 0,
    "max_fully_folded_size": 0,
    "min_folded_row_bits": 1,
}
MAX_FORMS = [  # platform, thresholds
    *[(platform, {}) for platform in TUNING],
    ("portable", SHORT_STEPS),
    ("portable", LOOP_OVER_TAPS),
    ("tpu", {"reduce_window_max_taps": 0}),
    ("gpu", SHORT_STEPS),
    ("gpu", {"max_constant_entries": 0}),
    ("cpu", {**REGIONS, "bounds_checked_terms": NEVER}),
    ("cpu", {**REGIONS, "bounds_checked_terms": 0}),
    ("cpu", {**REGIONS, **SHORT_STEPS}),
    ("cpu", SHORT_STEPS),
    ("cpu", {**FOLDED, "min_tile_taps": 1, "min_16_bit_tile_row": 0}),
    ("cpu", LOOP_OVER_TAPS),
    ("cpu", {**NO_TABLES, "min_vector_elements": NEVER}),
    ("cpu", {**ROUTED_BY_TABLES, "max_route_windows": 0, "max_unstrided_route_windows": 0}),
    ("cpu", {**ROUTED_BY_TABLES, "max_route_windows": NEVER, "max_unstrided_route_windows": NEVER}),
]
AXIS_BY_AXIS = {"max_sum_taps": 0, "short_window_taps": 0}
TWO_PASS_SUMS = {**AXIS_BY_AXIS, "max_sum_window": 2}
SUM_REGIONS = {"min_sum_region_bytes": 0, "bounds_checked_taps": 0, **NO_TABLES}
SUMMED_BY_TABLES = {
    "min_sum_region_bytes": 0,
    "bounds_checked_taps": 0,
    "max_table_positions": NEVER,
    "min_table_row": 0,
    "max_table_terms": NEVER,
    "max_untabled_phases": 0,
}
SUM_FORMS = [
    *[(platform, {}) for platform in TUNING],
    ("portable", AXIS_BY_AXIS),
    ("portable", {"max_sum_passes": 0}),
    ("portable", {"max_sum_passes": 0, "reduce_window_sum_taps": 0}),
    ("portable", TWO_PASS_SUMS),
    ("portable", {**AXIS_BY_AXIS, "max_sum_window": 3}),
    ("gpu", {**TWO_PASS_SUMS, "max_sum_passes": NEVER}),
    ("gpu", {"max_constant_entries": 0}),
    ("cpu", {"min_sum_region_bytes": NEVER}),
    ("cpu", SUM_REGIONS),
    ("cpu", {**SUM_REGIONS, **AXIS_BY_AXIS}),
    ("cpu", {**SUM_REGIONS, **TWO_PASS_SUMS}),
    ("cpu", {**SUM_REGIONS, **TWO_PASS_SUMS, "bounds_checked_positions": 0}),
    ("cpu", SUMMED_BY_TABLES),
    ("cpu", {**SUMMED_BY_TABLES, **AXIS_BY_AXIS}),
]
RANK_FORMS = [
    ("portable", {}),
    ("portable", LOOP_OVER_TAPS),
    ("cpu", {**LOOP_OVER_TAPS, "max_sorting_network_taps": 0}),
    ("cpu", {**LOOP_OVER_TAPS, "min_tap_loop_row": NEVER}),
]
COMPUTED_TABLES = {"max_constant_entries": 0}
FORMS = {  # functions, and the forms of their kernels
    ("max_pool", "min_pool", "max_pool_with_argmax"): MAX_FORMS,
    ("avg_pool", "sum_pool"): SUM_FORMS,
    ("median_pool", "rank_pool"): RANK_FORMS,
    names_of("reverse"): [
        ("gpu", {"scan_radix": 2}),
        ("gpu", {"scan_radix": 3, "max_constant_entries": 0}),
        ("gpu", {"scan_radix": 3, "min_scan_block_size": 3, "reduces_before_scan": False}),
        ("cpu", {"scan_radix": 3, "min_scan_block_size": 3}),
        ("cpu", {"scan_radix": 2, "min_scan_block_size": 4}),
    ],
    ("max", "min"): [
        ("portable", {}),
        ("cpu", FOLDED),
        ("cpu", {"min_float_reduction_size": 0}),
    ],
    names_of("segment_ids"): [("portable", {}), ("gpu", {"scan_radix": 1}), ("gpu", {})],
    ("segment_max", "segment_min"): [("cpu", {"min_scattered_rows": 0})],
    names_of("boxes"): [
        ("portable", {}),
        ("portable", {"boxes_per_matmul": 2, "max_points_in_memory": 1}),
        ("cpu", {"max_points_in_memory": 1, "max_concatenated_bytes": 0}),
        ("cpu", {"max_gathered_samples": 0}),
        ("gpu", {}),
        ("gpu", {"max_box_product_elements": 0, "max_concatenated_bytes": 0}),
    ],
    ("local_maxima", "local_minima"): [("portable", {}), ("gpu", {})],
    ("roi_max_pool",): [
        ("portable", {}),
        ("portable", {"boxes_per_loop": 2, "tile_rows": 2, "tile_columns": 3}),
        ("cpu", {"boxes_per_loop": 2}),
    ],
    ("adaptive_max_pool_with_argmax", "adaptive_avg_pool", "spatial_pyramid_pool"): [
        ("portable", {}),
        ("portable", COMPUTED_TABLES),
        ("cpu", {"max_adaptive_taps": 1, "max_gathered_windows": 0}),
        ("cpu", {"max_adaptive_taps": 1, **COMPUTED_TABLES}),
    ],
    names_of("output_shape", "window_shape"): [
        ("portable", {}),
        ("cpu", COMPUTED_TABLES),
    ],
    ("max_unpool",): [("portable", {}), ("cpu", {}), ("gpu", {})],
    ("k_max_pool",): [("portable", {}), ("cpu", {"max_compared_positions": 0})],
    (*names_of("temperature", "window_shape"), *names_of("p")): [
        ("portable", {}),
        ("tpu", {}),
        ("gpu", {"max_scaled_taps": NEVER}),
        ("gpu", {}),
        ("portable", {"weighted_taps_per_loop_step": 2, "taps_per_loop_step": 2}),
        ("cpu", {"max_chunk_elements": 1}),
    ],
    names_of("kernel"): [
        ("portable", {}),
        ("cpu", {"max_unrolled_morphology_taps": 0}),
    ],
    (*names_of("blur_shape"), "blur_pool"): [
        ("portable", {}),
        ("portable", {"max_blur_taps": 1}),
        ("cpu", {"max_blur_taps": NEVER}),
    ],
}


@contextlib.contextmanager
def changed_thresholds(platform, changes):
    """Change thresholds of all platforms and of one platform, with empty caches of plans and programs."""
    limits = {name: value for name, value in changes.items() if hasattr(LIMITS, name)}
    tuning = {name: value for name, value in changes.items() if name not in limits}
    assert vars(TUNING[platform]).keys() >= tuning.keys()
    with (
        mock.patch.dict(vars(LIMITS), limits),
        mock.patch.dict(vars(TUNING[platform]), tuning),
    ):
        clear_caches()
        yield
    clear_caches()


def clear_caches():
    jax.clear_caches()
    for name, module in list(sys.modules.items()):
        if name.startswith("jaxpool._"):
            for cached in vars(module).values():
                getattr(cached, "cache_clear", int)()


def test_unrolled_kernel_of_several_tie_words():
    """A kernel of more than 32 elements has the same gradients unrolled, with two words of bits, as in a loop."""
    rng = np.random.default_rng(0)
    x, kernel, dy = (
        rng.integers(0, 3, shape).astype(np.float32)
        for shape in [(1, 9, 9, 2), (7, 7), (1, 3, 3, 2)]
    )

    def gradients():
        y, vjp = jax.vjp(lambda x, kernel: jaxpool.dilate(x, kernel, ties="split"), x, kernel)
        return vjp(dy.astype(y.dtype))

    looped = gradients()
    with changed_thresholds("cpu", {"max_unrolled_morphology_taps": 49}):
        for unrolled, other in zip(gradients(), looped, strict=True):
            np.testing.assert_allclose(unrolled, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("functions", "platform", "thresholds"),
    [
        pytest.param(functions, *form, id=f"{functions[0]}-{number}")
        for functions, forms in FORMS.items()
        for number, form in enumerate(forms)
    ],
)
@examples(3)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_form_matches_oracle(functions, platform, thresholds, data, seed):
    program = data.draw(programs(platform, functions))
    program = dataclasses.replace(program, arrays=min(program.arrays, ARRAYS))
    with changed_thresholds(platform, thresholds):
        check(program, seed)


BOXES = {"boxes": 17, "output_shape": (2, 3), "samples": 2, "aligned": True, "spatial_scale": 1.0}
LEVELS = {**BOXES, "canonical_size": 2.0, "canonical_level": 0}
DISJOINT = {"window_shape": (2, 2), "strides": (2, 2), "padding": "VALID", "axes": (1, 2)}
UNPOOLED = {"spatial_shape": (4, 7), "axes": (2, 0), "seed": 0}
CHOSEN = [  # thresholds, and programs that are rarely drawn
    *[  # The length of an axis is no multiple of the number of chunks: the last two overlap.
        (FOLDED, Program("max", (shape,), {"axis": axes, "ties": ties}))
        for shape, axes in [((3, 19, 4), (1,)), ((2, 18, 5), (2, 1)), ((17,), (0,))]
        for ties in ("first", "last", "split")
    ],
    (
        {"boxes_per_matmul": 2},
        Program("roi_align", ((3, 7, 9, 2),), {**BOXES, "seed": 1}, platform="portable"),
    ),
    ({}, Program("multilevel_roi_align", ((3, 8, 8, 2), (3, 4, 4, 2)), {**LEVELS, "seed": 1})),
    (
        ROUTED_BY_TABLES,
        Program("max_pool", ((1, 6, 4, 3),), {**DISJOINT, "ties": "first"}, "float16"),
    ),
    *[
        ({}, Program("max_unpool", ((2, 3, 2, 5),), UNPOOLED, platform=platform))
        for platform in ("cpu", "gpu")
    ],
]


@pytest.mark.parametrize(("thresholds", "program"), CHOSEN)
def test_chosen_program_matches_oracle(thresholds, program):
    with changed_thresholds(program.platform, thresholds):
        check(dataclasses.replace(program, arrays=ARRAYS), 0)
