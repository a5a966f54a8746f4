"""Adaptive, global and pyramid pools: programs, empty windows, rounding, and the order of PyTorch for several NaN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.patches import position_of_tap
from jaxpool._ops.adaptive_pool import adaptive_max_op
from jaxpool._ops.apply import apply_with_residual
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("length", [9, 201])
def test_last_nan_order_of_pytorch(length):
    x = np.zeros((length, 3), np.float32)
    x[1:5, 0] = np.nan
    x[2:4, 1] = 5
    window = adaptive_window(x.shape, (2,), None)
    op = adaptive_max_op(window, "last_nan")
    _, tap = jax.jit(lambda x: apply_with_residual(op, x))(x)
    indices = position_of_tap(tap, window)
    np.testing.assert_array_equal(
        indices, [[4, 2, 0], [4 if length == 9 else 100] + [length // 2] * 2]
    )


@pytest.mark.parametrize("options", [{}, {"ties": "split"}, {"autodiff": "jvp"}], ids=str)
def test_divisible_sizes_lower_to_the_windowed_pool(options):
    """Both programs have the same lowered text."""
    x = np.zeros((2, 6, 8, 3), np.float32)
    window = {"window_shape": (3, 2), "strides": (3, 2)}
    for adaptive, windowed in [
        (jaxpool.adaptive_max_pool, jaxpool.max_pool),
        (jaxpool.adaptive_avg_pool, jaxpool.avg_pool),
    ]:
        if windowed is jaxpool.avg_pool and "ties" in options:
            continue
        programs = [
            jax.jit(jax.grad(lambda x, pool=pool: (pool(x) ** 2).sum())).lower(x).as_text()
            for pool in (
                functools.partial(adaptive, output_shape=(2, 4), **options),
                functools.partial(windowed, **window, **options),
            )
        ]
        assert programs[0] == programs[1]


# Global pools and the spatial pyramid


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
