"""Every op under explicit sharding, where the type of an array carries its sharding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpool
from tests.support.transform_rows import POOLS, ROWS, SIMILAR_OPS, TYPED, VARIANTS, numbers

TABLE = ROWS | VARIANTS
BATCH, CHANNELS = PartitionSpec("i"), PartitionSpec(None, None, None, "i")

# Flattens bins and channels into one axis, which has no sharding if the channels are sharded.
FLATTENED = "spatial_pyramid_pool"

# Of a variant that many ops share, one op is quick. The variants that compile longest are slow.
LONGEST = {
    name
    for name in VARIANTS
    if name.partition(", ")[2] in ("p of an array", "temperature of an array")
}
BOX_POOLS = [name for name, pool in POOLS.items() if pool.takes("boxes")]
VARIANT_KINDS = {name: name.partition(", ")[2] for name in VARIANTS if name not in TYPED}
FIRST = {kind: name for name, kind in reversed(VARIANT_KINDS.items())}
SLOW = {
    *SIMILAR_OPS,
    *LONGEST,
    *(name for name, kind in VARIANT_KINDS.items() if FIRST[kind] != name),
}


def explicit_mesh():
    return jax.make_mesh((1,), ("i",), (AxisType.Explicit,), devices=jax.devices()[:1])


def gradient(f):
    return jax.grad(lambda x: sum((y**2).sum() for y in jax.tree.leaves(f(x))))


@pytest.mark.parametrize(
    "name",
    [
        *[name for name in TABLE if name not in SLOW],
        *(pytest.param(name, marks=pytest.mark.slow) for name in TABLE if name in SLOW),
    ],
)
def test_gradients(name):
    """One program without a mesh and one with a mesh cover both modes and all shardings."""
    mesh = explicit_mesh()
    specs = [BATCH] if name == FLATTENED else [BATCH, CHANNELS]

    @jax.jit
    def gradients(xs):
        return {mode: [gradient(f)(x) for x in xs] for mode, f in TABLE[name].modes().items()}

    wanted = gradients([numbers()])
    with jax.set_mesh(mesh):
        given = [jax.device_put(numbers(), NamedSharding(mesh, spec)) for spec in specs]
        got = gradients(given)
    for mode, (want,) in wanted.items():
        for x, dx in zip(given, got[mode], strict=True):
            assert dx.sharding.is_equivalent_to(x.sharding, x.ndim), (mode, x.sharding)
            np.testing.assert_allclose(dx, want, rtol=1e-5, atol=1e-6, err_msg=mode)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in BOX_POOLS),
        *[name for name, pool in POOLS.items() if pool.takes("segment_ids")],
    ],
)
def test_gradient_without_set_mesh(name):
    """Under `jit`, the mesh comes from the arrays."""
    f = gradient(TABLE[name].f)
    x = jax.device_put(numbers(), NamedSharding(explicit_mesh(), BATCH))
    dx = jax.jit(f)(x)
    assert dx.sharding.is_equivalent_to(x.sharding, x.ndim)
    np.testing.assert_allclose(dx, jax.jit(f)(numbers()), rtol=1e-5, atol=1e-6)


def test_pyramid_gathers_sharded_channels():
    """jax raises for the twin's reshape, which has no output sharding. The pyramid passes one."""
    mesh = explicit_mesh()
    row = TABLE[FLATTENED]
    with jax.set_mesh(mesh):
        x = jax.device_put(numbers(), NamedSharding(mesh, CHANNELS))
        with pytest.raises(Exception, match="This reshape is not supported") as raised:
            jax.jit(row.twin)(x)
        assert raised.type.__name__ == "ShardingTypeError"
        for function in (row.f, gradient(row.f)):
            found = jax.jit(function)(x)
            np.testing.assert_allclose(found, jax.jit(function)(numbers()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("ties", ["split", "first"])
def test_broadcast_of_sharded_axis_of_size_one(op, ties):
    """An axis of size 1, sharded over one device, has a gradient. That of `jnp.broadcast_to` raises."""
    x, one = jnp.arange(6.0).reshape(3, 2), jnp.asarray([[2.0], [3.0], [9.0]])

    def gradients(x, one):
        function = functools.partial(getattr(jaxpool, op), ties=ties)
        return jax.grad(lambda *xs: (function(*xs) ** 2).sum(), (0, 1))(x, one)

    want = gradients(x, one)
    mesh = explicit_mesh()
    with jax.set_mesh(mesh):
        sharding = NamedSharding(mesh, PartitionSpec(None, "i"))
        given = [jax.device_put(array, sharding) for array in (x, one)]
        got = jax.jit(gradients)(*given)
        with pytest.raises(ValueError, match="Expected cotangent type"):
            gradient(lambda one: jnp.broadcast_to(one, x.shape))(given[1])
    for dx, expected in zip(got, want, strict=True):
        assert dx.sharding.is_equivalent_to(sharding, 2)
        np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("op", ["maximum", "fmax"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_with_different_shardings(op, dtype):
    """Scalars, replicated arrays, and arrays sharded along another axis are valid operands, as for jax's functions."""
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
def test_masks_with_different_shardings(spec, of_mask):
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
