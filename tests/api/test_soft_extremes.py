"""Pools with a coefficient near overflow, with infinities and NaN, and at limits of the coefficient.

The pools are `lp_pool`, `gem_pool`, `logsumexp_pool` and `softmax_pool`. Out of the range of direct sums they evaluate
scaled sums.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.later import first_values
from tests.support.soft_pools import (
    GEOMETRIES,
    HALVES,
    NAMES,
    ONE_QUICK,
    assert_matches_oracle,
    numbers,
    run,
)

pytestmark = pytest.mark.usefixtures("strict")

inf, nan = np.inf, np.nan
PAIRS = {"window_shape": (2,)}
EVERY_NAME = (*NAMES, "lp_pool", "gem_pool")

# Overflow

SOFT_EXTREMES = [
    ([1e4, -1e4], 1.0),
    ([1e4, 1e4 + 0.01, -1e4], 1e-3),
    ([1e4, -1e4, 0.0], 1e-30),
    ([3e38, -3e38, 0.0], 1.0),
    ([1e30, -1e30], 1e25),
]
NORM_EXTREMES = [[1e4, -1e4, 9e3], [1e-4, 2e-4], [1e37, 3e36, 0.0], [1e4, 1e-4]]
EXTREMES = {
    "logsumexp_pool": SOFT_EXTREMES,
    "softmax_pool": SOFT_EXTREMES,
    "lp_pool": [
        *[(values, 50.0) for values in NORM_EXTREMES],
        *[([1e15, 3e15], 3), ([1e-15, 3e-15], 2.5)],
    ],
    "gem_pool": [
        *[([1e4, 9e3], 80), ([1e4, 1e-4], -80), ([1e37, 3e36], 3), ([1e4, 1.0], 0.01)],
        *[([9e37], -1), ([1e38, 9e37, 3e37], 0.05)],
    ],
}


@pytest.mark.parametrize("geometry", ["overlapping", "tiled, a tail"])
@pytest.mark.parametrize("name", EVERY_NAME)
def test_no_overflow_in_float32(name, geometry):
    shape, geometry = GEOMETRIES[geometry]
    rng = np.random.default_rng(4)
    for values, coefficient in EXTREMES[name]:
        x = rng.choice(np.array(values, np.float32), shape)
        y_rtol, dx_tolerance = (3e-7, 1e-5) if name in NAMES else (2e-5, 1e-3)
        y_rtol = 1e-3 if coefficient == 0.01 else y_rtol
        assert_matches_oracle(name, geometry, x, coefficient, y_rtol, dx_tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_temperatures_of_all_magnitudes(name):
    """Temperatures as Python numbers and arrays, for x near 1 and near the temperature, with the derivative in it."""
    small = np.array([1.0, 2.0, 1.5, 0.5, 1.0, 3.0])
    pool = functools.partial(getattr(jaxpool, name), window_shape=(3,), strides=(3,))
    of = jax.jit(lambda x, t: pool(x, temperature=t))
    derivative = jax.jit(jax.jacobian(lambda t, x: pool(x, temperature=t)))
    for t in (1e30, 1e25, 1e10, 1e-5, 1e-18, 1e-20, 1e-30):
        x = np.concatenate([small, small * t]).astype(np.float32)
        wide = x.astype(np.float64).reshape(4, 3)
        t64 = float(np.float32(t))
        top = wide.max(1, keepdims=True)
        e = np.exp((wide - top) / t64)
        total, mean = e.sum(1), (e * wide).sum(1) / e.sum(1)
        if name == "logsumexp_pool":
            want = top[:, 0] + t64 * np.log(total)
            slope = np.log(total) + (top[:, 0] - mean) / t64
        else:
            want = mean
            slope = -(e * (wide - mean[:, None]) * wide / t64).sum(1) / total / t64
        outputs = [of(x[:, None], np.float32(t))]
        if t > 5e-29:  # smaller Python numbers are clipped to 5e-29
            outputs.append(pool(x[:, None], temperature=t))
        for y in outputs:
            np.testing.assert_allclose(y[:, 0], want, rtol=1e-5)
        dt = derivative(np.float32(t), x[:, None])[:, 0]
        np.testing.assert_allclose(dt, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("t", [1e-300, 1e300])
def test_temperature_out_of_float32_range(name, t):
    x = np.array([[1.0], [1.0], [0.5], [3.0]], np.float32)
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,), strides=(2,), temperature=t)
    dx = jax.grad(lambda x: f(x).sum())(x)
    even = [0.5, 0.5, 0.0, 1.0] if t < 1 else [0.5, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(dx[:, 0], even)
    if t < 1 or name == "softmax_pool":
        np.testing.assert_allclose(f(x)[:, 0], [1.0, 3.0 if t < 1 else 1.75])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_minus_infinity_removes_an_element(name, shift):
    """In direct and in scaled evaluation."""
    x = numbers((12, 3)).astype(np.float32) + np.float32(shift)
    masked, dy = x.copy(), np.ones((4, 3), np.float32)
    masked[::3] = -inf
    others = np.arange(12) % 3 > 0
    pairs, triples = ({"window_shape": (n,), "strides": (n,)} for n in (2, 3))
    want_y, want_dx, want_slope = run(name, pairs, x[others], np.float32(1), dy)
    y, dx, slope = run(name, triples, masked, np.float32(1), dy)
    np.testing.assert_allclose(y, want_y, rtol=1e-6)
    np.testing.assert_allclose(dx[others], want_dx, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(dx[::3], 0)
    np.testing.assert_allclose(slope, want_slope, rtol=1e-4)


def lp_times(scale, p):
    return lambda x: jaxpool.lp_pool(x * scale, p, (3,)) / scale


def gem_times(scale, p):
    return lambda x: jaxpool.gem_pool(x * scale, p, (3,), eps=1e-200) / scale


def shifted(shift, name):
    return lambda x: getattr(jaxpool, name)(x + shift, (3,), padding=1, temperature=x[:1]) - shift


# A pool of scaled or shifted numbers, the two scales or shifts, and the power or the name.
RANGES = [
    (lp_times, (1.0, 1e-60), 2),
    (lp_times, (1.0, 1e-60), 3.7),
    (gem_times, (1.0, 1e-60), 3.0),
    (gem_times, (1.0, 1e-60), np.full(1, 2.5)),
    (shifted, (0.0, 1000.0), "logsumexp_pool"),
    (shifted, (0.0, 1000.0), "softmax_pool"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "ranges", "option"), RANGES)
@pytest.mark.usefixtures("x64")
def test_second_derivatives_out_of_range(pool, ranges, option):
    """Direct and scaled evaluation agree, in both modes."""
    x, v = np.abs(numbers((6, 1))) + 0.5, numbers((6, 1), seed=1)
    results = []
    for each in ranges:
        f = pool(each, option)
        gradient = jax.grad(lambda x, f=f: jnp.sin(f(x)).sum())
        forward = jax.jvp(gradient, (x,), (v,))[1]
        np.testing.assert_allclose(forward, jax.vjp(gradient, x)[1](v)[0], rtol=1e-9, atol=1e-12)
        results.append(forward)
    np.testing.assert_allclose(*results, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)
def test_scaled_evaluation_in_batch_chunks(name):
    """Scaled evaluation in chunks of the batch equals the evaluation of each example."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 32, 32, 160)) * 100).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    geometry, t = {"window_shape": (3, 3), "padding": "SAME"}, np.full(160, 0.7, np.float32)
    whole = run(name, geometry, x, t, dy)
    parts = [run(name, geometry, x[i : i + 1], t, dy[i : i + 1]) for i in range(4)]
    for output in (0, 1):
        joined = np.concatenate([part[output] for part in parts])
        np.testing.assert_allclose(whole[output], joined, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole[2], sum(part[2] for part in parts), rtol=1e-4, atol=1e-3)


