"""Plans with a test's own thresholds, so that small arrays reach every variant of a kernel, and random windows."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window
from jaxpool._plan.max_pool import MaxPlan, plan_max, plan_one_pass
from jaxpool._plan.problem import Platform, Problem
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import CPU, NEVER, PORTABLE, TPU, Tuning
from jaxpool.testing._windows import Windows, sliding_windows
from tests.support.later import later

NUM_SEEDS = 200


def seeds(number):
    """Parametrize by seed. Of the first `number`, two thirds run always and one third in CI; the rest is slow."""
    quick = number - number // 3
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(number, NUM_SEEDS)]
    return [*range(quick), *map(later, range(quick, number)), *slow]


@dataclasses.dataclass(frozen=True)
class Form:
    """A platform with the thresholds of a test."""

    platform: Platform
    thresholds: Tuning

    def problem(self, window, shape, dtype) -> Problem:
        name = np.dtype(dtype).name
        return Problem(window, tuple(shape), name, self.platform, thresholds=self.thresholds)


def portable(**thresholds) -> Form:
    return Form("gpu", dataclasses.replace(PORTABLE, **thresholds))


def cpu(**thresholds) -> Form:
    return Form("cpu", dataclasses.replace(CPU, **thresholds))


SHORT_STEPS = {  # loops with two pieces per step
    "max_one_pass_taps": 1,
    "max_overlapping_taps": 1,
    "one_pass_taps_per_element": 0,
    "pieces_per_step": 2,
    "max_pass_taps": 1,
}
NO_TABLES = {"max_table_positions": 0, "min_vector_elements": 0, "max_split_stride": 1}
REGIONS = {"min_region_bytes": 0, **NO_TABLES}
ROUTED_BY_TABLES = {
    "max_table_positions": NEVER,
    "min_route_table_row": 0,
    "max_route_table_windows": NEVER,
    "max_disjoint_phase_taps": 0,
}
MAX = {
    "portable": portable(),
    "portable, in short steps": portable(**SHORT_STEPS),
    "tpu": Form("tpu", TPU),
    "tpu, an axis after another": Form("tpu", dataclasses.replace(TPU, reduce_window_max_taps=0)),
    "cpu": cpu(),
    "cpu, bounds tested": cpu(**REGIONS, bounds_checked_terms=NEVER),
    "cpu, regions of copies": cpu(**REGIONS, bounds_checked_terms=0),
    "cpu, regions in short steps": cpu(**REGIONS, **SHORT_STEPS),
    "cpu, in short steps": cpu(**SHORT_STEPS),
    "cpu, short rows": cpu(max_table_positions=0, min_vector_elements=NEVER, max_split_stride=1),
    "cpu, one loop through tables": cpu(
        **ROUTED_BY_TABLES, max_route_windows=NEVER, max_unstrided_route_windows=NEVER
    ),
    "cpu, tables axis by axis": cpu(
        **ROUTED_BY_TABLES, max_route_windows=0, max_unstrided_route_windows=0
    ),
}
AXIS_BY_AXIS = {"max_sum_taps": 0, "short_window_taps": 0}
SUM_REGIONS = {"min_sum_region_bytes": 0, "bounds_checked_taps": 0, **NO_TABLES}
SUMMED_BY_TABLES = {
    "min_sum_region_bytes": 0,
    "bounds_checked_taps": 0,
    "max_table_positions": NEVER,
    "min_table_row": 0,
    "max_table_terms": NEVER,
    "max_untabled_phases": 0,
}
SUMS = {
    "portable": portable(),
    "portable, axis by axis": portable(**AXIS_BY_AXIS),
    "one reduction": portable(max_sum_passes=0),
    "a reduction for each axis": portable(max_sum_passes=0, reduce_window_sum_taps=0),
    "portable, sums of sums": portable(**AXIS_BY_AXIS, max_sum_window=2),
    "portable, sums of longer parts": portable(**AXIS_BY_AXIS, max_sum_window=3),
    "cpu": cpu(),
    "cpu, bounds tested": cpu(min_sum_region_bytes=NEVER),
    "cpu, regions": cpu(**SUM_REGIONS),
    "cpu, regions axis by axis": cpu(**SUM_REGIONS, **AXIS_BY_AXIS),
    "cpu, sums of sums by regions": cpu(**SUM_REGIONS, **AXIS_BY_AXIS, max_sum_window=2),
    "cpu, regions of copies": cpu(
        **SUM_REGIONS, **AXIS_BY_AXIS, max_sum_window=2, bounds_checked_positions=0
    ),
    "cpu, one loop through tables": cpu(**SUMMED_BY_TABLES),
    "cpu, tables axis by axis": cpu(**SUMMED_BY_TABLES, **AXIS_BY_AXIS),
}


def max_plans(window, shape, dtype) -> dict[str, MaxPlan]:
    """Return the plan of each form, the portable one first."""
    return {name: plan_max(form.problem(window, shape, dtype)) for name, form in MAX.items()}


def tie_plans(window, shape, dtype):
    return {name: plan_one_pass(form.problem(window, shape, dtype)) for name, form in MAX.items()}


def sum_plans(window, shape, dtype, *, transposed):
    return {
        name: plan_sum(form.problem(window, shape, dtype), is_transposed=transposed)
        for name, form in SUMS.items()
    }


def distinct_plans(plans, what=lambda plan: plan, rng=None, most=4):
    """Return one plan per distinct `what(plan)`: the first, and at most `most` random others if `rng` is passed."""
    found = {}
    for name, plan in plans.items():
        found.setdefault(what(plan), (name, plan))
    first, *others = found.values()
    if rng is not None and len(others) > most:
        others = [others[which] for which in sorted(rng.choice(len(others), most, replace=False))]
    return dict([first, *others])


@dataclasses.dataclass(frozen=True)
class DrawnWindow:
    """A window over an array of `shape`, in the representations of the library and of the oracle."""

    shape: tuple[int, ...]
    window: Window
    windows: Windows


def draw_window(rng: np.random.Generator) -> DrawnWindow:
    """Draw a window over one to three axes, often of (batch, ..., channels). Some windows cover only padding."""
    while True:
        rank = int(rng.choice([1, 2, 2, 2, 3]))
        long = rng.random() < (0.5, 0.2, 0.0)[rank - 1]
        taps = rng.integers(1, (18, 12)[rank - 1] if long else 5 - rank // 2, rank)
        sizes = rng.integers(1, (40, 14, 7)[rank - 1], rank)
        strides = rng.integers(1, 4 if rank < 3 else 3, rank) if rng.random() < 0.6 else [1] * rank
        dilation = rng.integers(1, 4, rank) if rng.random() < 0.25 else [1] * rank
        pairs = rng.integers(0, 3 if rng.random() < 0.7 else 9, (rank, 2)).tolist()
        others = rng.integers(1, 4, int(rng.integers(0, 3))).tolist()
        axes = list(range(1, 1 + rank)) if len(others) == 2 else list(range(rank))
        if rng.random() < 0.3:
            axes = rng.permutation(rank + len(others))[:rank].tolist()
        lengths = dict(zip(axes, sizes.tolist(), strict=True))
        rest = iter(others)
        shape = tuple(
            lengths[axis] if axis in lengths else next(rest) for axis in range(rank + len(others))
        )
        padding = ["VALID", "SAME", "SAME_LOWER", pairs][int(rng.integers(0, 4))]
        options = {
            "window_dilation": tuple(dilation),
            "ceil_mode": bool(rng.random() < 0.3),
            "axes": tuple(axes),
        }
        given = (shape, tuple(taps), tuple(strides), padding)
        try:
            window = make_window(*given, **options, empty_windows="allow")
        except ArgumentError:
            continue
        if window.size <= 100:
            return DrawnWindow(shape, window, sliding_windows(*given, **options, allow_empty=True))


def draw_integers(rng, shape, dtype, special):
    """Draw integers whose sums are exact in float32, but often not in `dtype`. `special` adds NaN and infinities."""
    low_precision = jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize < 4
    most = 2 ** (jnp.finfo(dtype).nmant + 1) - 1 if low_precision else 99
    x = rng.integers(-most, most + 1, shape)
    if special:
        odd = rng.random(shape) < 0.1
        x = np.where(odd, rng.choice([np.nan, np.inf, -np.inf], shape), x)
    return x.astype(dtype)


def canonical_bits(x) -> np.ndarray:
    """Return the bits of an array, with one pattern for all NaNs."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x
    bits = x.view(f"u{x.dtype.itemsize}")
    return np.where(np.isnan(x.astype(np.float64)), np.iinfo(bits.dtype).max, bits)


def assert_same_bits(got, want, says):
    """Assert that two sequences of arrays have equal shapes, dtypes and bits."""
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), says
        np.testing.assert_array_equal(canonical_bits(one), canonical_bits(other), err_msg=says)
