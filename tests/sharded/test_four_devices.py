"""`jaxpool.sharded` of every public function of an array: as on one device, or refused in words of our own."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import KINDS, collectives, on_eight_devices, with_gradient
from tests.sharded.every import FUNCTIONS, across, call_of, refused

pytestmark = on_eight_devices

ROUNDED = ("avg", "blur", "gem", "logsumexp", "lp_pool", "roi_align", "mean", "softmax")
# Which axes need to be whole: of x of boxes all but channels, inside a shard_map. Two windows are not of four devices.
REFUSED = {
    "fractional_avg_pool": {1: KINDS, 2: KINDS},
    "fractional_max_pool": {1: KINDS, 2: KINDS},
    "k_max_pool": {2: KINDS},
    "adaptive_avg_pool": {2: KINDS},
    "adaptive_max_pool": {2: KINDS},
    "adaptive_max_pool_with_argmax": {2: KINDS},
    "cummax": {3: ["manual"]},
    "cummin": {3: ["manual"]},
    "roi_align": {0: ["manual"], 1: ["manual"]},
    "roi_max_pool": {0: ["manual"], 1: ["manual"]},
    "segment_max": {0: ["manual"]},
    "segment_min": {0: ["manual"]},
    "segment_mean": {0: ["manual"]},
}
# What gathers: boxes and segments, which XLA lays out; and a pyramid its cells and channels, which become one axis.
GATHERING = {"roi_align", "roi_max_pool", "segment_max", "segment_min", "segment_mean"}
PYRAMID = "spatial_pyramid_pool"
QUICK = [
    ("stochastic_pool", 1, "manual"),
    ("dilate", 2, "auto"),
    (PYRAMID, 1, "manual"),
]


def cells():
    """Every axis of the array of every function, on meshes of every kind."""
    for name in FUNCTIONS:
        for axis in range(call_of(name).xs[0].ndim):
            for kind in KINDS:
                marks = [] if (name, axis, kind) in QUICK else [pytest.mark.slow]
                yield pytest.param(name, axis, kind, marks=marks)


def mesh_of_four(kind):
    axis = AxisType.Explicit if kind == "explicit" else AxisType.Auto
    return jax.make_mesh((4,), ("a",), (axis,), devices=jax.devices()[:4])


@functools.cache
def on_one_device(name):
    call = call_of(name)
    return jax.jit(with_gradient(call.plain))(call.xs[0])


@pytest.mark.parametrize(("name", "axis", "kind"), list(cells()))
def test_value_cotangent_and_what_is_sent(name, axis, kind):
    call, mesh = call_of(name), mesh_of_four(kind)

    def compiled():
        run, spec = across(call, axis, kind, mesh)
        x = jax.device_put(call.xs[0], NamedSharding(mesh, spec))
        return jax.jit(with_gradient(run)).lower(x).compile(), x

    with jax.set_mesh(mesh):
        found = refused(compiled)
    whole = kind in REFUSED.get(name, {}).get(axis, [])
    assert (found is None) == whole
    if found is None:
        return
    program, x = found
    sent = {each for each, _ in collectives(program)}
    if name not in GATHERING:
        assert sent <= {"collective-permute", "all-reduce"} | (
            {"all-gather"} if name == PYRAMID else set()
        )
    for several, one in zip(
        jax.tree.leaves(program(x)), jax.tree.leaves(on_one_device(name)), strict=True
    ):
        assert (several.shape, several.dtype) == (one.shape, one.dtype)
        if name in ("max", "min", PYRAMID) or any(word in name for word in ROUNDED):
            np.testing.assert_allclose(several, one, rtol=2e-6, atol=2e-6)
        else:
            np.testing.assert_array_equal(several, one)


POOLS = [
    "max_pool",
    "max_pool_with_argmax",
    "avg_pool",
    "median_pool",
    "adaptive_avg_pool",
    "dilate",
    "max",
]


@pytest.mark.parametrize(
    "name", ["max_pool", *[pytest.param(n, marks=pytest.mark.slow) for n in POOLS[1:]]]
)
def test_forward_mode_is_asked_for(name):
    """As on one device: "vjp" refuses it, and says what to pass."""
    call, mesh = call_of(name), mesh_of_four("explicit")
    x = jax.device_put(call.xs[0], NamedSharding(mesh, P(None, "a")))

    def tangent(autodiff):
        pool = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
        return jax.jvp(lambda x: jax.tree.leaves(call.of(pool)(x))[0], (x,), (x,))[1]

    with jax.set_mesh(mesh):
        tangent("jvp")
        with pytest.raises(TypeError, match="forward-mode") as raised:
            tangent("vjp")
    assert any('autodiff="jvp"' in note for note in raised.value.__notes__)


# Where the mesh is known from, and other arrays than x


SPEC = P(None, "a")
X = np.random.default_rng(0).integers(-9, 9, (2, 16, 8, 4)).astype(np.float32)


def check(run, x):
    """The maxima that `run` gives, and their gradient, under `jit` and not."""

    def both(f, x):
        return f(x), jax.grad(lambda x: (f(x) ** 2).sum())(x)

    want = jax.jit(lambda x: both(lambda x: jaxpool.max_pool(x, (3, 3), padding="SAME"), x))(x)
    for got in ((run(x),), jax.jit(functools.partial(both, run))(x)):
        for a, b in zip(got, want, strict=False):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "told", ["context", "argument", pytest.param("array", marks=pytest.mark.slow)]
)
def test_the_mesh_is_of_the_context_an_argument_or_the_array(told):
    mesh = mesh_of_four("auto")
    pool = jaxpool.sharded(jaxpool.max_pool, spec=SPEC, mesh=mesh if told == "argument" else None)
    run = functools.partial(pool, window_shape=(3, 3), padding="SAME")
    x = jnp.asarray(X)
    if told == "context":
        with jax.set_mesh(mesh):
            check(run, x)
    else:
        check(run, jax.device_put(x, NamedSharding(mesh, SPEC)) if told == "array" else x)


@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_other_arrays_lie_as_far_as_they_broadcast(traced):
    """A temperature for each row of the output and one for each channel, a mask, a kernel, a key."""
    mesh = mesh_of_four("auto")
    heat = np.linspace(1, 2, 16, dtype=np.float32).reshape(1, 16, 1, 1)
    mask, kernel = X > 0, np.ones((3, 3, 4), np.float32)

    def every(on, x, heat, mask, kernel, key):
        soft = on(jaxpool.logsumexp_pool)(x, (3, 3), padding="SAME", temperature=heat)
        channels = on(jaxpool.gem_pool)(x, jnp.arange(1.0, 5), (3, 3), padding="SAME")
        total = on(jaxpool.global_avg_pool)(x, where=mask)
        grown = on(jaxpool.dilate)(x, kernel, padding="SAME")
        drawn = on(jaxpool.stochastic_pool)(key, x, (3, 3), padding="SAME")
        return soft, channels, total, grown, drawn

    given = jnp.asarray(X), heat, mask, kernel, jax.random.key(0)
    want = every(lambda pool: pool, *given)
    across_devices = functools.partial(every, functools.partial(jaxpool.sharded, spec=SPEC))
    with jax.set_mesh(mesh):
        got = (jax.jit(across_devices) if traced else across_devices)(*given)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6)


def test_a_function_made_of_several():
    mesh = mesh_of_four("auto")

    def network(x):
        x = jaxpool.max_pool(x, (3, 3), (2, 2), "SAME")
        return jaxpool.global_avg_pool(jaxpool.maximum(x, 0.5))

    run = jaxpool.sharded(network, spec=SPEC)
    x = jax.device_put(jnp.asarray(X), NamedSharding(mesh, SPEC))
    np.testing.assert_allclose(jax.jit(run)(x), network(jnp.asarray(X)), rtol=1e-6)
    mapped = jax.shard_map(run, mesh=mesh, in_specs=SPEC, out_specs=P())
    np.testing.assert_allclose(jax.jit(mapped)(x), network(jnp.asarray(X)), rtol=1e-6)


def test_arrays_of_other_ranks_inside_a_shard_map_are_refused():
    """Nothing says how they lie."""
    mesh = mesh_of_four("auto")
    mapped = jaxpool.sharded(jax.vmap(lambda x: jaxpool.max_pool(x, (2, 2))), spec=SPEC)
    run = jax.shard_map(mapped, mesh=mesh, in_specs=SPEC, out_specs=SPEC)
    with pytest.raises(ValueError, match=r"jaxpool.max_pool: `x` must be of 4 axes, as jaxpool.sh"):
        run(X)