# Infinities, NaN and zeros

# x, the two outputs of windows of 2, and the gradient of their sum
SOFT_SPECIAL = [
    ([-inf, -inf, -inf], [-inf, -inf], [0.5, 1.0, 0.5]),
    ([-inf, -inf, 1.0], [-inf, 1.0], [0.5, 0.5, 1.0]),
    ([inf, inf, 1.0], [inf, inf], [0.5, 1.5, 0.0]),
    ([inf, -inf, 1.0], [inf, 1.0], [1.0, 0.0, 1.0]),
    ([-inf, 1e4, -inf], [1e4, 1e4], [0.0, 2.0, 0.0]),
    ([nan, -inf, 2.0], [nan, 2.0], [nan, nan, 1.0]),
    ([inf, nan, 2.0], [nan, nan], [nan, nan, nan]),
    ([2.0, -inf, nan], [2.0, nan], [1.0, nan, nan]),
]
ROOTS = {n: np.sqrt(n) for n in (2, 4.5, 5, 12.5)}
SPECIAL = {  # norms and means with p = 2
    "logsumexp_pool": SOFT_SPECIAL,
    "softmax_pool": SOFT_SPECIAL,
    "lp_pool": [
        ([inf, -1.0, 2.0], [inf, ROOTS[5]], [0, -1 / ROOTS[5], 2 / ROOTS[5]]),
        ([-inf, 3.0, 4.0], [inf, 5.0], [0, 0.6, 0.8]),
        ([nan, 3.0, 4.0], [nan, 5.0], [nan, nan, 0.8]),
        ([inf, nan, 4.0], [nan, nan], [0, nan, nan]),
    ],
    "gem_pool": [
        ([inf, -1.0, 2.0], [inf, ROOTS[2]], [0, 0, 1 / ROOTS[2]]),
        (
            [-inf, 3.0, 4.0],
            [ROOTS[4.5], ROOTS[12.5]],
            [0, 1.5 / ROOTS[4.5] + 1.5 / ROOTS[12.5], 2 / ROOTS[12.5]],
        ),
        ([nan, 3.0, 4.0], [nan, ROOTS[12.5]], [nan, nan, 2 / ROOTS[12.5]]),
        ([inf, nan, 4.0], [nan, nan], [nan, nan, nan]),
    ],
}


