"""Global pools with masks, and the spatial pyramid, against the oracle and worked examples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import draw_values, oracle
from jaxpool.testing._answer import is_floating
from tests.support.later import every_nth, first_values

pytestmark = pytest.mark.usefixtures("strict")

TIES = ("first", "last", "split")
INF, NAN = np.inf, np.nan
FLOATS = [np.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.int32, np.uint32]
SHAPE = (3, 4, 5, 2)
RNG = np.random.default_rng(5)
MASKS = {
    "none": None,
    "every element": RNG.random(SHAPE) < 0.4,
    "one for all channels": RNG.random((3, 4, 5, 1)) < 0.3,
    "an example of nothing": np.arange(3).reshape(3, 1, 1, 1) > 0,
    "columns": np.arange(5)[:, None] < 3,
}


@functools.partial(jax.jit, static_argnames=("name", "options"))
def pooled(x, dy, mask, name, options=()):
    """The output with keepdims, and the cotangent of x unless dy is None."""
    pool = functools.partial(getattr(jaxpool, name), where=mask, keepdims=True, **dict(options))
    if dy is None:
        return pool(x), None
    y, pullback = jax.vjp(pool, x)
    return y, pullback(dy)[0]


def check_against_oracle(name, x, mask=None, **options):
    answer = getattr(oracle, name)(x, where=mask, keepdims=True, **options)
    dy = None
    if is_floating(x.dtype):
        dy = draw_values(np.random.default_rng(0), answer.y.shape, x.dtype, "ties")
    y, dx = pooled(x, dy, mask, name, tuple(sorted(options.items())))
    assert y.dtype == answer.y.dtype
    exact = name == "global_max_pool"
    eps = 0 if exact else float(jnp.finfo(y.dtype).eps)
    compare = functools.partial(np.testing.assert_allclose, atol=0 if exact else 1e-6)
    compare(np.asarray(y).astype(float), answer.y.astype(float), rtol=eps)
    if dy is not None:
        assert dx.dtype == x.dtype
        rtol = float(jnp.finfo(x.dtype).eps) if options.get("ties") == "split" else eps
        want = answer.cotangent(dy).astype(float)
        compare(np.asarray(dx).astype(float), want, rtol=rtol)


@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("ties", TIES)
def test_global_max_pool(ties, which):
    for kind in ("ties", "special", "lowest"):
        x = draw_values(np.random.default_rng(1), SHAPE, np.float32, kind)
        check_against_oracle("global_max_pool", x, MASKS[which], ties=ties)


@pytest.mark.parametrize("which", MASKS)
def test_global_avg_pool(which):
    for kind in ("ties", "normal"):
        check_against_oracle(
            "global_avg_pool", draw_values(RNG, SHAPE, np.float32, kind), MASKS[which]
        )


@pytest.mark.parametrize("axes", [(2, 1), (-1,), (0, 1, 2, 3)])
def test_axes_in_any_order(axes):
    for kind in ("ties", "lowest"):
        x = draw_values(np.random.default_rng(2), SHAPE, np.float32, kind)
        check_against_oracle("global_max_pool", x, axes=axes)
    check_against_oracle("global_avg_pool", draw_values(RNG, SHAPE, np.float32, "ties"), axes=axes)


@pytest.mark.parametrize(
    "dtype", every_nth(FLOATS + INTEGERS), ids=lambda dtype: np.dtype(dtype).name
)
def test_dtypes(dtype):
    mask = MASKS["an example of nothing"]
    for kind in ("ties", "special"):
        check_against_oracle("global_max_pool", draw_values(RNG, SHAPE, dtype, kind), mask)
    check_against_oracle("global_avg_pool", draw_values(RNG, SHAPE, dtype, "ties"), mask)


def test_identity_is_the_minimum_in_dtypes_without_infinity():
    x = np.ones((1, 2, 1), jnp.float8_e8m0fnu)
    y = jaxpool.global_max_pool(x, where=np.zeros((1, 2, 1), bool))
    assert y.dtype == x.dtype
    assert float(y[0, 0]) == float(jnp.finfo(x.dtype).min)


def test_float64(x64):
    x = draw_values(RNG, SHAPE, np.float64, "normal") + 1e-12
    check_against_oracle("global_max_pool", x, MASKS["every element"])
    check_against_oracle("global_avg_pool", x, MASKS["every element"])


@pytest.mark.parametrize("name", ["global_max_pool", "global_avg_pool"])
def test_masked_elements_do_not_affect_results(name):
    """NaN and infinities where the mask is False, and a mask that is False throughout."""
    x = np.array([[NAN, 1, INF, 2], [NAN, NAN, INF, -INF]], np.float32)[..., None]
    mask = np.array([[False, True, False, True], [False] * 4])[..., None]
    y, dx = pooled(x, np.ones((2, 1, 1), np.float32), mask, name)
    best = {"global_max_pool": ([2, -INF], [0, 0, 0, 1]), "global_avg_pool": ([1.5, 0], None)}
    value, first = best[name]
    np.testing.assert_array_equal(y[:, 0, 0], value)
    np.testing.assert_array_equal(dx[0, :, 0], first or [0, 0.5, 0, 0.5])
    np.testing.assert_array_equal(dx[1, :, 0], [0] * 4)


def test_unmasked_infinity_gets_the_cotangent():
    x = np.full((1, 3, 1), -INF, np.float32)
    mask = np.array([False, True, True])[:, None]
    for ties, want in [("first", [0, 1, 0]), ("last", [0, 0, 1]), ("split", [0, 0.5, 0.5])]:
        _, dx = pooled(
            x, np.ones((1, 1, 1), np.float32), mask, "global_max_pool", (("ties", ties),)
        )
        np.testing.assert_array_equal(dx[0, :, 0], want)


def test_keepdims():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    for f in (jaxpool.global_max_pool, jaxpool.global_avg_pool):
        y = f(x, keepdims=True)
        assert y.shape == (2, 1, 1, 2)
        np.testing.assert_array_equal(f(x), y[:, 0, 0])
        assert f(x, axes=(0, 3), keepdims=False).shape == (3, 2)
        assert f(x[:0]).shape == (0, 2)


def test_averages_accumulate_in_float32():
    x = np.ones((1, 512, 1), jnp.bfloat16)
    assert float(jaxpool.global_avg_pool(x)[0, 0]) == 1
    mask = np.arange(512)[:, None] < 511
    assert float(jaxpool.global_avg_pool(x, where=mask)[0, 0]) == 1


@pytest.mark.parametrize("name", ["global_max_pool", "global_avg_pool"])
def test_forward_reverse_and_second_derivatives(name, x64):
    x = RNG.permutation(120).reshape(SHAPE) / 7
    mask = MASKS["every element"]
    v = RNG.standard_normal(SHAPE)
    f = functools.partial(getattr(jaxpool, name), where=mask)
    answer = getattr(oracle, name)(x, where=mask, keepdims=True)
    tangent = answer.tangent(v)[:, 0, 0]

    @jax.jit
    def derivatives(x, v, w):
        y_dot = jax.jvp(f, (x,), (v,))[1]
        dx = jax.vjp(f, x)[1](w)[0]
        square = jax.grad(lambda x: (jnp.where(jnp.isinf(f(x)), 0, f(x)) ** 2).sum() / 2)
        return y_dot, dx, jax.jvp(square, (x,), (v,))[1], jax.vmap(square)(jnp.stack([x, 2 * x]))

    w = RNG.standard_normal((3, 2))
    y_dot, dx, second, mapped = derivatives(x, v, w)
    np.testing.assert_allclose(y_dot, tangent, rtol=1e-12)
    np.testing.assert_allclose((y_dot * w).sum(), (v * dx).sum(), rtol=1e-12)
    np.testing.assert_allclose(second, answer.cotangent(tangent[:, None, None]), rtol=1e-12)
    np.testing.assert_allclose(mapped[1], 2 * mapped[0], rtol=1e-12)


@pytest.mark.parametrize("name", ["global_max_pool", "global_avg_pool"])
def test_gradient_has_no_scatter(name):
    gradient = jax.grad(lambda x, m: (getattr(jaxpool, name)(x, where=m) ** 2).sum())
    program = jax.jit(gradient).lower(np.ones(SHAPE, np.float32), np.ones(SHAPE, bool)).as_text()
    assert "stablehlo.reduce" in program
    assert "scatter" not in program


def residual_types(f, x):
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], x))
    return [(leaf.shape, leaf.dtype.name) for leaf in leaves]


def test_residuals():
    x = np.ones((2, 20, 20, 3), np.float32)
    mask = jnp.ones((2, 20, 20, 1), bool)
    pool = jaxpool.global_max_pool
    assert residual_types(pool, x) == [((2, 1, 1, 3), "uint16")]
    assert residual_types(functools.partial(pool, where=mask), x) == [((2, 1, 1, 3), "uint16")]
    assert residual_types(jaxpool.global_avg_pool, x) == []
    average = functools.partial(jaxpool.global_avg_pool, where=mask)
    assert residual_types(average, x) == [(mask.shape, "bool")]


# Pyramid


def pyramid_reference(x, levels, kind):
    """Reference, channels last: one adaptive pool per level."""
    pool = getattr(jaxpool, f"adaptive_{kind}_pool")
    parts = jax.jit(lambda x: [pool(x, (n,) * (x.ndim - 2)) for n in levels])(x)
    return np.concatenate([part.reshape(len(x), -1) for part in parts], axis=1)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pyramid_cotangents_rounded_once_over_levels(kind):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(5, 7, 3)), jnp.bfloat16)
    dy = jnp.asarray(rng.normal(size=(1 + 4 + 9, 3)), jnp.bfloat16)
    both = {}
    for dtype in (jnp.bfloat16, jnp.float32):
        pool = functools.partial(jaxpool.spatial_pyramid_pool, levels=(1, 2, 3), kind=kind)
        arrays = x.astype(dtype)[None], dy.astype(dtype).reshape(1, -1)
        both[dtype] = jax.vjp(pool, arrays[0])[1](arrays[1])[0].astype(jnp.bfloat16)
    np.testing.assert_array_equal(*both.values())


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pyramid_equals_adaptive_pools(kind):
    x = draw_values(RNG, (2, 5, 6, 3), np.float32, "ties")
    want = pyramid_reference(x, (1, 2, 4), kind)

    def pyramid(x, levels, axes=None):
        pool = functools.partial(jaxpool.spatial_pyramid_pool, levels=levels, kind=kind, axes=axes)
        return jax.jit(pool)(x)

    y = pyramid(x, (1, 2, 4))
    assert y.shape == (2, 3 * (1 + 4 + 16))
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(pyramid(x, [4, 1, 2]), want)
    first = np.moveaxis(x, -1, 1)
    np.testing.assert_array_equal(pyramid(first, (1, 2, 4), axes=(2, 3)), want)
    many = np.stack([x, x])
    np.testing.assert_array_equal(pyramid(many, (1, 2, 4), axes=(2, 3)), np.stack([want, want]))
    np.testing.assert_array_equal(pyramid(x[0, ..., 0], (1, 2, 4), axes=(0, 1)), want[0, ::3])
    length = draw_values(RNG, (2, 7, 3), np.float32, "ties")
    np.testing.assert_array_equal(pyramid(length, (2,)), pyramid_reference(length, (2,), kind))


def test_pyramid_dtypes():
    x = np.ones((1, 3, 3, 2), np.int8)
    assert jaxpool.spatial_pyramid_pool(x, (2,)).dtype == np.int8
    assert jaxpool.spatial_pyramid_pool(x, (2,), kind="avg").dtype == np.float32


@pytest.mark.parametrize("levels", first_values(1, [(1, 2), tuple(range(1, 16))]))
@pytest.mark.parametrize("shape", [(3, 4, 0), (0, 4, 2), (1, 4, 1)])
def test_pyramid_of_empty_or_single_sharded_images(shape, levels):
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,))
    x = jnp.zeros(shape, device=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b")))
    with jax.set_mesh(mesh):
        y = jaxpool.spatial_pyramid_pool(x, levels, axes=(1,))
    assert y.shape == (shape[0], sum(levels) * shape[2])
    assert y.sharding.spec[0] == "b"
