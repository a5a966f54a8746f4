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


# Flattened bins: no sharding says where their channels lie. An operand of one channel: nothing to shard.
BATCH_ALONE = ("spatial_pyramid_pool", "maximum")


@pytest.mark.parametrize("name", TABLE)
def test_gradients(name):
    """One program without a mesh and one with it, for both modes and all shardings."""
    mesh = jax.make_mesh((1,), ("i",), (AxisType.Explicit,), devices=jax.devices()[:1])
    specs = [BATCH] if TABLE[name].op in BATCH_ALONE else [BATCH, CHANNELS]

    @jax.jit
    def gradients(xs):
        def gradient(f, x):
            return jax.grad(lambda x: sum((y**2).sum() for y in jax.tree.leaves(f(x))))(x)

        modes = TABLE[name].modes().items()
        return {mode: [gradient(f, x) for x in xs] for mode, f in modes}

    wanted = gradients([numbers()])
    with jax.set_mesh(mesh):
        given = [jax.device_put(numbers(), NamedSharding(mesh, spec)) for spec in specs]
        got = gradients(given)
    for mode, (want,) in wanted.items():
        for x, dx in zip(given, got[mode], strict=True):
            assert dx.sharding.is_equivalent_to(x.sharding, x.ndim), (mode, x.sharding)
            np.testing.assert_allclose(dx, want, rtol=1e-5, atol=1e-6, err_msg=mode)


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
