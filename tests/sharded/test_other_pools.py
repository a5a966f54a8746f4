"""Rank pools, morphology, blur, soft pools and SciPy's filters of sharded arrays equal those of the whole array."""

import functools
import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import scipy
from jaxpool.testing import pools
from tests.sharded.cases import (
    KINDS,
    LAYOUTS,
    assert_same,
    collectives,
    mesh_of,
    numbers,
    pool,
    requires_eight_devices,
    weights,
)

pytestmark = [requires_eight_devices, pytest.mark.usefixtures("strict")]

KERNEL = np.array([[0, 1, 0], [2, 0, 1], [0, 1, 0]], np.float32)
KERNEL_PER_CHANNEL = np.stack([KERNEL, 2 - KERNEL], -1)  # one kernel per channel
RECORDS = pools()
OTHERS = [  # windowed functions other than maxima, minima, sums and averages
    name
    for name, record in RECORDS.items()
    if record.takes("x", "padding")
    and record.topic not in ("max_pool", "avg_pool", "argmax", "random")
]


def make_pool(name, **settings):
    """Return a call of a function by its record, with the `settings` that it accepts."""
    given = RECORDS[name].given(numbers(), **settings)
    del given["x"]
    return pool(name, exact=not RECORDS[name].rounds(given), **given)


def window(shape, strides=(1, 1), padding="SAME", **more):
    return {"window_shape": shape, "strides": strides, "padding": padding, **more}


WINDOWS = [
    window((3, 3), kernel=KERNEL),
    window((3, 3), (2, 2), ties="split", kernel=KERNEL_PER_CHANNEL),
    window((5, 3), (2, 1), ties="last", rank=1, kernel=KERNEL_PER_CHANNEL),
]
ROWS = np.array([[0, 1, 5], [0, 2, 5], [5, 0, 0], [1, 1, 1]], np.float32)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_tie_order_follows_axis_order(kind, ties):
    """The order of ties follows `axis`, as on one device: with axis=(1, 0), columns come first."""
    x = ROWS if kind == "max" else -ROWS
    mesh = mesh_of((4,), "explicit")
    gradient = jax.jit(jax.grad(lambda x: getattr(jaxpool, kind)(x, (1, 0), ties=ties)))
    dx = gradient(jax.device_put(x, NamedSharding(mesh, P("a"))))
    assert np.argwhere(np.asarray(dx)).tolist() == ([[2, 0]] if ties == "first" else [[1, 2]])
    np.testing.assert_array_equal(dx, gradient(x))


CASES = [make_pool(name, **each) for name, each in zip(OTHERS, itertools.cycle(WINDOWS))]
MORE_WINDOWS = [
    window((7, 3), padding=((3, 3), (1, 1)), rank=-2),
    window((9, 9)),
    window((3, 3), (2, 2), "SAME_LOWER", kernel=KERNEL_PER_CHANNEL),
    window((3, 1), rank=0, window_dilation=(3, 1), ties="split", kernel=KERNEL_PER_CHANNEL),
    window((2, 3), axes=(2, 1), rank=1),
    window((2, 2), (2, 2), "VALID"),
]
HAS_TIES = [name for name in OTHERS if RECORDS[name].ties]
MORE_CASES = [
    make_pool(name, **each) for each, name in zip(MORE_WINDOWS, itertools.cycle(HAS_TIES[::-1]))
]
PER_CHANNEL_CASES = [
    make_pool(name, **each, **{number: np.array([0.5, 2], np.float32)})
    for name, each in zip(
        OTHERS, itertools.cycle([WINDOWS[0], window((3, 3), (2, 2), window_dilation=2)])
    )
    for number in RECORDS[name].coefficients
]


def test_rank_pool():
    assert_same([make_pool("rank_pool", **WINDOWS[0])], "rows over 8", "explicit", [numbers()])


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_other_pools(layout, kind):
    """Many ties, and windows across several shards: with two rows per shard, a window of seven reaches two away."""
    assert_same(CASES, layout, kind, [numbers(seed=seed) for seed, _ in enumerate(CASES)])


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_more_other_pools(layout, kind):
    xs = [numbers(seed=seed) for seed, _ in enumerate(MORE_CASES)]
    assert_same(MORE_CASES, layout, kind, xs)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_per_channel(layout, kind):
    xs = [numbers(seed=seed) for seed, _ in enumerate(PER_CHANNEL_CASES)]
    assert_same(PER_CHANNEL_CASES, layout, kind, xs)


