"""Global pools and the spatial pyramid: derivatives with masks, rounding, and shardings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import oracle
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")

SHAPE = (3, 4, 5, 2)
RNG = np.random.default_rng(5)


def test_identity_is_the_minimum_in_dtypes_without_infinity():
    x = np.ones((1, 2, 1), jnp.float8_e8m0fnu)
    y = jaxpool.global_max_pool(x, where=np.zeros((1, 2, 1), bool))
    assert y.dtype == x.dtype
    assert float(y[0, 0]) == float(jnp.finfo(x.dtype).min)


@pytest.mark.parametrize("name", ["global_max_pool", "global_avg_pool"])
def test_forward_reverse_and_second_derivatives(name, x64):
    x = RNG.permutation(120).reshape(SHAPE) / 7
    mask = RNG.random(SHAPE) < 0.4
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


@pytest.mark.parametrize("levels", first_values(1, [(1, 2), tuple(range(1, 16))]))
@pytest.mark.parametrize("shape", [(3, 4, 0), (0, 4, 2), (1, 4, 1)])
def test_pyramid_of_empty_or_single_sharded_images(shape, levels):
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,))
    x = jnp.zeros(shape, device=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b")))
    with jax.set_mesh(mesh):
        y = jaxpool.spatial_pyramid_pool(x, levels, axes=(1,))
    assert y.shape == (shape[0], sum(levels) * shape[2])
    assert y.sharding.spec[0] == "b"
