"""Blur pools of any length: separable passes, normalized weights, small programs and little memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops import blur as op
from tests.support.compilation import DEFAULT_COMPILE

RNG = np.random.default_rng(0)


def value_and_cotangents(x, dy, window, strides=None, axes=None):
    y, back = jax.vjp(lambda x: jaxpool.blur_pool(x, window, strides, axes=axes), x)
    return y, *back(dy)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_separable_passes_equal_a_single_pass(dtype, monkeypatch):
    """Results agree to float32 rounding, because sums stay in float32 between the passes."""
    x = jnp.asarray(RNG.normal(size=(2, 12, 11, 3)), dtype)
    dy = jnp.asarray(RNG.normal(size=(2, 6, 11, 3)), dtype)
    separable = jax.jit(lambda *xs: value_and_cotangents(*xs, (5, 4), (2, 1)))(x, dy)
    monkeypatch.setattr(op, "pass_windows", lambda window, platform: (window,))
    single_pass = jax.jit(lambda *xs: value_and_cotangents(*xs, (5, 4), (2, 1)))(x, dy)
    rounding = 2e-6 if dtype == np.float32 else float(jnp.finfo(dtype).eps)
    for a, b in zip(separable, single_pass, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=rounding, atol=1e-6)
        assert (a != b).mean() < (1 if dtype == np.float32 else 0.01)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    ("size", "window", "strides", "padding"),
    [
        ((40, 33), (3, 3), (2, 2), "SAME"),
        ((40, 33), (5, 4), (1, 2), "SAME"),
        ((40, 33), (4, 3), (1, 1), ((0, 3), (2, 0))),
        ((2, 640), (5, 3), (1, 1), "SAME"),  # reflected twice
    ],
)
def test_large_batch_equals_its_examples(size, window, strides, padding, dtype):
    """A small array is copied with its reflected padding, but of a large array only the ends are copied."""
    x = jnp.asarray(RNG.normal(size=(8, *size, 16)), dtype)
    blur = jax.jit(lambda x: jaxpool.blur_pool(x, window, strides, padding))
    y, parts = blur(x), [blur(example) for example in jnp.split(x, 8)]
    eps = float(jnp.finfo(dtype).eps)
    expected = jnp.concatenate(parts).astype(np.float32)
    np.testing.assert_allclose(y.astype(np.float32), expected, rtol=eps, atol=4 * eps)


@pytest.mark.parametrize("count", [1, 2, 25, 63, 1000])
def test_binomial_weights_rounded_once(count):
    weights = op.binomial_weights(count, np.float32)
    narrow = weights.astype(np.float32)
    assert (narrow > 0).all()
    assert abs(narrow.astype(np.float64).sum() - 1) < 1e-7
    if count <= 25:
        np.testing.assert_array_equal(narrow, weights)


def test_infinity_at_the_edge_of_a_long_window():
    x = jnp.zeros(400).at[200].set(jnp.inf)
    y = jaxpool.blur_pool(x, (300,), axes=(0,))
    assert not jnp.isnan(y).any()
    assert jnp.isinf(y[60:350]).all()


@pytest.mark.parametrize("turned", [False, True])
def test_large_window_program_size_and_memory(turned):
    """At most four arrays of the size of x with its reflected border; the backward pass uses two to fold the border.

    Each direction is compiled by itself. The two are independent, so a program of both may hold all arrays at once
    (in jax 0.12, but not in jax 0.10).
    """
    x = jax.ShapeDtypeStruct((1, 96, 96, 8), np.float32)
    one_direction = (
        (lambda dy: value_and_cotangents(dy, dy, (31, 31))[1])
        if turned
        else lambda x: value_and_cotangents(x, x, (31, 31))[0]
    )
    program = jax.jit(one_direction).lower(x)
    assert program.as_text().count("stablehlo.multiply") == 31 + 31
    memory = program.compile(DEFAULT_COMPILE).memory_analysis()
    assert memory.temp_size_in_bytes < 4 * 4 * (96 + 30) ** 2 * 8
