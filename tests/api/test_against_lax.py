"""Random cases against autodiff of `lax.reduce_window`, where lax is correct: finite, first tie."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import geometries, pool_cases
from tests.support import lax_pools
from tests.support.drawn import examples, with_new_values

pytestmark = pytest.mark.usefixtures("strict")

KINDS = ("max", "min", "avg", "sum")
LAX_GEOMETRIES = geometries(dilation=False, ceil_mode=False)


def lax_cases(kind, geometry=LAX_GEOMETRIES, dtypes=(np.float32,)):
    """Cases that lax supports: the first of tied elements, no custom divisor."""
    drawn = pool_cases(
        kinds=(kind,), geometry=geometry, dtypes=dtypes, values=("ties",), ties=("first",)
    )
    return drawn.map(lambda case: dataclasses.replace(case, divisor=None))


def our_and_lax_pool(kind, autodiff="vjp"):
    ours = functools.partial(getattr(jaxpool, f"{kind}_pool"), autodiff=autodiff)
    return ours, lax_pools.POOLS[kind]


def jit_for_pools(function, pools, drawn):
    """`function` applied to each pool, compiled as one program."""
    return jax.jit(lambda *xs: [function(pool, *xs, **drawn.kwargs()) for pool in pools])


def assert_results_match(got, want, exact):
    assert got.dtype == want.dtype
    if exact:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@examples(12)
@given(data=st.data(), autodiff=st.sampled_from(["vjp", "jvp"]))
def test_value_and_cotangent_in_jit(kind, autodiff, data):
    drawn = data.draw(lax_cases(kind))
    run = jit_for_pools(lax_pools.value_and_cotangent, our_and_lax_pool(kind, autodiff), drawn)
    chosen = kind in ("max", "min")
    for case in with_new_values(drawn):
        (y, dx), (want_y, want_dx) = run(case.x, case.dy)
        assert_results_match(y, want_y, chosen)
        assert_results_match(dx, want_dx, chosen and not case.window().has_overlapping_windows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(data=st.data())
def test_value_and_cotangent_without_jit(kind, data):
    drawn = data.draw(lax_cases(kind))
    ours, theirs = our_and_lax_pool(kind)
    compiled = jax.jit(functools.partial(lax_pools.value_and_cotangent, theirs, **drawn.kwargs()))
    for case in with_new_values(drawn, rounds=1):
        x, dy = jnp.asarray(case.x), jnp.asarray(case.dy)
        y, dx = lax_pools.value_and_cotangent(ours, x, dy, **case.kwargs())
        want_y, want_dx = compiled(x, dy)
        assert_results_match(y, want_y, kind in ("max", "min"))
        assert_results_match(dx, want_dx, exact=False)


@pytest.mark.parametrize("kind", KINDS)
@examples(5)
@given(data=st.data())
def test_value_with_dilation(kind, data):
    """Forward pass only: lax has no reverse mode with dilation."""
    drawn = data.draw(lax_cases(kind, geometries(ceil_mode=False)))
    run = jit_for_pools(lambda pool, x, **kwargs: pool(x, **kwargs), our_and_lax_pool(kind), drawn)
    for case in with_new_values(drawn):
        assert_results_match(*run(case.x), kind in ("max", "min"))


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
@examples(6)
@given(data=st.data())
def test_integer_and_bool_values(kind, data):
    dtypes = (np.int8, np.uint8, np.int16, np.uint32, np.int32, *((np.bool_,) * (kind != "sum")))
    drawn = data.draw(lax_cases(kind, dtypes=dtypes))
    run = jit_for_pools(lambda pool, x, **kwargs: pool(x, **kwargs), our_and_lax_pool(kind), drawn)
    for case in with_new_values(drawn, ("ties", "normal", "special", "lowest"), rounds=1):
        assert_results_match(*run(case.x), exact=True)


@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(data=st.data())
def test_low_precision_computed_in_float32(kind, data):
    """The reference is lax in float32, with rounded results."""
    dtypes = (jnp.bfloat16, np.float16)
    drawn = data.draw(lax_cases(kind, geometries(dilation=False, ceil_mode=False), dtypes))
    ours, theirs = (
        jax.jit(functools.partial(lax_pools.value_and_cotangent, pool, **drawn.kwargs()))
        for pool in our_and_lax_pool(kind)
    )
    eps = float(jnp.finfo(drawn.x.dtype).eps)
    for case in with_new_values(drawn):
        got = ours(case.x, case.dy)
        want = theirs(case.x.astype(np.float32), case.dy.astype(np.float32))
        for one, other in zip(got, want, strict=True):
            assert one.dtype == case.x.dtype
            np.testing.assert_allclose(np.float32(one), other, rtol=eps, atol=1e-5)
