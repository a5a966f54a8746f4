"""Compiled programs of sharded arrays: pools send only halos between devices, and nothing for a sharded batch."""

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import (
    collectives,
    mesh_of,
    requires_eight_devices,
    with_gradient,
)

pytestmark = requires_eight_devices


def test_sharded_batch_has_operations_of_one_device():
    """With explicit batch sharding, the program has the same kinds of operations as that of one shard."""
    mesh = mesh_of((8,), "explicit")
    local = jnp.ones((2, 32, 32, 8), jnp.bfloat16)
    whole = jax.device_put(jnp.ones((16, 32, 32, 8), jnp.bfloat16), NamedSharding(mesh, P("a")))
    kinds = "maximum", "compare", "select", "add", "multiply", "gather", "conditional", "reduce"
    for op in (jaxpool.max_pool, jaxpool.avg_pool):
        run = jax.jit(with_gradient(lambda x, op=op: op(x, (3, 3), (2, 2), "SAME")))
        one, many = (run.lower(x).compile().as_text() for x in (local, whole))
        assert [f" {kind}(" in one for kind in kinds] == [f" {kind}(" in many for kind in kinds]


# Sharded rows and columns

SHAPE = (4, 16, 16, 2)
ROWS_AND_COLUMNS = P(None, "a", "b")


def sharded_ones(mesh, spec, shape=SHAPE):
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, spec))


@pytest.mark.parametrize("kind", ["auto", pytest.param("explicit", marks=pytest.mark.slow)])
def test_bytes_sent_equal_halo_size(kind):
    """3x3 SAME over 16 x 16 on 4 x 2 devices: one row above and below, then one column with corners on each side."""
    x = sharded_ones(mesh_of((4, 2), kind), ROWS_AND_COLUMNS)

    def pooled(x):
        run = jaxpool.sharded(jaxpool.max_pool, spec=ROWS_AND_COLUMNS)
        return run(x, (3, 3), (1, 1), "SAME")

    rows, columns, each = 16 // 4, 16 // 2, 4 * 2 * 4  # 4 images of 2 channels, 4 bytes per element
    halo = 2 * columns * each + 2 * (rows + 2) * each
    assert sum(size for _, size in collectives(pooled, x)) == halo
    back = collectives(jax.grad(lambda x: pooled(x).sum()), x)
    assert sum(size for name, size in back if name == "collective-permute") == 2 * halo


def test_shard_is_not_copied():
    """Temporary memory per device exceeds that of pooling one shard alone only by the strips at its borders."""
    x = sharded_ones(mesh_of((8,), "explicit"), P(None, "a"), (1, 1024, 128, 8))
    run = jax.jit(with_gradient(lambda x: jaxpool.avg_pool(x, (3, 3), (1, 1), "SAME")))
    split, alone = (
        run.lower(each).compile().memory_analysis().temp_size_in_bytes
        for each in (x, jnp.ones((1, 128, 128, 8)))
    )
    assert split < alone + x.nbytes // 8 // 4


def test_windows_within_shards_have_no_collectives():
    x = sharded_ones(mesh_of((4, 2), "explicit"), ROWS_AND_COLUMNS)
    for op in (jaxpool.max_pool, jaxpool.avg_pool):
        assert collectives(with_gradient(lambda x, op=op: op(x, (2, 2), (2, 2))), x) == []


@pytest.mark.parametrize("spec", [P("a", "b"), P(None, "b")])
def test_automatic_batch_is_not_gathered(spec):
    """The batch axis is automatic, with or without its name in the spec."""
    x = sharded_ones(mesh_of((2, 4), "auto"), P("a", "b"))
    run = jaxpool.sharded(jaxpool.max_pool, spec=spec)
    sent = collectives(with_gradient(lambda x: run(x, (3, 3), (1, 1), "SAME")), x)
    assert {name for name, _ in sent} == {"collective-permute"}


@pytest.mark.parametrize("op", [jaxpool.global_max_pool, jaxpool.global_avg_pool])
def test_global_pools_use_only_all_reduce(op):
    x = sharded_ones(mesh_of((4, 2), "explicit"), ROWS_AND_COLUMNS)
    forward = collectives(op, x)
    assert {name for name, _ in forward} == {"all-reduce"}
    assert max(size for _, size in forward) <= 4 * 2 * 4  # an element per output
    assert {name for name, _ in collectives(with_gradient(op), x)} == {"all-reduce"}


def test_max_unpool_sums_one_number():
    def unpooled(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
        return jaxpool.max_unpool(y, indices, (16, 16))

    x = sharded_ones(mesh_of((8,), "explicit"), P(None, "a"))
    sent = collectives(with_gradient(unpooled), x)
    assert {name for name, _ in sent} <= {"collective-permute", "all-reduce"}
    assert [size for name, size in sent if name == "all-reduce"] == [4]


def test_reset_is_gathered_once():
    """The mask itself, of one byte per element, rather than what every pass of the scan derives from the mask."""
    mesh = mesh_of((8,), "explicit")
    x, reset = sharded_ones(mesh, P()), sharded_ones(mesh, P(None, "a")) > 0

    def scanned(x, reset):
        return with_gradient(lambda x: jaxpool.cummax(x, 1, reset=reset))(x)

    assert collectives(scanned, x, reset) == [("all-gather", reset.nbytes)]
