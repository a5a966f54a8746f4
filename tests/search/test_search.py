"""Random programs match the oracle, wrong results are detected, and failures that were found stay fixed.

The search: HYPOTHESIS_PROFILE=search python -m pytest -n auto -m slow tests/search
A program that fails is added to FAILURES, with its fix.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpool.testing import Answer, pools
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle import chance
from tests.search.programs import Program, check, programs
from tests.support.drawn import SEARCH
from tests.support.later import first_values

PLATFORMS = ["cpu", "gpu", "tpu", "portable"]
MAX_POOL = Program(
    "max_pool",
    ((9, 2),),
    "float32",
    (("padding", "SAME"), ("ties", "first"), ("window_shape", (3,))),
    arrays=8,
)
FAILURES = {
    "subnormals taken for zeros by XLA for CPU": Program(
        "min", ((12, 6),), "float32", (("axis", (1, 0)), ("ties", "split"))
    ),
    "the form of a GPU on a CPU, where XLA loses NaNs": Program(
        "adaptive_max_pool",
        ((9, 14, 7),),
        "float32",
        (("axes", (0, 2)), ("output_shape", (7, 5)), ("ties", "first")),
        "gpu",
    ),
    "cotangents of levels, rounded one by one": Program(
        "spatial_pyramid_pool",
        ((5, 1),),
        "bfloat16",
        (("axes", (0,)), ("kind", "avg"), ("levels", (1, 2, 3))),
        hasty=False,
    ),
    "a tangent of another dtype": Program(
        "lp_pool",
        ((1, 1),),
        "bfloat16",
        (("ceil_mode", False), ("p", 1.0), ("padding", "VALID"), ("window_shape", (1,))),
        hasty=False,
    ),
    "shares of bfloat16 are kept rounded": Program(
        "segment_softmax",
        ((3, 1),),
        "bfloat16",
        (("indices_are_sorted", False), ("num_segments", 1), ("seed", 0)),
        arrays=8,
    ),
    "points of 16 bits are rounded before the largest is chosen": Program(
        "roi_align",
        ((12, 3, 1),),
        "bfloat16",
        (
            *(("aligned", True), ("boxes", 17), ("kind", "max"), ("output_shape", (2, 1))),
            *(("samples", 2), ("seed", 73), ("spatial_scale", 1.0)),
        ),
        hasty=False,
        arrays=80,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
@settings(max_examples=1000 if SEARCH else 3)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_random_programs(platform, data, seed):
    check(data.draw(programs(platform)), seed)


@pytest.mark.parametrize("failure", first_values(1, FAILURES))
def test_failure_stays_fixed(failure):
    check(FAILURES[failure], 278 if FAILURES[failure].function == "roi_align" else 0)


def test_wrong_random_draw_is_detected(monkeypatch):
    geometry = (("axes", (0,)), ("padding", "VALID"), ("seed", 3), ("window_shape", (3,)))
    name = next(name for name, pool in pools().items() if pool.takes("key", "padding"))
    program = Program(name, ((9, 2),), "float32", geometry, arrays=8)
    check(program, 0)
    share = chance._uniform_per_window
    monkeypatch.setattr(chance, "_uniform_per_window", lambda *args: 1 - share(*args))
    with pytest.raises(AssertionError, match="value of"):
        check(program, 0)


@pytest.mark.parametrize("function", ["exact_cotangents", "exact_tangent"])
def test_shifted_derivatives_are_detected(monkeypatch, function):
    right = getattr(Answer, function)

    def shifted(self, *args, **kwargs):
        found = right(self, *args, **kwargs)
        return [np.roll(dx, 1) for dx in found] if isinstance(found, tuple) else np.roll(found, 1)

    check(MAX_POOL, 0)
    monkeypatch.setattr(Answer, function, shifted)
    with pytest.raises(AssertionError, match=function.removeprefix("exact_")[:9]):
        check(MAX_POOL, 0)


def test_wrong_tie_rule_is_detected(monkeypatch):
    choose = parts.extremum_reducer
    monkeypatch.setattr(parts, "extremum_reducer", lambda best, ties: choose(best, "last"))
    with pytest.raises(AssertionError, match="of Program"):
        check(MAX_POOL, 0)
