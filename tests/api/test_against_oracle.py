"""Random windows against the NumPy oracle, including those that lax gets wrong or lacks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import PoolCase, assert_pool_matches, draw_values, geometries, pool_cases
from tests.support.drawn import examples

pytestmark = pytest.mark.usefixtures("strict")

MODES = st.sampled_from(["vjp", "jvp"])
KINDS = [("max",), ("min",), ("median", "rank"), ("avg", "sum")]
FLOATS = (np.float32, jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)
SPECIAL = {
    "first": {"ties": ("first",)},
    "last": {"ties": ("last",)},
    "split": {"ties": ("split",)},
    "dilation in reverse": {
        "geometry": geometries().filter(lambda g: set(g.window_dilation or (1,)) != {1})
    },
    "ceil mode": {"geometry": geometries().filter(lambda g: g.ceil_mode)},
    "low precision": {"dtypes": FLOATS[1:]},
    "float64": {"dtypes": (np.float64,)},
    "integers": {"dtypes": (np.int8, np.uint8, np.int16, np.int32, np.uint32)},
    "bools": {"dtypes": (np.bool_,)},
}


@functools.cache
def pool_with_autodiff(name, autodiff):
    return functools.partial(getattr(jaxpool, name), autodiff=autodiff)


def with_new_values(case):
    """Yield `case` with other arrays of the same shapes, so that one compiled program sees many values."""
    rng = np.random.default_rng(int(np.abs(case.x.size * 7919 + case.window().taps_per_window)))
    for kind in ("ties", "normal", "special", "lowest"):
        x = draw_values(rng, case.x.shape, case.x.dtype, kind, greatest=case.kind == "min")
        dy = case.dy
        if dy is not None:
            dy = draw_values(rng, dy.shape, dy.dtype, "ties" if kind == "ties" else "normal")
        yield dataclasses.replace(case, x=x, dy=dy)


def check_against_oracle(drawn, autodiff):
    names = [f"{drawn.kind}_pool", *(["max_pool_with_argmax"] if drawn.kind == "max" else [])]
    for case in with_new_values(drawn):
        for name in names:
            assert_pool_matches(pool_with_autodiff(name, autodiff), case)


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
@given(data=st.data(), autodiff=MODES)
def test_random_windows(kinds, special, autodiff, data):
    """Includes NaN, infinities, padding, and every layout."""
    kinds = kinds.split("-")
    given = {"geometry": geometries(max_size=6) if "rank" in kinds else geometries()}
    with jax.enable_x64(special == "float64"):
        drawn = data.draw(pool_cases(kinds=kinds, **given | SPECIAL[special]))
        check_against_oracle(drawn, autodiff)


@pytest.mark.slow
@settings(max_examples=2000)
@given(case=pool_cases(kinds=sum(KINDS, ()), dtypes=FLOATS), autodiff=MODES)
def test_many_random_windows(case, autodiff):
    check_against_oracle(case, autodiff)


@pytest.mark.parametrize("kind", ["avg", "sum"])
def test_large_values_stay_in_their_windows(kind):
    """Differences of prefix sums would spread the rounding error of a large number over other windows."""
    large = np.array([1e30, 1, 2, 3, 4, 5, 6, 7, 8, 9], np.float32)[:, None]
    case = PoolCase(kind, large, large[:8], (3,), (1,), "VALID")
    assert_pool_matches(pool_with_autodiff(f"{kind}_pool", "vjp"), case)
