"""`logsumexp_pool` and `softmax_pool` against their formulas, and at temperature limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.by_loops import GEOMETRIES, coefficient_derivative, oracle_value_and_vjp
from tests.support.soft_pools import NAMES, ONE_QUICK, PLAIN, numbers, run

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize(
    "geometry",
    [g if g != "long" else pytest.param(g, marks=pytest.mark.slow) for g in GEOMETRIES],
)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_value_and_gradient(name, geometry):
    shape, geometry = GEOMETRIES[geometry]
    for seed, (t, shift) in enumerate([(1.0, 0), (0.3, 0), (30.0, 0), (0.01, 1e4), (1.0, -1e4)]):
        x = numbers(shape, seed=seed) + shift
        want, pullback = oracle_value_and_vjp(name, x, t, **geometry)
        dy = numbers(want.shape, seed=seed + 9)
        y, dx, dt = run(name, geometry, x, np.float64(t), dy)
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-9)
        slopes = coefficient_derivative(name, x, t, **geometry) * dy
        np.testing.assert_allclose(dt, slopes.sum(), rtol=1e-5, atol=1e-8 * np.abs(want / t).max())


@pytest.mark.parametrize("name", ONE_QUICK)
@pytest.mark.usefixtures("x64")
def test_temperature_per_channel_or_per_output(name):
    shape, geometry = PLAIN
    x = numbers(shape)
    # SAME padding: x and y have the same shape.
    for t in (np.array([0.5, 2.0]), np.exp(numbers(shape, 0.5, seed=1))):
        want, pullback = oracle_value_and_vjp(name, x, t, **geometry)
        dy = numbers(want.shape, seed=2)
        y, dx, dt = run(name, geometry, x, t, dy)
        assert dt.shape == t.shape
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-12)
        slopes = coefficient_derivative(name, x, t, **geometry) * dy
        summed = slopes.sum(axis=(0, 1, 2)) if t.ndim == 1 else slopes
        np.testing.assert_allclose(dt, summed, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ONE_QUICK)
def test_temperature_as_number_or_array(name):
    shape, geometry = PLAIN
    x = numbers(shape).astype(np.float32)
    f = functools.partial(getattr(jaxpool, name), x, **geometry)
    for t in (2, 2.0, np.float64(2), np.int8(2), np.array(2), jnp.array([2, 2])):
        np.testing.assert_allclose(f(temperature=t), f(temperature=2.0), rtol=1e-6)
    np.testing.assert_array_equal(f(), f(temperature=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_derivatives_to_third_order(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    w = np.cos(np.arange(4.0))[:, None]
    at = np.append(numbers(4, 1.0), 0.8)

    def loss(v):
        return (jnp.sin(f(v[:4, None], temperature=v[4:])) * w).sum()

    along = numbers(5, 1.0, seed=3)
    gradient = jax.grad(loss)

    def second(v):
        return jax.jvp(gradient, (v,), (along,))[1]

    gradients = jax.jit(jax.vmap(lambda h: gradient(at + h * along)))
    seconds = jax.jit(lambda h: jax.jvp(lambda h: second(at + h * along), (h,), (1.0,)))
    h = 1e-4
    minus, plus = gradients(np.array([-h, h]))
    hessian_along, third = seconds(0.0)
    np.testing.assert_allclose(hessian_along, (plus - minus) / (2 * h), rtol=1e-5, atol=1e-7)
    numeric = (seconds(h)[0] - seconds(-h)[0]) / (2 * h)
    np.testing.assert_allclose(third, numeric, rtol=1e-5, atol=1e-7)
    if name == "logsumexp_pool":
        reverse = jax.jit(jax.jacrev(gradient))(at)
        np.testing.assert_allclose(reverse @ along, hessian_along, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(reverse, reverse.T, rtol=1e-9, atol=1e-12)


# Limits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_low_temperature_equals_max_pool(name):
    shape, geometry = PLAIN
    x = np.random.default_rng(0).permutation(80).reshape(shape) / 8.0
    want, pullback = jax.vjp(lambda x: jaxpool.max_pool(x, **geometry), x)
    dy = numbers(want.shape)
    y, dx, _ = run(name, geometry, x, np.float64(1e-4), dy)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(dx, pullback(dy)[0], rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_high_temperature_equals_the_mean():
    shape, geometry = PLAIN
    x = numbers(shape)
    mean = jaxpool.avg_pool(x, count_include_pad=False, **geometry)
    ones = np.ones(mean.shape)
    y, dx, _ = run("softmax_pool", geometry, x, np.float64(1e9), ones)
    np.testing.assert_allclose(y, mean, atol=1e-7)
    want = jax.grad(lambda x: jaxpool.avg_pool(x, count_include_pad=False, **geometry).sum())(x)
    np.testing.assert_allclose(dx, want, rtol=1e-7)
    y, dx, _ = run("logsumexp_pool", geometry, x, np.float64(1e9), ones)
    count = jaxpool.sum_pool(np.ones(shape), **geometry)
    np.testing.assert_allclose(y - 1e9 * np.log(count), mean, atol=1e-5)
    np.testing.assert_allclose(dx, want, rtol=1e-7)


def test_constant_input_and_padding_without_weight():
    shape, geometry = PLAIN
    x = np.full(shape, -7.0, np.float32)
    np.testing.assert_array_equal(jaxpool.softmax_pool(x, **geometry), x)
    count = np.asarray(jaxpool.sum_pool(np.ones(shape, np.float32), **geometry))
    y = jaxpool.logsumexp_pool(x, **geometry)
    np.testing.assert_allclose(y, -7 + np.log(count), rtol=1e-6)


def test_full_window_matches_jax_nn():
    @jax.jit
    def ours(x):
        pools = (jaxpool.logsumexp_pool, jaxpool.softmax_pool)
        return [pool(x, (6, 7), (6, 7))[0, 0] for pool in pools]

    @jax.jit
    def theirs(x):
        mean = (jax.nn.softmax(x, axis=(0, 1)) * x).sum(axis=(0, 1))
        return jax.nn.logsumexp(x, axis=(0, 1)), mean

    x = numbers((6, 7, 3)).astype(np.float32)
    for got, want, rtol in zip(ours(x), theirs(x), (1e-6, 1e-5), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol)
