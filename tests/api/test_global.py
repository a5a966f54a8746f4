"""Global pools and the spatial pyramid: empty windows, rounding, and shardings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")


def test_identity_is_the_minimum_in_dtypes_without_infinity():
    x = np.ones((1, 2, 1), jnp.float8_e8m0fnu)
    y = jaxpool.global_max_pool(x, where=np.zeros((1, 2, 1), bool))
    assert y.dtype == x.dtype
    assert float(y[0, 0]) == float(jnp.finfo(x.dtype).min)


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
