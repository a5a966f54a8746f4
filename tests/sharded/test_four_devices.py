"""`jaxpool.sharded` of every public function of an array equals the function on one device, or raises."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import KINDS, collectives, requires_eight_devices, with_gradient
from tests.sharded.every import FUNCTIONS, POOLS, call_of, must_raise, result_or_none, sharded_call

pytestmark = requires_eight_devices


def may_use_any_collective(name):
    """Return True if a function of boxes or segments, whose sharding XLA decides, may use any collective."""
    return POOLS[name].takes("boxes") or POOLS[name].takes("segment_ids")


PYRAMID = "spatial_pyramid_pool"  # cells and channels become one axis, which takes an all-gather
QUICK = [
    *[(name, 1, "manual") for name, pool in POOLS.items() if pool.takes("key", "padding")],
    ("dilate", 2, "auto"),
    (PYRAMID, 1, "manual"),
]


def cells():
    """Yield every combination of function, axis of its array, and kind of mesh."""
    for name in FUNCTIONS:
        for axis in range(call_of(name).xs[0].ndim):
            for kind in KINDS:
                marks = [] if (name, axis, kind) in QUICK else [pytest.mark.slow]
                yield pytest.param(name, axis, kind, marks=marks)


def mesh_of_four(kind):
    axis = AxisType.Explicit if kind == "explicit" else AxisType.Auto
    return jax.make_mesh((4,), ("a",), (axis,), devices=jax.devices()[:4])


@functools.cache
def one_device_result(name):
    call = call_of(name)
    return jax.jit(with_gradient(call.plain))(call.xs[0])


@pytest.mark.parametrize(("name", "axis", "kind"), list(cells()))
def test_value_cotangent_and_collectives(name, axis, kind):
    call, mesh = call_of(name), mesh_of_four(kind)

    def compiled():
        run, spec = sharded_call(call, axis, kind, mesh)
        x = jax.device_put(call.xs[0], NamedSharding(mesh, spec))
        return jax.jit(with_gradient(run)).lower(x).compile(), x

    with jax.set_mesh(mesh):
        found = result_or_none(compiled)
    assert (found is None) == must_raise(call, axis, kind)
    if found is None:
        return
    program, x = found
    sent = {each for each, _ in collectives(program)}
    if not may_use_any_collective(name):
        assert sent <= {"collective-permute", "all-reduce"} | (
            {"all-gather"} if name == PYRAMID else set()
        )
    for several, one in zip(
        jax.tree.leaves(program(x)), jax.tree.leaves(one_device_result(name)), strict=True
    ):
        assert (several.shape, several.dtype) == (one.shape, one.dtype)
        if name in ("max", "min", PYRAMID) or POOLS[name].rounds(call.given):
            np.testing.assert_allclose(several, one, rtol=2e-6, atol=2e-6)
        else:
            np.testing.assert_array_equal(several, one)


HAS_AUTODIFF = [name for name, pool in POOLS.items() if pool.modes]


@pytest.mark.parametrize(
    "name",
    [n if n == "max_pool" else pytest.param(n, marks=pytest.mark.slow) for n in HAS_AUTODIFF],
)
def test_forward_mode_needs_autodiff_jvp(name):
    """As on one device, `autodiff="vjp"` raises under `jax.jvp`, and the message names the argument to pass."""
    call, mesh = call_of(name), mesh_of_four("explicit")
    x = jax.device_put(call.xs[0], NamedSharding(mesh, P(None, "a")))

    def tangent(autodiff):
        pool = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
        return jax.jvp(lambda x: jax.tree.leaves(call.of(pool)(x))[0], (x,), (x,))[1]

    with jax.set_mesh(mesh):
        tangent("jvp")
        with pytest.raises(
            TypeError, match=f"^jaxpool.{name}: `autodiff` must be 'jvp' for forward"
        ):
            tangent("vjp")


# Sources of the mesh, and array arguments other than x


SPEC = P(None, "a")
X = np.random.default_rng(0).integers(-9, 9, (2, 16, 8, 4)).astype(np.float32)


def check(run, x):
    """Compare the max pool `run` with the unsharded one: values with and without `jit`, gradients with `jit`."""

    def both(f, x):
        return f(x), jax.grad(lambda x: (f(x) ** 2).sum())(x)

    want = jax.jit(lambda x: both(lambda x: jaxpool.max_pool(x, (3, 3), padding="SAME"), x))(x)
    for got in ((run(x),), jax.jit(functools.partial(both, run))(x)):
        for a, b in zip(got, want, strict=False):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "told", ["context", "argument", pytest.param("array", marks=pytest.mark.slow)]
)
def test_mesh_from_context_argument_or_array(told):
    mesh = mesh_of_four("auto")
    pool = jaxpool.sharded(jaxpool.max_pool, spec=SPEC, mesh=mesh if told == "argument" else None)
    run = functools.partial(pool, window_shape=(3, 3), padding="SAME")
    x = jnp.asarray(X)
    if told == "context":
        with jax.set_mesh(mesh):
            check(run, x)
    else:
        check(run, jax.device_put(x, NamedSharding(mesh, SPEC)) if told == "array" else x)


def test_sharded_composed_function():
    mesh = mesh_of_four("auto")

    def network(x):
        x = jaxpool.max_pool(x, (3, 3), (2, 2), "SAME")
        return jaxpool.global_avg_pool(jaxpool.maximum(x, 0.5))

    run = jaxpool.sharded(network, spec=SPEC)
    x = jax.device_put(jnp.asarray(X), NamedSharding(mesh, SPEC))
    np.testing.assert_allclose(jax.jit(run)(x), network(jnp.asarray(X)), rtol=1e-6)
    mapped = jax.shard_map(run, mesh=mesh, in_specs=SPEC, out_specs=P())
    np.testing.assert_allclose(jax.jit(mapped)(x), network(jnp.asarray(X)), rtol=1e-6)


def test_other_rank_in_shard_map_raises():
    """The spec does not determine the sharding of an array of another rank."""
    mesh = mesh_of_four("auto")
    mapped = jaxpool.sharded(jax.vmap(lambda x: jaxpool.max_pool(x, (2, 2))), spec=SPEC)
    run = jax.shard_map(mapped, mesh=mesh, in_specs=SPEC, out_specs=SPEC)
    with pytest.raises(ValueError, match=r"jaxpool.max_pool: `x` must be of 4 axes, as jaxpool.sh"):
        run(X)


def test_max_unpool_does_not_read_empty_sharded_indices():
    """jax 0.10 to 0.12 raise where they read an array without elements that a program has sharded."""
    mesh, spec = mesh_of_four("auto"), P(None, "a")
    place = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, spec))
    y, indices = place(np.zeros((0, 8, 2), np.float32)), place(np.zeros((0, 8, 2), np.int32))
    for unpool in (jaxpool.max_unpool, jaxpool.sharded(jaxpool.max_unpool, mesh=mesh, spec=spec)):
        assert unpool(y, indices, (16,), axes=(1,)).shape == (0, 16, 2)
