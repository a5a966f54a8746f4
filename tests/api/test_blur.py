"""Blur pools of any length: separable passes, normalized weights, small programs and little memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import jaxpool
from jaxpool._ops import blur as op
from jaxpool.testing import draw_values, geometries, oracle, pool_cases
from tests.support.compilation import DEFAULT_COMPILE
from tests.support.drawn import assert_matches_oracle, examples, run, with_new_values

RNG = np.random.default_rng(0)


def value_and_cotangents(x, dy, window, strides=None, axes=None):
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
def test_long_windows_match_the_oracle(shape, window, strides, axes):
    x = RNG.normal(size=shape).astype(np.float32)
    want = oracle.blur_pool(x, window, strides, axes=axes)
    dy = RNG.normal(size=want.y.shape).astype(np.float32)
    y, dx = jax.jit(value_and_cotangents, static_argnums=(2, 3, 4))(x, dy, window, strides, axes)
    np.testing.assert_allclose(y, want.y, atol=1e-6)
    np.testing.assert_allclose(dx, want.exact_cotangents(dy)[0], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_separable_passes_equal_a_single_pass(dtype, monkeypatch):
    """Results agree to float32 rounding, because sums stay in float32 between the passes."""
    x = jnp.asarray(RNG.normal(size=(2, 12, 11, 3)), dtype)
    dy = jnp.asarray(RNG.normal(size=(2, 6, 11, 3)), dtype)
    separable = jax.jit(lambda *xs: value_and_cotangents(*xs, (5, 4), (2, 1)))(x, dy)
    monkeypatch.setattr(op, "blur_groups", lambda window, platform: (window,))
    single_pass = jax.jit(lambda *xs: value_and_cotangents(*xs, (5, 4), (2, 1)))(x, dy)
    rounding = 2e-6 if dtype == np.float32 else float(jnp.finfo(dtype).eps)
    for a, b in zip(separable, single_pass, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=rounding, atol=1e-6)
        assert (a != b).mean() < (1 if dtype == np.float32 else 0.01)


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


BLUR_GEOMETRIES = geometries(ceil_mode=False, dilation=False, ranks=(1, 2), max_size=6)


def check_blur(case):
    got = run(jaxpool.blur_pool, case, case.x, **case.kwargs())
    finite = np.nan_to_num(case.x.astype(float), nan=0, posinf=0, neginf=0)
    eps = float(jnp.finfo(case.x.dtype).eps) * 1e6
    answer = oracle.blur_pool(case.x, **case.kwargs())
    assert_matches_oracle(got, answer, case.dy, largest=max(1, eps) * np.abs(finite).max())


@examples(4)
@given(case=pool_cases(kinds=("sum",), geometry=BLUR_GEOMETRIES, dtypes=(np.float32, jnp.bfloat16)))
def test_blur_matches_the_oracle(case):
    for each in with_new_values(case, ("normal",), rounds=1):
        check_blur(each)


def test_max_blur_pool_equals_max_pool_then_blur_pool():
    x = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype(np.float32)
    blur = jaxpool.blur_pool(jaxpool.max_pool(x, (2, 3), padding="SAME"), (3, 2), (2, 1))
    np.testing.assert_array_equal(jaxpool.max_blur_pool(x, (2, 3), (3, 2), (2, 1)), blur)


def test_no_residuals_and_no_scatter():
    x = jnp.zeros((1, 4, 4, 3))
    assert not jax.tree.leaves(
        jax.eval_shape(lambda x: jax.vjp(lambda x: jaxpool.blur_pool(x, (3, 3)), x)[1], x)
    )
    gradient = jax.jit(jax.grad(lambda x: jaxpool.blur_pool(x, (3, 3)).sum()))
    assert "scatter" not in gradient.trace(x).lower(lowering_platforms=("cuda",)).as_text()


# Long tests


@pytest.mark.slow
@settings(max_examples=300)
@given(case=pool_cases(kinds=("sum",), geometry=BLUR_GEOMETRIES, dtypes=(np.float32,)))
def test_blur_matches_the_oracle_in_many_cases(case):
    check_blur(case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_max_blur_pool_matches_the_oracle_in_many_cases(seed):
    """Ten arrays for each geometry, with and without ties. The reference chains two oracles."""
    rng = np.random.default_rng(seed)
    shape = (2, *map(int, rng.integers(4, 9, 2)), 2)
    window, blur, strides = (tuple(map(int, rng.integers(1, 4, 2))) for _ in range(3))
    padding = "SAME" if seed % 3 else tuple((int(n), 1) for n in rng.integers(0, 2, 2))
    if any(n == 1 for n in (*window, *blur)):
        padding = "SAME"

    @jax.jit
    def pullback(x, dy):
        pool = functools.partial(jaxpool.max_blur_pool, window_shape=window, blur_shape=blur)
        y, back = jax.vjp(lambda x: pool(x, strides=strides, padding=padding), x)
        return y, back(dy)[0]

    for number in range(10):
        x = draw_values(rng, shape, np.float32, "ties" if number % 2 else "normal")
        largest = oracle.max_pool(x, window, None, padding)
        want = oracle.blur_pool(largest.y, blur, strides, padding)
        dy = rng.normal(size=want.y.shape).astype(np.float32)
        y, dx = pullback(x, dy)
        np.testing.assert_allclose(y, want.y, rtol=1e-5, atol=1e-5)
        blurred = want.exact_cotangents(dy)[0].astype(float)
        np.testing.assert_allclose(dx, largest.exact_cotangents(blurred)[0], rtol=1e-4, atol=1e-5)


def test_integer_padding_is_never_selected_in_morphology():
    """Padding stays the identity, although adding or subtracting the kernel would wrap it around."""
    least, greatest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    x = jnp.array([[[least + 1], [least + 2]]], jnp.int32)
    y = jaxpool.dilate(x, jnp.array([5, 0, 0]), padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [least + 2, least + 6])
    x = jnp.array([[[greatest - 1], [greatest - 2]]], jnp.int32)
    y = jaxpool.erode(x, jnp.array([5, 0, 0]), padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [greatest - 2, greatest - 6])


@pytest.mark.parametrize("ties", ["first", "split"])
def test_tangent_of_kernel_only(ties):
    x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
    dilate = functools.partial(jaxpool.dilate, x, ties=ties, autodiff="jvp")
    y, tangent = jax.jvp(dilate, (kernel,), (jnp.array([10.0, 100.0]),))
    np.testing.assert_array_equal(y.ravel(), [6, 5, 2])
    np.testing.assert_array_equal(tangent.ravel(), [100, 10, 10])