@pytest.mark.parametrize(
    "kind", ["explicit", *[pytest.param(k, marks=pytest.mark.slow) for k in ("auto", "manual")]]
)
@pytest.mark.parametrize(
    "kernel", [KERNEL, pytest.param(KERNEL_PER_CHANNEL, marks=pytest.mark.slow)]
)
def test_kernel_cotangent_sums_over_devices(kind, kernel):
    """The cotangent of the kernel sums over all devices, also with sharded channels."""
    spec = P(None, "a", None, "b")
    mesh = mesh_of((4, 2), kind)
    x, kernel = jnp.asarray(numbers()), jnp.asarray(kernel)

    def gradient(dilate):
        def loss(x, kernel):
            y = dilate(x, kernel, (1, 1), "SAME")
            return (y * weights(y)).sum()

        return jax.grad(loss, (0, 1))

    def across(x, kernel):
        pool = jaxpool.sharded(jaxpool.dilate, spec=spec)
        if kind != "manual":
            return pool(x, kernel, (1, 1), "SAME")
        each = P(None, None, "b") if kernel.ndim == 3 else P()
        local = functools.partial(pool, strides=(1, 1), padding="SAME")
        run = jax.shard_map(local, mesh=mesh, in_specs=(spec, each), out_specs=spec)
        return run(x, kernel)

    def dilate(x, kernel, *_):
        return across(x, kernel)

    given = jax.device_put(x, NamedSharding(mesh, spec))
    with jax.set_mesh(mesh):
        got = jax.jit(gradient(dilate))(given, kernel)
    for a, b in zip(got, gradient(jaxpool.dilate)(x, kernel), strict=True):
        np.testing.assert_array_equal(a, b)


FILTERS = [
    ("median_filter", (3,)),
    ("rank_filter", (1, 4)),
    ("maximum_filter", (3,)),
    ("uniform_filter", (4,)),
    ("grey_opening", (3,)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "origin"), [("reflect", 0), ("mirror", 1), ("nearest", -1)])
def test_scipy_filters(mode, origin):
    x = jnp.asarray(numbers((32, 6)))
    given = jax.device_put(x, NamedSharding(mesh_of((8,), "explicit"), P("a")))

    def every(x):
        def both(name, args):
            run = functools.partial(getattr(scipy, name), mode=mode, origin=origin)
            y, pull = jax.vjp(lambda x: run(x, *args), x)
            return y, pull(weights(y))[0]

        return [both(name, args) for name, args in FILTERS]

    got, want = jax.jit(every)(given), jax.jit(every)(x)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="`mode` must be another where axis 0 of input lies on"):
        scipy.median_filter(given, 3, mode="wrap")


@pytest.mark.slow
def test_forward_mode_and_vmap():
    x = jnp.asarray(numbers((3, 16, 2)))
    given = jax.device_put(x, NamedSharding(mesh_of((8,), "explicit"), P(None, "a")))

    @jax.jit
    def every(x):
        def run(x):
            return jaxpool.rank_pool(x, 1, (3,), (1,), "SAME", autodiff="jvp")

        return jax.jvp(run, (x,), (jnp.sin(x),)), jax.vmap(run)(jnp.stack([x, -x]))

    for a, b in zip(*map(jax.tree.leaves, (every(given), every(x))), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_only_collective_permutes():
    """A collective inside a branch that only some devices take would deadlock."""
    spec = P(None, "a")
    x = jax.device_put(jnp.ones((2, 16, 4, 2)), NamedSharding(mesh_of((8,), "explicit"), spec))

    def loss(x):
        return [make_pool(name, **WINDOWS[0]).plain(x) for name in OTHERS]

    both = jax.jit(lambda x: jax.vjp(loss, x)[1](jax.tree.map(jnp.ones_like, loss(x))))
    assert {name for name, _ in collectives(both, x)} == {"collective-permute"}


@pytest.mark.parametrize("name", [name for name in OTHERS if RECORDS[name].topic == "blur"])
def test_reflected_rows_beyond_the_shard_raise(name):
    x = jax.device_put(
        jnp.ones((2, 8, 4, 2)), NamedSharding(mesh_of((8,), "explicit"), P(None, "a"))
    )
    with pytest.raises(
        ValueError, match="of more rows in each of its 8 shards along axis 1, where it is"
    ):
        make_pool(name, **window((4, 4)), blur_shape=(4, 4)).plain(x)


@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_broadcast_operands_are_sharded(traced):
    """A temperature per output row, coefficients per channel, a `where` mask, a kernel and a key."""
    mesh = jax.make_mesh((4,), ("a",), (AxisType.Auto,), devices=jax.devices()[:4])
    heat = np.linspace(1, 2, 16, dtype=np.float32).reshape(1, 16, 1, 1)
    mask, kernel = numbers() > 0, np.ones((3, 3, 2), np.float32)

    def every(platform, x, heat, mask, kernel, key):
        soft = platform(jaxpool.logsumexp_pool)(x, (3, 3), padding="SAME", temperature=heat)
        channels = [
            platform(record.function)(
                **record.given(x, **window((3, 3), **{number: jnp.arange(1.0, 3)}))
            )
            for record in RECORDS.values()
            for number in record.coefficients
        ]
        total = platform(jaxpool.global_avg_pool)(x, where=mask)
        grown = platform(jaxpool.dilate)(x, kernel, padding="SAME")
        drawn = [
            platform(record.function)(**record.given(x, **window((3, 3)), key=key))
            for record in RECORDS.values()
            if record.takes("key", "padding")
        ]
        return soft, channels, total, grown, drawn

    given = jnp.asarray(numbers()), heat, mask, kernel, jax.random.key(0)
    want = every(lambda pool: pool, *given)
    across_devices = functools.partial(every, functools.partial(jaxpool.sharded, spec=P(None, "a")))
    with jax.set_mesh(mesh):
        got = (jax.jit(across_devices) if traced else across_devices)(*given)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6)
