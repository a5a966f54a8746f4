"""Random programs match the oracle, wrong results are detected, and failures that were found stay fixed.

The search: HYPOTHESIS_PROFILE=search python -m pytest -n auto -m slow tests/search
A program that fails is added to FAILURES, with its fix.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpool.testing import Answer, pools
from jaxpool.testing.oracle import chance
from tests.search.programs import Program, check, programs
from tests.support.drawn import SEARCH
from tests.support.later import first_values

PLATFORMS = ["cpu", "gpu", "tpu", "portable"]
MAX_POOL = Program(
    "max_pool", ((9, 2),), {"window_shape": (3,), "padding": "SAME", "ties": "first"}, arrays=8
)
FAILURES = {
    "subnormals taken for zeros by XLA for CPU": Program(
        "min", ((12, 6),), {"axis": (1, 0), "ties": "split"}
    ),
    "the form of a GPU on a CPU, where XLA loses NaNs": Program(
        "adaptive_max_pool",
        ((9, 14, 7),),
        {"output_shape": (7, 5), "axes": (0, 2), "ties": "first"},
        platform="gpu",
    ),
    "cotangents of levels, rounded one by one": Program(
        "spatial_pyramid_pool",
        ((5, 1),),
        {"levels": (1, 2, 3), "kind": "avg", "axes": (0,)},
        "bfloat16",
        hasty=False,
    ),
    "zeros of both signs in a segment": Program(
        "segment_max",
        ((7,),),
        {"num_segments": 1, "indices_are_sorted": False, "ties": "last", "seed": 32, "where": True},
        "float8_e4m3fn",
        platform="portable",
    ),
    "a tangent of another dtype": Program(
        "lp_pool",
        ((1, 1),),
        {"p": 1.0, "window_shape": (1,), "padding": "VALID", "ceil_mode": False},
        "bfloat16",
        hasty=False,
    ),
    "shares of bfloat16 are kept rounded": Program(
        "segment_softmax",
        ((3, 1),),
        {"num_segments": 1, "indices_are_sorted": False, "seed": 0},
        "bfloat16",
        arrays=8,
    ),
    "a dtype without 0 for padding": Program(
        "sum_pool",
        ((6, 1),),
        {"window_shape": (3,), "padding": "SAME"},
        "float8_e8m0fnu",
        platform="gpu",
        arrays=8,
    ),
    "points of 16 bits are rounded before the largest is chosen": Program(
        "roi_align",
        ((12, 3, 1),),
        {"boxes": 17, "output_shape": (2, 1), "samples": 2, "kind": "max", "seed": 73}
        | {"aligned": True, "spatial_scale": 1.0},
        "bfloat16",
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
    name = next(name for name, pool in pools().items() if pool.takes("key", "padding"))
    arguments = {"seed": 3, "window_shape": (3,), "padding": "VALID", "axes": (0,)}
    program = Program(name, ((9, 2),), arguments, arrays=8)
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
