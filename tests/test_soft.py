"""logsumexp_pool and softmax_pool against their formulas, at their limits and at what overflows."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gathered import Gathered

import jaxpool

pytestmark = [pytest.mark.usefixtures("strict"), pytest.mark.slow]  # minutes of compiling

inf, nan = np.inf, np.nan
NAMES = ("logsumexp_pool", "softmax_pool")
GEOMETRIES = {
    "overlapping": ((2, 4, 5, 2), {"window_shape": (3, 2), "padding": "SAME"}),
    "tiled, a tail": ((5, 5, 2), {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
    "dilated, channels first": (
        (2, 2, 9),
        {
            "window_shape": (3,),
            "strides": (2,),
            "padding": ((2, 1),),
            "window_dilation": (2,),
            "axes": (-1,),
        },
    ),
    "long": ((20, 2), {"window_shape": (13,), "padding": "SAME_LOWER"}),
}
HALVES = {"window_shape": (7,), "padding": 3}
PLAIN = GEOMETRIES["overlapping"]


def numbers(shape, scale=2.0, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * scale


# The formulas: value, and what an element of each window and the temperature get of a cotangent


def formula(name, x, temperature, **geometry):
    """y, the function from dy to dx, and dy / dT."""
    at = Gathered(x.shape, **geometry)
    elements = at.gather(x.astype(np.float64), -inf)
    t = np.asarray(temperature, np.float64)
    beside = (np.broadcast_to(t, elements.shape[:-1]) if t.ndim else t)[..., None]
    highest = elements.max(-1, keepdims=True)
    below = np.where(at.real, elements - highest, 0)
    weights = np.where(at.real, np.exp(below / beside), 0)
    total = weights.sum(-1, keepdims=True)
    weights = weights / total
    mean = (weights * below).sum(-1, keepdims=True)
    if name == "softmax_pool":
        y, shares = highest + mean, weights * (1 + (below - mean) / beside)
        slope = -(weights * ((below - mean) / beside) ** 2).sum(-1, keepdims=True)
    else:
        y, shares = highest + beside * np.log(total), weights
        slope = np.log(total) - mean / beside
    return y[..., 0], lambda dy: at.scatter(shares * dy[..., None]), slope[..., 0]


@functools.cache
def program(name, geometry):
    """y, dx and dT from x, T and dy, compiled once for all values."""
    f = functools.partial(getattr(jaxpool, name), **dict(geometry))

    def of(x, t, dy):
        y, pullback = jax.vjp(lambda x, t: f(x, temperature=t), x, t)
        return y, *pullback(dy)

    return jax.jit(of)


def run(name, geometry, x, t, dy):
    return jax.device_get(program(name, tuple(geometry.items()))(x, t, dy))


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_value_and_gradient(name, geometry):
    shape, geometry = GEOMETRIES[geometry]
    for seed, (t, shift) in enumerate([(1.0, 0), (0.3, 0), (30.0, 0), (0.01, 1e4), (1.0, -1e4)]):
        x = numbers(shape, seed=seed) + shift
        want, pullback, slope = formula(name, x, t, **geometry)
        dy = numbers(want.shape, seed=seed + 9)
        y, dx, dt = run(name, geometry, x, np.float64(t), dy)
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(dt, (slope * dy).sum(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_a_temperature_for_each_channel_or_each_output(name):
    shape, geometry = PLAIN
    x = numbers(shape)
    for t in (np.array([0.5, 2.0]), np.exp(numbers(shape, 0.5, seed=1))):  # SAME: x and y alike
        want, pullback, slope = formula(name, x, t, **geometry)
        dy = numbers(want.shape, seed=2)
        y, dx, dt = run(name, geometry, x, t, dy)
        assert dt.shape == t.shape
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-9, atol=1e-12)
        summed = (slope * dy).sum(axis=(0, 1, 2)) if t.ndim == 1 else slope * dy
        np.testing.assert_allclose(dt, summed, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_number_and_an_array_give_the_same(name):
    shape, geometry = PLAIN
    x = numbers(shape).astype(np.float32)
    f = functools.partial(getattr(jaxpool, name), x, **geometry)
    for t in (2, 2.0, np.float64(2), np.int8(2), np.array(2), jnp.array([2, 2])):
        np.testing.assert_allclose(f(temperature=t), f(temperature=2.0), rtol=1e-6)
    np.testing.assert_array_equal(f(), f(temperature=1.0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_derivatives_to_third_order(name):
    """In x and T together."""
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_tangents_are_the_transpose_of_cotangents(name):
    shape, geometry = PLAIN
    f = functools.partial(getattr(jaxpool, name), **geometry)
    x, v = numbers(shape), numbers(shape, seed=1)
    y, tangent = jax.jit(lambda x, v: jax.jvp(f, (x,), (v,)))(x, v)
    dy = numbers(y.shape, seed=2)
    _, dx, _ = run(name, geometry, x, np.float64(1), dy)
    np.testing.assert_allclose((tangent * dy).sum(), (v * dx).sum(), rtol=1e-11)


# Limits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_a_low_temperature_gives_the_maximum_and_its_gradient(name):
    shape, geometry = PLAIN
    x = np.random.default_rng(0).permutation(80).reshape(shape) / 8.0
    want, pullback = jax.vjp(lambda x: jaxpool.max_pool(x, **geometry), x)
    dy = numbers(want.shape)
    y, dx, _ = run(name, geometry, x, np.float64(1e-4), dy)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(dx, pullback(dy)[0], rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_a_high_temperature_gives_the_mean():
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


def test_a_constant_is_its_own_softmax_pool_and_padding_has_no_weight():
    shape, geometry = PLAIN
    x = np.full(shape, -7.0, np.float32)
    np.testing.assert_array_equal(jaxpool.softmax_pool(x, **geometry), x)
    count = np.asarray(jaxpool.sum_pool(np.ones(shape, np.float32), **geometry))
    y = jaxpool.logsumexp_pool(x, **geometry)
    np.testing.assert_allclose(y, -7 + np.log(count), rtol=1e-6)


def test_one_full_window_is_the_logsumexp_and_the_softmax_of_jax():
    x = numbers((6, 7, 3)).astype(np.float32)
    got = jaxpool.logsumexp_pool(x, (6, 7), (6, 7))[0, 0]
    np.testing.assert_allclose(got, jax.nn.logsumexp(x, axis=(0, 1)), rtol=1e-6)
    got = jaxpool.softmax_pool(x, (6, 7), (6, 7))[0, 0]
    want = (jax.nn.softmax(x, axis=(0, 1)) * x).sum(axis=(0, 1))
    np.testing.assert_allclose(got, want, rtol=1e-5)


# What overflows, infinities and NaN


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
        want, pullback, _ = formula(name, x, t, **geometry)
        dy = numbers(want.shape).astype(np.float32)
        y, dx, dt = run(name, geometry, x, np.float32(t), dy)
        np.testing.assert_allclose(y, want, rtol=3e-7)
        np.testing.assert_allclose(dx, pullback(dy), rtol=1e-5, atol=1e-5)
        assert np.isfinite(dt) or t < 1e-19  # whose inverse has no square


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("t", [1e-300, 1e300])
def test_a_number_beyond_the_range_of_the_type(name, t):
    x = np.array([[1.0], [1.0], [0.5], [3.0]], np.float32)
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,), strides=(2,), temperature=t)
    dx = jax.grad(lambda x: f(x).sum())(x)
    even = [0.5, 0.5, 0.0, 1.0] if t < 1 else [0.5, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(dx[:, 0], even)
    if t < 1 or name == "softmax_pool":
        np.testing.assert_allclose(f(x)[:, 0], [1.0, 3.0 if t < 1 else 1.75])


# x, the two outputs of windows of 2, and the gradients of their sum
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
def test_infinities_where_a_window_is_put_together_from_halves(name):
    x = numbers((20, 2)).astype(np.float32)
    x[:, 1], x[3, 0] = -inf, inf
    dy = np.ones((20, 2), np.float32)
    y, dx, _ = run(name, HALVES, x, np.float32(1), dy)
    reached = np.abs(np.arange(20) - 3) <= 3
    np.testing.assert_array_equal(np.isposinf(y[:, 0]), reached)
    assert dx[3, 0] == reached.sum()
    assert np.all(np.isneginf(y[:, 1]))
    np.testing.assert_allclose(dx.sum(axis=0), [20, 20], rtol=1e-6)


# Dtypes


@pytest.mark.parametrize("name", NAMES)
def test_narrow_floats_are_computed_in_float32_and_rounded_once(name):
    f = functools.partial(getattr(jaxpool, name), **HALVES)
    for dtype in (jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        x, dy = numbers((20, 2)).astype(dtype), numbers((20, 2), seed=1).astype(dtype)
        wide = [np.float32(array) for array in (x, dy)]
        y, dx, _ = run(name, HALVES, wide[0], np.float32(1), wide[1])
        assert f(x).dtype == dtype
        np.testing.assert_array_equal(np.float32(f(x)), np.float32(y.astype(dtype)))
        if dtype in (jnp.bfloat16, jnp.float8_e4m3fn):
            got = jax.jit(lambda x, dy: jax.vjp(f, x)[1](dy)[0])(x, dy)
            assert got.dtype == dtype
            np.testing.assert_array_equal(np.float32(got), np.float32(dx.astype(dtype)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.bool_])
def test_integers_give_float32(name, dtype):
    x = np.arange(6).reshape(6, 1).astype(dtype)
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,))
    y = f(x)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, f(x.astype(np.float32)))


@pytest.mark.parametrize("name", NAMES)
def test_batch_and_channels_may_be_empty(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(2,))
    assert f(np.zeros((0, 4, 3), np.float32)).shape == (0, 3, 3)
    assert jax.grad(lambda x: f(x).sum())(jnp.zeros((4, 0))).shape == (4, 0)


# Transformations


@pytest.mark.parametrize("name", NAMES)
def test_vmap_scan_checkpoint_and_shapes(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    xs = numbers((4, 6, 2)).astype(np.float32)

    def gradient(x):
        return jax.grad(lambda x: (jax.checkpoint(f)(x) ** 2).sum())(x)

    want = gradient(xs)  # one more batch axis
    np.testing.assert_allclose(jax.jit(jax.vmap(gradient))(xs), want, rtol=1e-5, atol=1e-6)
    scanned = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c, gradient(x)), 0, xs)[1])(xs)
    np.testing.assert_allclose(scanned, want, rtol=1e-5, atol=1e-6)
    assert jax.eval_shape(f, xs).shape == xs.shape
    pullback = jax.vjp(f, xs)[1]
    assert [leaf.shape for leaf in jax.tree.leaves(pullback)] == [xs.shape]


@pytest.mark.parametrize("name", NAMES)
def test_symbolic_batch_and_channels(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    gradient = jax.jit(jax.grad(lambda x: (f(x) ** 2).sum()))
    batch, channels = jax.export.symbolic_shape("b, c")
    shape = jax.ShapeDtypeStruct((batch, 6, channels), np.float32)
    exported = jax.export.export(gradient)(shape)
    x = numbers((4, 6, 2)).astype(np.float32)
    np.testing.assert_allclose(exported.call(x), gradient(x), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_inside_shard_map(name):
    f = functools.partial(getattr(jaxpool, name), window_shape=(3,), padding=1)
    mesh = jax.make_mesh((1,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("b")
    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    x = numbers((4, 6, 2)).astype(np.float32)
    got = jax.jit(jax.grad(lambda x: (mapped(x) ** 2).sum()))(x)
    want = jax.grad(lambda x: (f(x) ** 2).sum())(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_large_window_is_a_short_program(name):
    def length(window, **options):
        f = functools.partial(getattr(jaxpool, name), window_shape=window, **options)
        gradient = jax.grad(lambda x: f(x).sum())
        return len(str(jax.make_jaxpr(gradient)(np.zeros((80, 80, 1), np.float32))))

    small = length((3, 3), padding="SAME")
    assert length((63, 63), padding="SAME") < 8 * small
    assert length((80, 80)) < small
    assert length((40, 40), strides=40) < 3 * small


# Errors


def raised(call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return type(caught.value), str(caught.value)


X = np.zeros((1, 4, 4, 2), np.float32)
RULE = "a finite number above 0"
BESIDE = "a number, or an array that broadcasts against the output, (1, 3, 3, 2)."
CHANNELS = "An array of shape (C,) is one number a channel where channels come last."
SHAPED = "of a shape that broadcasts against the output, (1, 3, 3, 2)"
ERRORS = [
    (0, ValueError, RULE, 0, f"Pass {BESIDE}"),
    (-1.5, ValueError, RULE, -1.5, f"Pass {BESIDE}"),
    (math.inf, ValueError, RULE, math.inf, f"Pass {BESIDE}"),
    (math.nan, ValueError, RULE, math.nan, f"Pass {BESIDE}"),
    (True, TypeError, RULE, True, f"Pass {BESIDE}"),
    (None, TypeError, RULE, None, f"Pass {BESIDE}"),
    ("1", TypeError, RULE, "1", f"Pass {BESIDE}"),
    ([1.0, 2.0], TypeError, RULE, [1.0, 2.0], f"Pass {BESIDE}"),
    (1j, TypeError, RULE, 1j, f"Pass {BESIDE}"),
    (np.ones(3), ValueError, SHAPED, (3,), CHANNELS),
    (np.ones((4, 4, 2)), ValueError, SHAPED, (4, 4, 2), CHANNELS),
    (np.ones((1, 1, 1, 1, 1)), ValueError, SHAPED, (1, 1, 1, 1, 1), CHANNELS),
    (
        np.ones(2, bool),
        TypeError,
        "of floats or integers",
        np.dtype(bool),
        "Convert it first.",
    ),
]


@pytest.mark.parametrize("name", NAMES)
def test_messages_about_the_temperature(name):
    f = getattr(jaxpool, name)
    for value, kind, rule, shown, hint in ERRORS:
        want = (
            f"jaxpool.{name}: `temperature` must be {rule}; got temperature={shown!r} "
            f"(x.shape=(1, 4, 4, 2), window_shape=(2, 2)). {hint}"
        )
        assert raised(lambda value=value: f(X, (2, 2), temperature=value)) == (kind, want)


@pytest.mark.parametrize("name", NAMES)
def test_messages_about_the_array_and_the_geometry(name):
    f = getattr(jaxpool, name)
    assert raised(lambda: f([1.0], (1,))) == (
        TypeError,
        f"jaxpool.{name}: `x` must be an array; got x=[1.0]. Pass jnp.asarray(x).",
    )
    kind, message = raised(lambda: f(X, (2, 2), (0, 1)))
    assert kind is ValueError
    assert re.match(rf"jaxpool\.{name}: `strides` must be an int or 2 ints of at least 1", message)
