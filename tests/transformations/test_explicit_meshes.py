"""Every op on an array whose type says how it is sharded, which is what `jax.make_mesh` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpool
from tests.support.transform_rows import ROWS, VARIANTS, numbers

TABLE = ROWS | VARIANTS
BATCH, CHANNELS = PartitionSpec("i"), PartitionSpec(None, None, None, "i")


@pytest.mark.parametrize("spec", [BATCH, CHANNELS], ids=["batch", "channels"])
@pytest.mark.parametrize("name", TABLE)
def test_gradients(name, spec):
    if TABLE[name].op == "spatial_pyramid_pool" and spec == CHANNELS:
        pytest.skip("flattened bins: no sharding says where their channels lie")
    if TABLE[name].op == "maximum" and spec == CHANNELS:
        pytest.skip("its operand of one channel cannot be sharded along them")
    x = numbers()
    mesh = jax.make_mesh((1,), ("i",), (AxisType.Explicit,), devices=jax.devices()[:1])
    for mode, f in TABLE[name].modes().items():

        def gradient(x, f=f):
            return jax.grad(lambda x: sum((y**2).sum() for y in jax.tree.leaves(f(x))))(x)

        want = jax.jit(gradient)(x)
        with jax.set_mesh(mesh):
            given = jax.device_put(x, NamedSharding(mesh, spec))
            got = jax.jit(gradient)(given)
        assert got.sharding.is_equivalent_to(given.sharding, x.ndim), mode
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=mode)


@pytest.mark.parametrize("op", ["maximum", "fmax"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_of_other_shardings(op, dtype):
    """As jax's own: numbers, and arrays that are on every device or sharded along another axis."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(-3, 4, (8, 3, 4)), dtype)
    row = jnp.asarray(rng.integers(-3, 4, (3, 4)), dtype)
    mesh = jax.make_mesh((1, 1), ("i", "j"), (AxisType.Explicit,) * 2, devices=jax.devices()[:1])

    def gradients(x, row, other):
        def loss(*xs):
            function = getattr(jaxpool, op)
            y = function(function(function(xs[0], xs[1]), 0.5), xs[2])
            return (y * y).astype(np.float32).sum()

        return jax.grad(loss, (0, 1, 2))(x, row, other)

    want = jax.jit(gradients)(x, row, -x)
    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, BATCH))
        along = jax.device_put(-x, NamedSharding(mesh, PartitionSpec(None, None, "j")))
        got = jax.jit(gradients)(sharded, row, along)
    for dx, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("spec", [PartitionSpec("i"), PartitionSpec()], ids=str)
@pytest.mark.parametrize("of_mask", [PartitionSpec(None, "j"), PartitionSpec()], ids=str)
def test_masks_of_other_shardings(spec, of_mask):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6)), jnp.float32)
    mask = np.arange(24).reshape(4, 6) % 3 > 0
    mesh = jax.make_mesh((1, 1), ("i", "j"), (AxisType.Explicit,) * 2, devices=jax.devices()[:1])

    def gradient(x, mask):
        return jax.grad(lambda x: jaxpool.max(x, axis=1, where=mask, initial=0.0).sum())(x)

    want = gradient(x, mask)
    with jax.set_mesh(mesh):
        given = jax.device_put(x, NamedSharding(mesh, spec))
        got = gradient(given, jax.device_put(mask, NamedSharding(mesh, of_mask)))
    np.testing.assert_array_equal(got, want)
