"""Values and gradients of sharded pools equal those of the unsharded functions on the whole array."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import (
    KINDS,
    LAYOUTS,
    assert_same,
    mesh_of,
    numbers,
    pool,
    requires_eight_devices,
    special_numbers,
)

pytestmark = [requires_eight_devices, pytest.mark.usefixtures("strict")]

# 16 rows over 8 devices: a shard has 2 rows, windows of 7 rows reach two shards away, and windows of 21 rows reach all.
EXTREMA = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (3, 3), (1, 1), "SAME", ties="split"),
    pool("max_pool", (7, 5), (2, 1), ((2, 4), (2, 2))),
    pool("min_pool", (3, 3), (1, 1), "SAME", window_dilation=(3, 1)),
    pool("max_pool_with_argmax", (3, 3), (2, 2), "SAME_LOWER"),
    pool("global_max_pool"),
    pool("adaptive_max_pool", (8, 4)),
    pool("max_unpool", (16, 16), (3, 3), (2, 2), "SAME"),
]
SUMS = [
    pool("sum_pool", (3, 3), (1, 1), "SAME"),
    pool("avg_pool", (3, 3), (2, 2), "SAME"),
    pool("avg_pool", (5, 3), (1, 1), "SAME", count_include_pad=False),
    pool("lp_pool", 2, (3, 3), (2, 2), "SAME"),
    pool("global_avg_pool"),
    pool("adaptive_avg_pool", (8, 6)),
]
MORE_EXTREMA = [
    pool("max_pool", (3, 3), (1, 1), "SAME", ties="last"),
    pool("max_pool", (2, 2), (2, 2)),
    pool("max_pool", (2, 2), (2, 2), ties="split"),
    pool("max_pool", (21, 3), (1, 1), "SAME"),
    pool("max_pool", (21, 21), (1, 1), "SAME", ties="split"),
    pool("max_pool", (9, 9), (2, 2), "SAME", ties="last"),
    pool("max_pool", (3, 3), (1, 1), ((2, 0), (0, 2))),
    pool("max_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    pool("max_pool", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    pool("min_pool", (3, 3), (1, 1), "SAME", ties="split"),
    pool("min_pool", (5, 5), (2, 2), "SAME", ties="last"),
    pool("max_pool_with_argmax", (3, 3), (1, 1), "SAME", ties="last"),
    pool("max_pool_with_argmax", (7, 7), (1, 1), "SAME", ties="split"),
    pool("max_pool_with_argmax", (2, 3), (1, 1), "SAME", axes=(2, 1)),
    pool("global_max_pool", ties="last"),
    pool("global_max_pool", ties="split"),
    pool("global_max_pool", axes=(2, 1)),
    pool("adaptive_max_pool", (8, 6), ties="last"),
    pool("adaptive_max_pool", (1, 1), ties="split"),
    pool("adaptive_max_pool_with_argmax", (8, 6)),
    pool("adaptive_max_pool_with_argmax", (8, 4), ties="last"),
    pool("adaptive_max_pool_with_argmax", (6, 8), axes=(2, 1), ties="split"),
    pool("max_unpool", (16, 16), (2, 2), (2, 2)),
    pool("max_unpool", (16, 16), (3, 3), (1, 1), "SAME", axes=(1, 2)),
]
MORE_SUMS = [
    pool("sum_pool", (2, 2), (2, 2)),
    pool("sum_pool", (21, 21), (1, 1), "SAME"),
    pool("sum_pool", (3, 3), (1, 1), "SAME", window_dilation=3),
    pool("avg_pool", (3, 3), (1, 1), "SAME", divisor=2.5),
    pool("avg_pool", (9, 9), (2, 2), "SAME", count_include_pad=False),
    pool("avg_pool", (3, 1), (2, 1), ((0, 1), (0, 0)), ceil_mode=True),
    pool("lp_pool", np.inf, (3, 3), (1, 1), "SAME"),
    pool("lp_pool", 1, (3, 3), (1, 1), "SAME"),
    pool("lp_pool", 3.5, (5, 5), (1, 1), "SAME"),
    pool("adaptive_avg_pool", (16, 2)),
    pool("adaptive_avg_pool", (1, 1)),
]
QUICK_EXTREMA = {"rows over 8": "explicit"}
QUICK_SUMS = {"rows over 4, columns over 2": "auto"}


def cells(layouts):
    marks = [pytest.mark.slow]
    return [
        pytest.param(layout, kind, marks=[] if layouts.get(layout) == kind else marks)
        for layout in LAYOUTS
        for kind in KINDS
    ]


@pytest.mark.parametrize(("layout", "kind"), cells(QUICK_EXTREMA))
def test_extrema(layout, kind):
    """Equal bit by bit for many ties, NaNs, and windows of -inf alone, inside the array and at its padding."""
    assert_same(
        EXTREMA, layout, kind, [special_numbers(seed=seed) for seed, _ in enumerate(EXTREMA)]
    )


@pytest.mark.parametrize(("layout", "kind"), cells(QUICK_SUMS))
def test_sums(layout, kind):
    rng = np.random.default_rng(3)
    xs = [rng.standard_normal((2, 16, 16, 2)).astype(np.float32) for _ in SUMS]
    assert_same(SUMS, layout, kind, xs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_extrema(layout, kind):
    assert_same(
        MORE_EXTREMA,
        layout,
        kind,
        [special_numbers(seed=seed) for seed, _ in enumerate(MORE_EXTREMA)],
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_sums(layout, kind):
    rng = np.random.default_rng(4)
    xs = [rng.standard_normal((2, 16, 16, 2)).astype(np.float32) for _ in MORE_SUMS]
    assert_same(MORE_SUMS, layout, kind, xs)


@pytest.mark.parametrize(("layout", "kind"), [("rows over 4, columns over 2", "explicit")])
def test_window_offsets_differ_between_shards(layout, kind):
    """Shards of 5 rows and strides of 4 or 6, so that the first window starts at a different row of each shard."""
    late = ((1, 0), (1, 0))
    cases = [
        pool("max_pool", (8, 4), (4, 4)),
        pool("max_pool", (3, 3), (6, 6), late, ties="split"),
        pool("avg_pool", (3, 3), (6, 6), late, count_include_pad=False, exact=False),
        pool("sum_pool", (8, 4), (4, 4)),
    ]
    hard = [special_numbers((2, 20, 10, 2), seed) for seed in range(2)]
    assert_same(cases, layout, kind, [*hard, *[numbers((2, 20, 10, 2), seed) for seed in range(2)]])


DTYPES = ["bool", "float8_e4m3fn"]
MORE_DTYPES = [
    pytest.param(each, marks=pytest.mark.slow) for each in ("bfloat16", "int8", "float8_e5m2")
]


@pytest.mark.parametrize("dtype", DTYPES + MORE_DTYPES)
def test_other_dtypes(dtype):
    mesh = mesh_of((8,), "explicit")
    x = jnp.asarray(np.arange(2 * 16 * 4).reshape(2, 16, 4) * 37 % 11 - 5, np.float32).astype(dtype)
    given = jax.device_put(x, NamedSharding(mesh, P(None, "a")))
    names = ["max_pool", "min_pool", "avg_pool"] + ["sum_pool"] * (dtype != "bool")
    for name in names:
        want = getattr(jaxpool, name)(x, (5,), (1,), "SAME")
        got = getattr(jaxpool, name)(given, (5,), (1,), "SAME")
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_bfloat16_gradients_within_one_rounding():
    mesh = mesh_of((8,), "explicit")
    rng = np.random.default_rng(0)
    x, dy = (jnp.asarray(rng.standard_normal((1, 32, 8)), jnp.bfloat16) for _ in range(2))
    (want,) = jax.vjp(lambda x: jaxpool.avg_pool(x, (5,), (1,), "SAME"), x)[1](dy)
    spread = NamedSharding(mesh, P(None, "a"))
    given = jax.device_put(x, spread)
    (got,) = jax.vjp(lambda x: jaxpool.avg_pool(x, (5,), (1,), "SAME"), given)[1](
        jax.device_put(dy, spread)
    )
    assert got.dtype == want.dtype
    a, b = (np.asarray(each, np.float32) for each in (got, want))
    np.testing.assert_allclose(a, b, rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize("ties", ["first", pytest.param("last", marks=pytest.mark.slow), "split"])
def test_global_pool_where_mask(ties):
    """The `where` mask is False throughout the shard of one device, and throughout one channel."""
    x, rng = special_numbers((2, 16, 8, 4)), np.random.default_rng(0)
    where = rng.random((2, 16, 8, 4)) < 0.3
    where[:, 4:8] = where[..., 1] = False
    spec = P(None, "a", "b")
    mesh = mesh_of((4, 2), "auto")
    given = jax.device_put(jnp.asarray(x), NamedSharding(mesh, spec))

    def both(f, x):
        y, pull = jax.vjp(f, x)
        return y, pull(jnp.arange(1.0, y.size + 1).reshape(y.shape))[0]

    want = jax.jit(lambda x: both(lambda x: jaxpool.global_max_pool(x, where=where, ties=ties), x))(
        jnp.asarray(x)
    )
    pool = jaxpool.sharded(jaxpool.global_max_pool, spec=spec)
    got = jax.jit(lambda x: both(lambda x: pool(x, where=where, ties=ties), x))(given)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if ties == "split" else 0)
    x = jnp.asarray(np.nan_to_num(x, neginf=0))
    got = jaxpool.sharded(jaxpool.global_avg_pool, mesh=mesh, spec=spec)(
        x, where=where, keepdims=True
    )
    want = jaxpool.global_avg_pool(x, where=where, keepdims=True)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("ties", [pytest.param("first", marks=pytest.mark.slow), "last", "split"])
def test_global_max_pool_bfloat16(ties):
    """Value and gradient equal those of one device, including the sign of -0."""
    mesh = mesh_of((8,), "explicit")
    x = jnp.asarray(-(np.arange(32.0).reshape(1, 16, 2) // 2 % 5), jnp.bfloat16)

    def both(f, x):
        y, pull = jax.vjp(f, x)
        return y, pull(jnp.full_like(y, 3))[0]

    want = both(lambda x: jaxpool.global_max_pool(x, ties=ties), x)
    given = jax.device_put(x, NamedSharding(mesh, P(None, "a")))
    got = jax.jit(lambda x: both(lambda x: jaxpool.global_max_pool(x, ties=ties), x))(given)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def test_shard_map_over_batch_only():
    """`jaxpool.sharded` maps the pooled axis inside the shard_map."""
    mesh = mesh_of((2, 4), "auto")

    def local(x):
        return jaxpool.sharded(jaxpool.max_pool, spec=P(None, "b"))(x, (3, 3), (1, 1), "SAME")

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    x = jnp.asarray(numbers())
    np.testing.assert_array_equal(jax.jit(mapped)(x), jaxpool.max_pool(x, (3, 3), (1, 1), "SAME"))


def test_forward_mode_second_order_and_vmap():
    mesh = mesh_of((8,), "explicit")
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((3, 16, 2)), np.float32)
    given = jax.device_put(x, NamedSharding(mesh, P(None, "a")))
    args = (3,), (1,), "SAME"

    def derivatives(pool):
        def loss(x):
            return (pool(x, *args, autodiff="jvp") ** 3).sum()

        def all_of(x):
            forward = jax.jvp(loss, (x,), (jnp.sin(x),))[1]
            twice = jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum())(x)
            lanes = jax.vmap(lambda x: pool(x, *args))(jnp.stack([x, -x]))
            return forward, twice, lanes

        return jax.jit(all_of)

    for function in (jaxpool.max_pool, jaxpool.avg_pool):
        want, got = derivatives(function)(x), derivatives(function)(given)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
