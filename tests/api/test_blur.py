"""Blurs of any length: two passes are one, weights add up to 1, programs and memory stay small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops import blur_pool as op
from jaxpool.testing import oracle
from tests.support.compilation import AS_USERS

RNG = np.random.default_rng(0)


def both(x, dy, window, strides=None, axes=None):
    y, back = jax.vjp(lambda x: jaxpool.blur_pool(x, window, strides, axes=axes), x)
    return y, *back(dy)


@pytest.mark.parametrize(
    ("shape", "window", "strides", "axes"),
    [
        ((1, 19, 23, 1), (17, 12), (4, 5), (1, 2)),
        ((9, 2, 8, 5), (2, 5, 3), (1, 3, 2), (3, 0, 2)),
        ((70, 1), (63,), (40,), (0,)),
    ],
)
def test_long_ones_are_the_oracles(shape, window, strides, axes):
    x = RNG.normal(size=shape).astype(np.float32)
    want = oracle.blur_pool(x, window, strides, axes=axes)
    dy = RNG.normal(size=want.y.shape).astype(np.float32)
    y, dx = jax.jit(both, static_argnums=(2, 3, 4))(x, dy, window, strides, axes)
    np.testing.assert_allclose(y, want.y, atol=1e-6)
    np.testing.assert_allclose(dx, want.exact_cotangents(dy)[0], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_an_axis_after_another_is_all_at_once(dtype, monkeypatch):
    """To rounding of float32, in which sums are kept between the passes."""
    x = jnp.asarray(RNG.normal(size=(2, 12, 11, 3)), dtype)
    dy = jnp.asarray(RNG.normal(size=(2, 6, 11, 3)), dtype)
    apart = jax.jit(lambda *xs: both(*xs, (5, 4), (2, 1)))(x, dy)
    monkeypatch.setattr(op, "blur_groups", lambda window, on: (window,))
    at_once = jax.jit(lambda *xs: both(*xs, (5, 4), (2, 1)))(x, dy)
    rounding = 2e-6 if dtype == np.float32 else float(jnp.finfo(dtype).eps)
    for a, b in zip(apart, at_once, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=rounding, atol=1e-6)
        assert (a != b).mean() < (1 if dtype == np.float32 else 0.01)


@pytest.mark.parametrize("count", [1, 2, 25, 63, 1000])
def test_weights_are_rounded_once(count):
    weights = op.binomial(count, np.float32)
    narrow = weights.astype(np.float32)
    assert (narrow > 0).all()
    assert abs(narrow.astype(np.float64).sum() - 1) < 1e-7
    if count <= 25:
        np.testing.assert_array_equal(narrow, weights)


def test_infinity_far_from_the_middle_of_a_long_window_stays():
    x = jnp.zeros(400).at[200].set(jnp.inf)
    y = jaxpool.blur_pool(x, (300,), axes=(0,))
    assert not jnp.isnan(y).any()
    assert jnp.isinf(y[60:350]).all()


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_one_is_a_short_program_in_little_memory(turned):
    """At most four arrays as large as x with its reflected border; backward two of them are parts of folding it back.

    A direction by itself: neither needs the other, so where both are in a program XLA may hold the arrays of one while
    it computes the other. jax 0.12 does, 0.10 does not.
    """
    x = jax.ShapeDtypeStruct((1, 96, 96, 8), np.float32)
    one = (lambda dy: both(dy, dy, (31, 31))[1]) if turned else lambda x: both(x, x, (31, 31))[0]
    program = jax.jit(one).lower(x)
    assert program.as_text().count("stablehlo.multiply") == 31 + 31
    memory = program.compile(AS_USERS).memory_analysis()
    assert memory.temp_size_in_bytes < 4 * 4 * (96 + 30) ** 2 * 8
