"""Compiled programs of sharded pools send only halos between devices."""

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import (
    KINDS,
    LAYOUTS,
    collectives,
    mesh_of,
    on_mesh,
    pool,
    requires_eight_devices,
)

pytestmark = requires_eight_devices

SHAPE = (4, 16, 16, 2)
POOLS = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (7, 7), (2, 2), "SAME", ties="split"),
    pool("min_pool", (5, 5), (2, 2), "SAME", ties="last"),
    pool("avg_pool", (3, 3), (1, 1), "SAME", count_include_pad=False),
    pool("sum_pool", (9, 9), (2, 2), "SAME"),
    pool("lp_pool", 2, (3, 3), (1, 1), "SAME"),
    pool("max_pool_with_argmax", (3, 3), (1, 1), "SAME"),
    pool("adaptive_max_pool", (8, 6)),
]


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_only_collective_permutes(layout, kind):
    run, put = on_mesh(POOLS, layout, kind)
    xs = [put(jnp.ones(SHAPE)) for _ in POOLS]
    assert {name for name, _ in collectives(run, xs)} == {"collective-permute"}


@pytest.mark.parametrize("kind", ["auto", pytest.param("explicit", marks=pytest.mark.slow)])
def test_bytes_sent_equal_halo_size(kind):
    """3x3 SAME over 16 x 16 on 4 x 2 devices: one row above and below, then one column with corners on each side."""
    mesh, spec = mesh_of((4, 2), kind), P(None, "a", "b")
    x = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, spec))

    def pooled(x):
        return jaxpool.sharded(jaxpool.max_pool, spec=spec)(x, (3, 3), (1, 1), "SAME")

    rows, columns, each = 16 // 4, 16 // 2, 4 * 2 * 4  # 4 images of 2 channels, 4 bytes per element
    halo = 2 * columns * each + 2 * (rows + 2) * each
    assert sum(size for _, size in collectives(pooled, x)) == halo
    back = collectives(jax.grad(lambda x: pooled(x).sum()), x)
    sent = [size for name, size in back if name == "collective-permute"]
    assert sum(sent) == 2 * halo


def test_shard_is_not_copied():
    """Temporary memory per device exceeds that of pooling one shard alone only by the strips at its borders."""
    mesh = mesh_of((8,), "explicit")
    x = jax.device_put(jnp.ones((1, 1024, 128, 8)), NamedSharding(mesh, P(None, "a")))

    def gradient(op, x):
        y, pull = jax.vjp(lambda x: op(x, (3, 3), (1, 1), "SAME"), x)
        return y, pull(x)

    needed = [
        jax.jit(gradient, static_argnums=0).lower(*call).compile().memory_analysis()
        for call in ((jaxpool.avg_pool, x), (jaxpool.avg_pool, jnp.ones((1, 128, 128, 8))))
    ]
    split, alone = (memory.temp_size_in_bytes for memory in needed)
    assert split < alone + x.nbytes // 8 // 4


def test_windows_within_shards_have_no_collectives():
    mesh, spec = mesh_of((4, 2), "explicit"), P(None, "a", "b")
    x = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, spec))
    for op in (jaxpool.max_pool, jaxpool.avg_pool):

        def gradient(x, op=op):
            y, pull = jax.vjp(lambda x: op(x, (2, 2), (2, 2)), x)
            return pull(y)

        assert collectives(gradient, x) == []


def test_sharded_batch_is_not_gathered():
    """The batch axis is automatic, with or without its name in the spec."""
    mesh = mesh_of((2, 4), "auto")
    x = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, P("a", "b")))
    for spec in (P("a", "b"), P(None, "b")):

        def gradient(x, spec=spec):
            pool = jaxpool.sharded(jaxpool.max_pool, spec=spec)
            y, pull = jax.vjp(lambda x: pool(x, (3, 3), (1, 1), "SAME"), x)
            return pull(y)

        assert {name for name, _ in collectives(gradient, x)} == {"collective-permute"}


def test_global_pools_use_only_all_reduce():
    mesh, spec = mesh_of((4, 2), "explicit"), P(None, "a", "b")
    x = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, spec))
    for op in (jaxpool.global_max_pool, jaxpool.global_avg_pool):
        forward = collectives(op, x)
        assert {name for name, _ in forward} == {"all-reduce"}
        assert max(size for _, size in forward) <= 4 * 2 * 4  # an element per output

        def both(x, op=op):
            y, pull = jax.vjp(op, x)
            return y, pull(y)

        assert {name for name, _ in collectives(both, x)} == {"all-reduce"}


def test_plan_of_shows_shard_and_strips():
    mesh = jax.make_mesh((4,), ("rows",))
    x = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, P(None, "rows")))
    (row,) = jaxpool.plan_of(jaxpool.max_pool)(x, (3, 3), padding="SAME")
    assert row.inputs[0].shape == (4, 4, 16, 2)
    shard, *strips = [each for each in row.passes["cpu"].forward if each.terms == 9]
    assert [each.shape for each in shard.writes] == [row.output.shape] * 2
    assert {each.writes[0].shape[1] for each in strips} == {1}
