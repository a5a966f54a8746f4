"""`logsumexp_pool` and `softmax_pool` near overflow, with infinities and NaN; dtypes and residuals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.by_loops import GEOMETRIES, oracle_value_and_vjp
from tests.support.soft_pools import HALVES, NAMES, ONE_QUICK, numbers, run

pytestmark = pytest.mark.usefixtures("strict")

inf, nan = np.inf, np.nan

# Overflow, infinities and NaN


@pytest.mark.parametrize("geometry", ["overlapping", "tiled, a tail"])
@pytest.mark.parametrize("name", NAMES)
def test_no_overflow_in_float32(name, geometry):
    shape, geometry = GEOMETRIES[geometry]
    rng = np.random.default_rng(4)
    for values, t in [
        ([1e4, -1e4], 1.0),
        ([1e4, 1e4 + 0.01, -1e4], 1e-3),
        ([1e4, -1e4, 0.0], 1e-30),
        ([3e38, -3e38, 0.0], 1.0),
        ([1e30, -1e30], 1e25),
    ]:
        x = rng.choice(np.array(values, np.float32), shape)
        want, pullback = oracle_value_and_vjp(name, x, t, **geometry)
        dy = numbers(want.shape).astype(np.float32)
        y, dx, dt = run(name, geometry, x, np.float32(t), dy)
        np.testing.assert_allclose(y, want, rtol=3e-7)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-5, atol=1e-5)
        assert np.isfinite(dt)


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
    """-inf removes an element, in direct and in scaled evaluation."""
    x = numbers((12, 3)).astype(np.float32) + np.float32(shift)
    masked, few = x.copy(), {"window_shape": (3,), "strides": (3,)}
    masked[::3] = -inf
    dy = np.ones((4, 3), np.float32)
    rest = np.delete(x, np.s_[::3], axis=0)
    want = run(name, {"window_shape": (2,), "strides": (2,)}, rest, np.float32(1), dy)
    y, dx, dt = run(name, few, masked, np.float32(1), dy)
    np.testing.assert_allclose(y, want[0], rtol=1e-6)
    np.testing.assert_allclose(np.delete(dx, np.s_[::3], axis=0), want[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(dx[::3], np.zeros((4, 3)))
    np.testing.assert_allclose(dt, want[2], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_second_derivatives_out_of_range(name):
    """In x and the temperature. A shift of x only shifts the output."""
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    at, along = np.append(numbers(5, 1.0), 0.8), numbers(6, 1.0, seed=3)
    results = []
    for shift in (0.0, 1000.0):

        def loss(v, shift=shift):
            return jnp.sin(f(v[:5, None] + shift, temperature=v[5:]) - shift).sum()

        gradient = jax.grad(loss)
        forward = jax.jvp(gradient, (at,), (along,))[1]
        np.testing.assert_allclose(forward, jax.vjp(gradient, at)[1](along)[0], rtol=1e-9)
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
        np.testing.assert_array_equal(whole[output], joined)
    np.testing.assert_allclose(whole[2], sum(part[2] for part in parts), rtol=1e-4, atol=1e-3)


# x, the two outputs of windows of 2, and the gradient of their sum
SPECIAL = [
    ([-inf, -inf, -inf], [-inf, -inf], [0.5, 1.0, 0.5]),
    ([-inf, -inf, 1.0], [-inf, 1.0], [0.5, 0.5, 1.0]),
    ([inf, inf, 1.0], [inf, inf], [0.5, 1.5, 0.0]),
    ([inf, -inf, 1.0], [inf, 1.0], [1.0, 0.0, 1.0]),
    ([-inf, 1e4, -inf], [1e4, 1e4], [0.0, 2.0, 0.0]),
    ([nan, -inf, 2.0], [nan, 2.0], [nan, nan, 1.0]),
    ([inf, nan, 2.0], [nan, nan], [nan, nan, nan]),
    ([2.0, -inf, nan], [2.0, nan], [1.0, nan, nan]),
]


@pytest.mark.parametrize("name", NAMES)
def test_infinities_and_nan(name):
    for strides in (1, 2):
        geometry = {"window_shape": (2,), "strides": (strides,)}
        for x, y, dx in SPECIAL:
            x = np.array(x, np.float32)[:, None]
            got = run(name, geometry, x, np.float32(1), np.ones((3 - strides, 1), np.float32))
            if strides == 1:
                np.testing.assert_array_equal(got[0][:, 0], y)
                np.testing.assert_array_equal(got[1][:, 0], dx)
            else:
                np.testing.assert_array_equal(got[0][:, 0], y[:1])
                assert got[1][2, 0] == 0


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


# Dtypes


@pytest.mark.parametrize("name", ONE_QUICK)
def test_narrow_floats_computed_in_float32(name):
    f = functools.partial(getattr(jaxpool, name), **HALVES)
    for dtype in (jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        x, dy = numbers((20, 2)).astype(dtype), numbers((20, 2), seed=1).astype(dtype)
        wide = [np.float32(array) for array in (x, dy)]
        y, dx, _ = run(name, HALVES, wide[0], np.float32(1), wide[1])
        # XLA rounds the reference too: unoptimized, jaxlib 0.10.0 converts to float8 through bfloat16.
        y, dx = jax.jit(lambda *results, dtype=dtype: [z.astype(dtype) for z in results])(y, dx)
        assert f(x).dtype == dtype
        np.testing.assert_array_equal(np.float32(f(x)), np.float32(y))
        if dtype in (jnp.bfloat16, jnp.float8_e4m3fn):
            got = jax.jit(lambda x, dy: jax.vjp(f, x)[1](dy)[0])(x, dy)
            assert got.dtype == dtype
            np.testing.assert_array_equal(np.float32(got), np.float32(dx))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.bool_])
def test_integers_give_float32(name, dtype):
    x = np.arange(6).reshape(6, 1).astype(dtype)
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,))
    y = f(x)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, f(x.astype(np.float32)))


@pytest.mark.parametrize("name", NAMES)
def test_empty_batch_and_channels(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,))
    assert f(np.zeros((0, 4, 3), np.float32)).shape == (0, 3, 3)
    assert jax.grad(lambda x: f(x).sum())(jnp.zeros((4, 0))).shape == (4, 0)


# Transformations


@pytest.mark.parametrize("name", ONE_QUICK)
def test_residuals_are_input_and_output(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    xs = numbers((4, 6, 2)).astype(np.float32)
    pullback = jax.eval_shape(lambda xs: jax.vjp(f, xs)[1], xs)
    assert [leaf.shape for leaf in jax.tree.leaves(pullback)] == [xs.shape] * 2


@pytest.mark.parametrize("name", ONE_QUICK)
def test_inside_shard_map(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    mesh = jax.make_mesh((1,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("b")
    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    x = numbers((4, 6, 2)).astype(np.float32)
    got = jax.jit(jax.grad(lambda x: (mapped(x) ** 2).sum()))(x)
    want = jax.grad(lambda x: (f(x) ** 2).sum())(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


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