@pytest.mark.parametrize("name", EVERY_NAME)
def test_infinities_and_nan(name):
    coefficient = {"lp_pool": 2, "gem_pool": np.float32(2)}.get(name, np.float32(1))
    for x, y, dx in SPECIAL[name]:
        x = np.array(x, np.float32)[:, None]
        got = run(name, PAIRS, x, coefficient, np.ones((2, 1), np.float32))
        np.testing.assert_allclose(got[0][:, 0], y, rtol=1e-6)
        np.testing.assert_allclose(got[1][:, 0], dx, rtol=1e-6, atol=1e-6)
        strided = PAIRS | {"strides": (2,)}
        got = run(name, strided, x, coefficient, np.ones((1, 1), np.float32))
        np.testing.assert_allclose(got[0][:, 0], y[:1], rtol=1e-6)
        assert got[1][2, 0] == 0  # in no window


@pytest.mark.parametrize("name", NAMES)
def test_infinities_in_windows_built_by_doubling(name):
    x = numbers((20, 2)).astype(np.float32)
    x[:, 1], x[3, 0] = -inf, inf
    dy = np.ones((20, 2), np.float32)
    y, dx, _ = run(name, HALVES, x, np.float32(1), dy)
    covers_infinity = np.abs(np.arange(20) - 3) <= 3
    np.testing.assert_array_equal(np.isposinf(y[:, 0]), covers_infinity)
    assert dx[3, 0] == covers_infinity.sum()
    assert np.all(np.isneginf(y[:, 1]))
    np.testing.assert_allclose(dx.sum(axis=0), [20, 20], rtol=1e-6)


@pytest.mark.parametrize("p", first_values(1, [2, 1, 3, 0.5, 3.7, inf]))
def test_zero_sum_has_zero_gradient_and_finite_hessian(p):
    x = np.array([[0, 0, 0, 0, 3, -4]], np.float32).T
    gradient = jax.grad(lambda x: jnp.sin(jaxpool.lp_pool(x, p, **PAIRS)).sum())
    dx, second = jax.jit(lambda x: jax.jvp(gradient, (x,), (jnp.ones_like(x),)))(x)
    np.testing.assert_array_equal(dx[:3], np.zeros((3, 1)))
    assert np.isfinite(second).all()
    assert np.abs(dx[-1]) > 0


@pytest.mark.parametrize("largest", [1.0, 1e20])
def test_all_zero_windows_among_other_windows(largest):
    """As after a ReLU. Numbers whose squares underflow are not zeros."""
    x = np.array([0, 0, 0, 3, 4, 0, 0, 0, 3e-25, 4e-25], np.float32) * np.float32(largest)
    for p, last in ((2, 5e-25), (3, 91 ** (1 / 3) * 1e-25)):
        geometry = {"window_shape": (2,), "strides": (2,)}
        y, dx, _ = run("lp_pool", geometry, x[:, None], p, np.ones((5, 1), np.float32))
        np.testing.assert_allclose(y[:, 0] / largest, [0, 3, 4, 0, last], rtol=1e-6)
        slopes = (np.array([3, 4]) * 1e-25 / last) ** (p - 1)
        np.testing.assert_allclose(dx[:, 0], [0, 0, 0, 1, 1, 0, 0, 0, *slopes], rtol=1e-6)


