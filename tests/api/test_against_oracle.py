"""Random cases against the NumPy oracle, including cases that lax gets wrong or does not support."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import (
    PoolCase,
    assert_pool_matches,
    draw_values,
    geometries,
    pool_cases,
)
from tests.support import lax_pools
from tests.support.drawn import examples, with_new_values

pytestmark = pytest.mark.usefixtures("strict")

VALUE_KINDS = ("ties", "normal", "special", "lowest")
DILATED_GEOMETRIES = geometries().filter(
    lambda geometry: set(geometry.window_dilation or (1,)) != {1}
)
CEIL_GEOMETRIES = geometries().filter(lambda geometry: geometry.ceil_mode)
KINDS = [("max",), ("min",), ("median", "rank"), ("avg", "sum")]
FLOATS = (np.float32, jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)


@functools.cache
def pool_with_autodiff(kind, autodiff):
    return functools.partial(getattr(jaxpool, f"{kind}_pool"), autodiff=autodiff)


def check_against_oracle(drawn, autodiff="vjp", values=VALUE_KINDS):
    for case in with_new_values(drawn, values, rounds=1):
        assert_pool_matches(pool_with_autodiff(drawn.kind, autodiff), case)


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("kinds", KINDS[:3], ids="-".join)
@examples(5)
@given(data=st.data(), autodiff=st.sampled_from(["vjp", "jvp"]))
def test_max_min_median_and_rank(kinds, ties, autodiff, data):
    """Includes NaN, infinities, padding, ties, dilation, ceil mode and every layout."""
    geometry = geometries(max_size=6) if "rank" in kinds else geometries()
    check_against_oracle(
        data.draw(pool_cases(kinds=kinds, ties=(ties,), geometry=geometry)), autodiff
    )


@pytest.mark.parametrize("kind", ["avg", "sum"])
@examples(12)
@given(data=st.data(), autodiff=st.sampled_from(["vjp", "jvp"]))
def test_avg_and_sum(kind, autodiff, data):
    check_against_oracle(data.draw(pool_cases(kinds=(kind,))), autodiff)


SPECIAL = {
    "dilation in reverse": {"geometry": DILATED_GEOMETRIES},
    "ceil mode": {"geometry": CEIL_GEOMETRIES},
    "low precision": {"dtypes": FLOATS[1:]},
    "float64": {"dtypes": (np.float64,)},
    "integers": {"dtypes": (np.int8, np.uint8, np.int16, np.int32, np.uint32)},
    "bools": {"dtypes": (np.bool_,)},
}


@pytest.mark.parametrize(
    ("kinds", "special"),
    [
        ("-".join(kinds), special)
        for kinds in KINDS
        for special in SPECIAL
        if special != "bools" or "sum" not in kinds  # a sum of bools raises
    ],
)
@examples(4)
@given(data=st.data())
def test_special_geometries_and_dtypes(kinds, special, data):
    kinds = kinds.split("-")
    with jax.enable_x64(special == "float64"):
        check_against_oracle(
            data.draw(pool_cases(kinds=kinds, **SPECIAL[special])), values=("ties", "special")
        )


@pytest.mark.slow
@settings(max_examples=2000)
@given(
    case=pool_cases(kinds=sum(KINDS, ()), dtypes=FLOATS), autodiff=st.sampled_from(["vjp", "jvp"])
)
def test_many_random_cases(case, autodiff):
    check_against_oracle(case, autodiff)


# Windows for which lax is wrong, each with the reason


def one_axis_case(values, window, strides=1, padding="VALID", **more):
    x = np.array(values, np.float32)[:, None]
    case = PoolCase("max", x, None, (window,), (strides,), padding, **more)
    dy = np.arange(1, case.window().output_shape[0] + 1, dtype=np.float32)[:, None]
    return dataclasses.replace(case, dy=dy)


inf, nan = np.inf, np.nan
WRONG_IN_LAX = {
    "a NaN and then a number": one_axis_case([nan, 5, 2], 3),
    "a NaN between numbers": one_axis_case([1, nan, 5, 2], 2),
    "infinities beside padding": one_axis_case([-inf, -inf, -inf], 3, padding=((1, 1),)),
    "infinities and low padding alone": one_axis_case([-inf, -inf], 2, padding=((1, 0),)),
}


@pytest.mark.parametrize("why", WRONG_IN_LAX)
def test_cases_that_lax_gets_wrong(why):
    case = WRONG_IN_LAX[why]
    assert_pool_matches(jaxpool.max_pool, case)
    with pytest.raises(AssertionError, match="cotangent of"):
        assert_pool_matches(lax_pools.max_pool, case)


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_nonfinite_cotangent_reaches_only_selected_elements(ties, autodiff):
    """NaN or infinity times the 0 of an unselected element would spread over the window."""
    x = np.tile(np.array([3, 1, 2, 3, 0, 1], np.float32), 2)[:, None]
    dy = np.array([nan, 1, inf, 2], np.float32)[:, None]
    case = PoolCase("max", x, dy, (3,), (3,), "VALID", ties=ties)
    assert_pool_matches(pool_with_autodiff("max", autodiff), case)
    overlapping = PoolCase("max", x, np.resize(dy, (10, 1)), (3,), (1,), "VALID", ties=ties)
    assert_pool_matches(pool_with_autodiff("max", autodiff), overlapping)


@pytest.mark.parametrize("kind", ["avg", "sum"])
def test_nonfinite_values_and_cotangents_stay_in_their_windows(kind):
    """Differences of prefix sums would spread NaN over other windows."""
    x = np.array([1, nan, 2, 3, inf, 4, 5, -inf, 6, 7], np.float32)[:, None]
    dy = np.array([1, nan, 2, 3, inf, 4, 5, -inf], np.float32)[:, None]
    assert_pool_matches(pool_with_autodiff(kind, "vjp"), PoolCase(kind, x, dy, (3,), (1,), "VALID"))
    large = np.array([1e30, 1, 2, 3, 4, 5, 6, 7, 8, 9], np.float32)[:, None]
    assert_pool_matches(
        pool_with_autodiff(kind, "vjp"), PoolCase(kind, large, large[:8], (3,), (1,), "VALID")
    )


@pytest.mark.parametrize("kind", ["max", "min", "avg", "sum"])
@pytest.mark.parametrize("window", [5, 13, 31])
def test_large_windows(kind, window):
    """Odd and prime sizes, and a size above half of the input, built by doubling."""
    rng = np.random.default_rng(window)
    for values in VALUE_KINDS:
        x = draw_values(rng, (2, 40, 2), np.float32, values, greatest=kind == "min")
        dy = draw_values(rng, (2, 40, 2), np.float32, "ties")
        case = PoolCase(kind, x, dy, (window,), (1,), "SAME")
        assert_pool_matches(pool_with_autodiff(kind, "vjp"), case)
        if kind in ("max", "min"):
            assert_pool_matches(
                pool_with_autodiff(kind, "vjp"), dataclasses.replace(case, ties="last")
            )


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last", "split"])
def test_window_of_more_than_256_elements(kind, ties):
    rng = np.random.default_rng(3)
    x = draw_values(rng, (20, 20, 1), np.float32, "ties")
    dy = draw_values(rng, (2, 2, 1), np.float32, "normal")
    case = PoolCase(kind, x, dy, (17, 17), (3, 3), "VALID", ties=ties)
    assert_pool_matches(pool_with_autodiff(kind, "vjp"), case)
    last = np.zeros((20, 20, 1), np.float32)
    last[16, 16] = last[19, 19] = 1 if kind == "max" else -1
    assert_pool_matches(pool_with_autodiff(kind, "vjp"), dataclasses.replace(case, x=last))


@pytest.mark.parametrize("shape", [(0, 4, 4, 1), (2, 4, 4, 0), (0, 4, 4, 0)])
@pytest.mark.parametrize("kind", ["max", "min", "avg", "sum"])
def test_empty_batch_and_channels(kind, shape):
    x = np.zeros(shape, np.float32)
    dy = np.zeros((shape[0], 2, 2, shape[3]), np.float32)
    assert_pool_matches(
        pool_with_autodiff(kind, "vjp"), PoolCase(kind, x, dy, (2, 2), (2, 2), "SAME")
    )
