"""`lp_pool` and `gem_pool` against their formulas, at zero sums, near overflow, and at limits of p."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.by_loops import GEOMETRIES, coefficient_derivative, oracle_value_and_vjp
from tests.support.compilation import FAST_COMPILE
from tests.support.later import every_nth, first_values, later

pytestmark = pytest.mark.usefixtures("strict")

inf, nan = np.inf, np.nan
NAMES = ("lp_pool", "gem_pool")
OVERLAPPING, TILED = GEOMETRIES["overlapping"], GEOMETRIES["tiled, a tail"]
PAIR_WINDOW = {"window_shape": (2,)}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def numbers(shape, scale=2.0, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * scale


@functools.cache
def jitted_lp(p, geometry):
    def of(x, dy):
        y, pullback = jax.vjp(lambda x: jaxpool.lp_pool(x, p, **dict(geometry)), x)
        return y, pullback(dy)[0]

    return jax.jit(of, compiler_options=FAST_COMPILE)


@functools.cache
def jitted_gem(geometry):
    def of(x, p, dy):
        y, pullback = jax.vjp(lambda x, p: jaxpool.gem_pool(x, p, **dict(geometry)), x, p)
        return y, *pullback(dy)

    return jax.jit(of, compiler_options=FAST_COMPILE)


def lp(x, p, dy, **geometry):
    return jax.device_get(jitted_lp(p, tuple(geometry.items()))(x, dy))


def gem(x, p, dy, **geometry):
    return jax.device_get(jitted_gem(tuple(geometry.items()))(x, p, dy))


QUICK = {
    (1, "overlapping"),
    (2, "overlapping"),
    (0.5, "dilated, channels first"),
    (3.7, "tiled, a tail"),
    (inf, "long"),
}
CASES = [
    (p, geometry) if (p, geometry) in QUICK else slow(p, geometry)
    for p in (1, 2, 3, 0.5, 3.7, inf)
    for geometry in GEOMETRIES
]


@pytest.mark.parametrize(("p", "geometry"), CASES)
@pytest.mark.usefixtures("x64")
def test_lp_pool_value_and_gradient(p, geometry):
    shape, geometry = GEOMETRIES[geometry]
    rng = np.random.default_rng(0)
    for x in (
        numbers(shape),
        numbers(shape, 1e200),
        numbers(shape, 1e-100),
        rng.integers(-2, 3, shape) * 1.0,
        rng.choice([0.0, 0.0, 0.0, 3.0], shape),
    ):
        want, pullback = oracle_value_and_vjp("lp_pool", x, p, **geometry)
        dy = numbers(want.shape, seed=1)
        y, dx = lp(x, p, dy, **geometry)
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "geometry",
    ["tiled, a tail", *map(slow, ("overlapping", "dilated, channels first", "long"))],
)
@pytest.mark.usefixtures("x64")
def test_gem_pool_value_and_gradients(geometry):
    shape, geometry = GEOMETRIES[geometry]
    for seed, (p, scale) in enumerate([(1, 2), (3.7, 2), (0.5, 1e100), (-1, 2), (60, 1e200)]):
        x = np.maximum(numbers(shape, scale, seed), -1.0)  # some elements are below eps
        want, pullback = oracle_value_and_vjp("gem_pool", x, p, **geometry)
        dy = numbers(want.shape, seed=seed + 9)
        y, dx, dp = gem(x, np.float64(p), dy, **geometry)
        np.testing.assert_allclose(y, want, rtol=1e-11)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-11)
        slopes = coefficient_derivative("gem_pool", x, p, **geometry) * dy
        np.testing.assert_allclose(dp, slopes.sum(), rtol=1e-5, atol=1e-8 * np.abs(want * dy).sum())


@pytest.mark.parametrize("each", ["channel", slow("output")])
@pytest.mark.usefixtures("x64")
def test_power_per_channel_or_per_output(each):
    shape, geometry = OVERLAPPING
    x = np.abs(numbers(shape)) + 0.1
    p = np.array([0.7, 3.0]) if each == "channel" else np.exp(numbers(shape, 0.5, seed=1))
    want, pullback = oracle_value_and_vjp("gem_pool", x, p, **geometry)
    dy = numbers(want.shape, seed=2)
    y, dx, dp = gem(x, p, dy, **geometry)
    assert dp.shape == p.shape
    np.testing.assert_allclose(y, want, rtol=1e-12)
    np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-12)
    slopes = coefficient_derivative("gem_pool", x, p, **geometry) * dy
    summed = slopes.sum(axis=(0, 1, 2)) if each == "channel" else slopes
    np.testing.assert_allclose(dp, summed, rtol=1e-6, atol=1e-8)


def test_power_as_number_or_array():
    x = np.abs(numbers((3, 2))).astype(np.float32)
    want = jaxpool.gem_pool(x, 2.0, (3,))
    for p in (2, np.float64(2), np.int8(2), np.array(2), jnp.array([2, 2])):
        np.testing.assert_allclose(jaxpool.gem_pool(x, p, (3,)), want, rtol=1e-6)
    for p in (2.0, np.float64(2), np.int8(2)):
        np.testing.assert_array_equal(
            jaxpool.lp_pool(x, p, (3,), (3,)), jaxpool.lp_pool(x, 2, (3,), (3,))
        )


# Zero sums, and sums that would overflow


def second_order(f, x, v):
    gradient = jax.grad(lambda x: jnp.sin(f(x)).sum())
    return gradient(x), *jax.jvp(gradient, (x,), (v,))


@pytest.mark.parametrize("p", [2, *map(slow, (1, 3, 0.5, 3.7, inf))])
def test_zero_sum_has_zero_gradient_and_finite_hessian(p):
    x = np.array([[0, 0, 0, 0, 3, -4]], np.float32).T
    f = functools.partial(jaxpool.lp_pool, p=p, **PAIR_WINDOW)
    gradient, _, second = jax.jit(functools.partial(second_order, f))(x, np.ones_like(x))
    np.testing.assert_array_equal(gradient[:3], np.zeros((3, 1)))
    assert np.isfinite(second).all()
    assert np.abs(gradient[-1]) > 0


def test_gradient_at_and_below_eps():
    """The gradient is halved at eps, and 0 below eps."""
    x = np.array([[0.25, 0.5, 1.0, -3.0]], np.float32).T
    dx = jax.grad(lambda x: jaxpool.gem_pool(x, 1, (1,), eps=0.5).sum())(x)
    np.testing.assert_allclose(dx[:, 0], [0, 0.5, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(jaxpool.gem_pool(x, 1, (4,), eps=0.5), [[0.625]], rtol=1e-6)


@pytest.mark.parametrize(
    ("p", "geometry"), [(50.0, "tiled, a tail"), slow(50.0, "overlapping"), slow(7, "long")]
)
def test_lp_pool_does_not_overflow_in_float32(p, geometry):
    shape, geometry = GEOMETRIES[geometry]
    rng = np.random.default_rng(3)
    for values in ([1e4, -1e4, 9e3], [1e-4, 2e-4], [1e37, 3e36, 0.0], [1e4, 1e-4]):
        x = rng.choice(np.array(values, np.float32), shape)
        want, pullback = oracle_value_and_vjp("lp_pool", x, p, **geometry)
        dy = numbers(want.shape).astype(np.float32)
        y, dx = lp(x, p, dy, **geometry)
        np.testing.assert_allclose(y, want, rtol=2e-5)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("geometry", ["tiled, a tail", slow("overlapping")])
def test_gem_pool_does_not_overflow_in_float32(geometry):
    shape, geometry = GEOMETRIES[geometry]
    rng = np.random.default_rng(3)
    for values, p in [([1e4, 9e3], 80), ([1e4, 1e-4], -80), ([1e37, 3e36], 3), ([1e4, 1.0], 0.01)]:
        x = rng.choice(np.array(values, np.float32), shape)
        want, pullback = oracle_value_and_vjp("gem_pool", x, p, **geometry)
        dy = numbers(want.shape).astype(np.float32)
        y, dx, dp = gem(x, np.float32(p), dy, **geometry)
        np.testing.assert_allclose(y, want, rtol=1e-3 if p == 0.01 else 2e-5)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-3, atol=1e-3)
        assert np.isfinite(dp)


# x, then (values, gradient) for the norms of its two pairs, and for their power means with p = 2
SPECIAL = [
    (
        [inf, -1.0, 2.0],
        ([inf, math.sqrt(5)], [0, -1 / math.sqrt(5), 2 / math.sqrt(5)]),
        ([inf, math.sqrt(2)], [0, 0, 1 / math.sqrt(2)]),
    ),
    (
        [-inf, 3.0, 4.0],
        ([inf, 5.0], [0, 0.6, 0.8]),
        (
            [math.sqrt(4.5), math.sqrt(12.5)],
            [0, math.sqrt(0.5) + 1.5 / math.sqrt(12.5), 2 / math.sqrt(12.5)],
        ),
    ),
    (
        [nan, 3.0, 4.0],
        ([nan, 5.0], [nan, nan, 0.8]),
        ([nan, math.sqrt(12.5)], [nan, nan, 2 / math.sqrt(12.5)]),
    ),
    ([inf, nan, 4.0], ([nan, nan], [0, nan, nan]), ([nan, nan], [nan, nan, nan])),
]


@pytest.mark.parametrize(("values", "norms", "means"), SPECIAL)
def test_infinities_and_nan(values, norms, means):
    x, ones = np.array(values, np.float32)[:, None], np.ones((2, 1), np.float32)
    for (y, dx), results in [
        (norms, lp(x, 2, ones, **PAIR_WINDOW)),
        (means, gem(x, np.float32(2), ones, **PAIR_WINDOW)),
    ]:
        np.testing.assert_allclose(results[0][:, 0], y, rtol=1e-6)
        np.testing.assert_allclose(results[1][:, 0], dx, rtol=1e-6, atol=1e-6)


# Limits


def test_infinite_power_is_the_maximum_absolute_value():
    shape, geometry = OVERLAPPING
    x = np.random.default_rng(5).integers(-2, 3, shape).astype(np.float32)
    want, pullback = jax.vjp(lambda x: jaxpool.max_pool(jnp.abs(x), **geometry), x)
    dy = numbers(want.shape).astype(np.float32)
    y, dx = lp(x, inf, dy, **geometry)
    np.testing.assert_array_equal(y, want)
    # Like lp_pool, jnp.abs has slope 0 at 0.
    np.testing.assert_allclose(dx, pullback(dy)[0], rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_gem_pool_of_power_one_is_the_average():
    shape, geometry = TILED
    x = numbers(shape)
    average = functools.partial(jaxpool.avg_pool, count_include_pad=False, **geometry)
    want, pullback = jax.vjp(lambda x: average(jnp.maximum(x, 1e-6)), x)
    dy = numbers(want.shape, seed=1)
    y, dx, _ = gem(x, np.float64(1), dy, **geometry)
    np.testing.assert_allclose(y, want, rtol=1e-12)
    np.testing.assert_allclose(dx, pullback(dy)[0], rtol=1e-9, atol=1e-12)


# Dtypes


@pytest.mark.parametrize("name", every_nth(NAMES))
@pytest.mark.parametrize(
    "dtype", [jnp.bfloat16, *map(slow, (np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2))]
)
def test_narrow_floats_computed_in_float32(name, dtype):
    f = functools.partial(getattr(jaxpool, name), p=3, **PAIR_WINDOW)

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def both(x, dy):
        y, pullback = jax.vjp(f, x)
        return y, pullback(dy)[0]

    x, dy = numbers((6, 2)).astype(dtype), numbers((5, 2), seed=1).astype(dtype)
    for got, want in zip(both(x, dy), both(np.float32(x), np.float32(dy)), strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.float32(got), np.float32(want.astype(dtype)))


@pytest.mark.parametrize("name", NAMES)
def test_integers_give_float32(name):
    f = functools.partial(getattr(jaxpool, name), p=1, window_shape=(2,), strides=(2,))
    for dtype in (np.int8, np.uint16, np.int32, np.bool_):
        x = np.arange(6).reshape(6, 1).astype(dtype)
        y = f(x)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, f(x.astype(np.float32)))


# Transformations


@pytest.mark.slow
@pytest.mark.parametrize(("name", "p"), [("lp_pool", 3.7), ("lp_pool", 2), ("gem_pool", 3.0)])
@pytest.mark.usefixtures("x64")
def test_derivatives_to_second_order(name, p):
    """In x, and for means in p too, against finite differences of the gradient."""
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    at, along = np.append(np.abs(numbers(4, 1.0)) + 0.2, p), numbers(5, 1.0, seed=3)

    def loss(v):
        power = v[4:] if name == "gem_pool" else p
        return (jnp.sin(f(v[:4, None], power)) * np.cos(np.arange(4.0))[:, None]).sum()

    gradient = jax.grad(loss)
    values = jax.jit(jax.vmap(lambda h: (loss(at + h * along), gradient(at + h * along))))
    h = 1e-5
    (below, above), (minus, plus) = values(np.array([-h, h]))
    second = jax.jit(lambda v: jax.jvp(gradient, (at,), (v,)))
    slope, hessian_along = second(along)
    np.testing.assert_allclose((above - below) / (2 * h), slope @ along, rtol=1e-6)
    np.testing.assert_allclose(hessian_along, (plus - minus) / (2 * h), rtol=1e-5, atol=1e-6)
    reverse = jax.jit(jax.jacrev(gradient))(at)
    np.testing.assert_allclose(reverse @ along, hessian_along, rtol=1e-9, atol=1e-11)


def test_residuals_are_inputs_and_output():
    x, p = np.ones((6, 2), np.float32), np.ones(2, np.float32)
    for f, want_shapes in [
        (lambda x, p: jaxpool.lp_pool(x, 3, (2,)), [x.shape, (5, 2)]),
        (lambda x, p: jaxpool.gem_pool(x, p, (2,)), [x.shape, (1, 2), (5, 2)]),
    ]:
        leaves = jax.tree.leaves(jax.eval_shape(lambda x, p, f=f: jax.vjp(f, x, p)[1], x, p))
        assert sorted(leaf.shape for leaf in leaves) == sorted(want_shapes)


def test_harmonic_mean_of_the_largest_floats():
    x = np.full((4, 2), 9e37, np.float32)
    y, pull = jax.vjp(lambda x: jaxpool.gem_pool(x, -1, (4,)), x)
    np.testing.assert_allclose(y, x[:1], rtol=1e-6)
    np.testing.assert_allclose(pull(np.ones((1, 2), np.float32))[0], 0.25, rtol=1e-5)


@pytest.mark.parametrize("far", [1.0, 1e-15, 1e15])
def test_values_and_gradients_scale_with_x_out_of_range(far):
    x = (np.abs(numbers((6, 2))) + 0.5).astype(np.float32) * np.float32(far)
    dy = np.ones((5, 2), np.float32)
    for f in (
        lambda x: jaxpool.lp_pool(x, 3, (2,)),
        lambda x: jaxpool.lp_pool(x, 2.5, (2,)),
        lambda x: jaxpool.gem_pool(x, 3, (2,), eps=1e-30),
    ):
        y, pull = jax.vjp(f, x)
        unit, back = jax.vjp(f, x / np.float32(far))
        np.testing.assert_allclose(y / np.float32(far), unit, rtol=2e-6)
        np.testing.assert_allclose(pull(dy)[0], back(dy)[0], rtol=1e-5)
        np.testing.assert_allclose(back(dy * 1e-30)[0], back(dy)[0] * 1e-30, rtol=1e-5)


@pytest.mark.parametrize("p", [1e-3, 1e-6, 1e-12, 1e-19, 1e-25, -1e-10])
def test_small_power_approaches_the_geometric_mean(p):
    """For p near 0, a pair whose logarithms differ by d has dy/dp = mean * d**2 / 8."""
    x = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32).T
    y, dx, dp = gem(x, np.float32(p), np.ones((3, 1), np.float32), **PAIR_WINDOW)
    below, above = np.float64(x[:-1]), np.float64(x[1:])
    mean, d = np.sqrt(below * above), np.log(above / below)
    np.testing.assert_allclose(y, mean, rtol=max(2e-7, abs(p)))
    np.testing.assert_allclose(dp, (mean * d * d / 8).sum(), rtol=1e-3)
    shares = np.pad(mean / below / 2, ((0, 1), (0, 0))) + np.pad(mean / above / 2, ((1, 0), (0, 0)))
    np.testing.assert_allclose(dx, shares, rtol=max(5e-7, abs(p)))


def test_small_power_of_the_largest_floats():
    x = np.array([1e38, 9e37, 1e38, 3e37], np.float32)[:, None]
    wide = np.float64(x)
    want, pullback = oracle_value_and_vjp("gem_pool", wide, 0.05, **PAIR_WINDOW)
    dy = np.ones(want.shape)
    y, pull = jax.vjp(lambda x: jaxpool.gem_pool(x, 0.05, **PAIR_WINDOW), x)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    np.testing.assert_allclose(pull(np.float32(dy))[0], pullback(dy), rtol=1e-5)


@pytest.mark.parametrize("largest", [1.0, 1e20])
def test_all_zero_windows_among_other_windows(largest):
    """As after a ReLU. Numbers whose squares underflow are not zeros."""
    x = np.array([0, 0, 0, 3, 4, 0, 0, 0, 3e-25, 4e-25], np.float32) * np.float32(largest)
    for p, last in ((2, 5e-25), (3, 91 ** (1 / 3) * 1e-25)):
        y, dx = lp(x[:, None], p, np.ones((5, 1), np.float32), window_shape=(2,), strides=(2,))
        np.testing.assert_allclose(y[:, 0] / largest, [0, 3, 4, 0, last], rtol=1e-6)
        slopes = (np.array([3, 4]) * 1e-25 / last) ** (p - 1)
        np.testing.assert_allclose(dx[:, 0], [0, 0, 0, 1, 1, 0, 0, 0, *slopes], rtol=1e-6)


@pytest.mark.parametrize("scale", first_values(1, [1, 1e30]))
@pytest.mark.parametrize("name", NAMES)
def test_jit_and_eager_results_are_identical(name, scale):
    x = (np.abs(numbers((2, 9, 9, 5))) * scale).astype(np.float32)
    dy = numbers((2, 9, 9, 5), seed=1).astype(np.float32)

    def both(x, dy):
        y, pull = jax.vjp(lambda x: getattr(jaxpool, name)(x, 2, (3, 3), padding="SAME"), x)
        return y, pull(dy)[0]

    for eager, jitted in zip(both(x, dy), jax.jit(both)(x, dy), strict=True):
        np.testing.assert_array_equal(eager, jitted)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_second_derivatives_out_of_range():
    """Direct and scaled evaluation agree, in both modes."""
    x, v = np.abs(numbers((6, 1))) + 0.5, numbers((6, 1), seed=1)
    for pool in (
        lambda x: jaxpool.lp_pool(x, 2, (3,)),
        lambda x: jaxpool.lp_pool(x, 3.7, (3,)),
        lambda x: jaxpool.gem_pool(x, 3.0, (3,), eps=1e-200),
        lambda x: jaxpool.gem_pool(x, np.full(1, 2.5), (3,), eps=1e-200),
    ):
        results = []
        for far in (1.0, 1e-60):

            def loss(x, far=far, pool=pool):
                return jnp.sin(pool(x * far) / far).sum()

            gradient = jax.grad(loss)
            forward = jax.jvp(gradient, (x,), (v,))[1]
            back = jax.vjp(gradient, x)[1](v)[0]
            np.testing.assert_allclose(forward, back, rtol=1e-9, atol=1e-12)
            results.append(forward)
        np.testing.assert_allclose(*results, rtol=1e-8, atol=1e-10)


def test_infinite_window_has_zero_gradient_in_p():
    x = jnp.array([[[1.0], [jnp.inf]]])
    assert jax.grad(lambda p: jaxpool.gem_pool(x, p, (2,), (2,)).sum())(jnp.float32(3)) == 0


@pytest.mark.parametrize(("name", "p"), [("lp_pool", 3), later("gem_pool", 3), slow("lp_pool", 1)])
def test_empty_arrays_inside_shard_map(name, p):
    """Direct and scaled evaluation have the same shard_map type (varying mesh axes), even for empty arrays."""
    mesh = jax.make_mesh((1,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("b")
    f = functools.partial(getattr(jaxpool, name), p=p, window_shape=(3,), padding="SAME")

    def derivatives(x):
        return jax.grad(lambda x: (f(x) ** 2).sum())(x), jax.jvp(f, (x,), (x,))[1]

    run = jax.shard_map(derivatives, mesh=mesh, in_specs=spec, out_specs=spec)
    for shape in ((1, 5, 0), (0, 5, 2)):
        assert [d.shape for d in run(np.ones(shape, np.float32))] == [shape] * 2


@pytest.mark.parametrize("p", [1, 3, inf])
def test_forward_mode_of_narrow_floats(p):
    """p = 1 and p = inf have a single evaluation; p = 3 has a direct and a scaled evaluation."""
    x = jnp.asarray([3, -1, 2], jnp.bfloat16)[:, None]
    f = functools.partial(jaxpool.lp_pool, p=p, window_shape=(2,), strides=(2,))
    y, tangent = jax.jvp(f, (x,), (x,))
    assert (y.dtype, tangent.dtype) == (jnp.bfloat16, jnp.bfloat16)
    # The pool is homogeneous in x, so its tangent along x is y.
    np.testing.assert_array_equal(tangent, y)