def test_gradient_at_and_below_eps():
    """The gradient is halved at eps, and 0 below eps."""
    x = np.array([[0.25, 0.5, 1.0, -3.0]], np.float32).T
    dx = jax.grad(lambda x: jaxpool.gem_pool(x, 1, (1,), eps=0.5).sum())(x)
    np.testing.assert_allclose(dx[:, 0], [0, 0.5, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(jaxpool.gem_pool(x, 1, (4,), eps=0.5), [[0.625]], rtol=1e-6)


def test_infinite_window_has_zero_gradient_in_p():
    x = jnp.array([[[1.0], [jnp.inf]]])
    assert jax.grad(lambda p: jaxpool.gem_pool(x, p, (2,), (2,)).sum())(jnp.float32(3)) == 0


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_lp_pool_gradient_when_the_norm_overflows(p):
    x = jnp.array([3e38, -3e38, 1e-30, 1e-30, np.nan, 0, np.inf, 1], jnp.float32)[:, None]

    def pool(x):
        return jaxpool.lp_pool(x, p, (2,), strides=(2,))

    half = 0.5 ** ((p - 1) / p)
    want = np.array([half, -half, half, half, np.nan, 0, 0, 0])
    y, back = jax.vjp(pool, x)
    assert np.isinf(y[0, 0])
    np.testing.assert_allclose(back(jnp.ones_like(y))[0].ravel(), want, 1e-5)
    tangent = jax.jvp(pool, (x,), (jnp.arange(8.0)[:, None],))[1]
    np.testing.assert_allclose(tangent.ravel(), [-half, 5 * half, np.nan, 0], 1e-5)


@pytest.mark.parametrize(("p", "want"), [(inf, [0, 1, 0, -1]), (1, [1, 1, -1, -1])])
def test_nan_counts_as_positive_in_sums_and_maxima_of_absolute_values(p, want):
    x = np.array([[1, np.nan, -2, -3]], np.float32).T
    for nan in (np.float32(np.nan), -np.float32(np.nan)):
        x[1] = nan
        y, dx, _ = run("lp_pool", PAIRS | {"strides": (2,)}, x, p, np.ones((2, 1), np.float32))
        assert np.isnan(y[0, 0])
        np.testing.assert_array_equal(dx[:, 0], want)


@pytest.mark.parametrize("p", [1e-3, 1e-6, 1e-12, 1e-19, 1e-25, -1e-10])
def test_small_power_approaches_the_geometric_mean(p):
    """For p near 0, a pair whose logarithms differ by d has dy/dp = mean * d**2 / 8."""
    x = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32).T
    y, dx, dp = run("gem_pool", PAIRS, x, np.float32(p), np.ones((3, 1), np.float32))
    below, above = np.float64(x[:-1]), np.float64(x[1:])
    mean, d = np.sqrt(below * above), np.log(above / below)
    np.testing.assert_allclose(y, mean, rtol=max(2e-7, abs(p)))
    np.testing.assert_allclose(dp, (mean * d * d / 8).sum(), rtol=1e-3)
    shares = np.pad(mean / below / 2, ((0, 1), (0, 0))) + np.pad(mean / above / 2, ((1, 0), (0, 0)))
    np.testing.assert_allclose(dx, shares, rtol=max(5e-7, abs(p)))


# Dtypes and programs


@pytest.mark.parametrize("p", [1, 3, inf])
def test_forward_mode_of_narrow_floats(p):
    """p = 1 and p = inf have a single evaluation; p = 3 has a direct and a scaled evaluation."""
    x = jnp.asarray([3, -1, 2], jnp.bfloat16)[:, None]
    f = functools.partial(jaxpool.lp_pool, p=p, window_shape=(2,), strides=(2,))
    y, tangent = jax.jvp(f, (x,), (x,))
    assert (y.dtype, tangent.dtype) == (jnp.bfloat16, jnp.bfloat16)
    # The pool is homogeneous in x, so its tangent along x is y.
    np.testing.assert_array_equal(tangent, y)


@pytest.mark.parametrize("name", ONE_QUICK)
def test_large_window_program_size(name):
    def length(window, **options):
        f = functools.partial(getattr(jaxpool, name), window_shape=window, **options)
        gradient = jax.grad(lambda x: f(x).sum())
        return len(str(jax.make_jaxpr(gradient)(np.zeros((80, 80, 1), np.float32))))

    small = length((3, 3), padding="SAME")
    assert length((63, 63), padding="SAME") < 8 * small
    assert length((80, 80)) < small
    assert length((40, 40), strides=40) < 3 * small


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 16.0, -1.0, -2.0])
def test_mean_derivatives_near_the_largest_number(p):
    x = np.array([1e-5, 3e38, 2.0, 1e34], np.float32)

    def gradient(x):
        return jax.grad(lambda x: jaxpool.gem_pool(x[:, None], p, (2,), (2,)).sum())(x)

    pairs = np.log(x.astype(np.float64)).reshape(2, 2)
    log_y = np.logaddexp.reduce(p * pairs - np.log(2), axis=1, keepdims=True) / p
    want = np.exp((p - 1) * (pairs - log_y)) / 2
    np.testing.assert_allclose(gradient(x), want.ravel(), rtol=1e-4, atol=1e-30)
    assert np.isfinite(jax.jacrev(gradient)(x)).all()
