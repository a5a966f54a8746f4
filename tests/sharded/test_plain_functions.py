"""Public functions without `jaxpool.sharded`, and `accelerate`, on sharded arrays: their results and collectives."""

import functools

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import flax, torch
from tests.sharded.cases import (
    KINDS,
    assert_same,
    collectives,
    compare,
    mesh_of,
    numbers,
    on_mesh,
    pool,
    requires_eight_devices,
    special_numbers,
    with_gradient,
)

pytestmark = requires_eight_devices

BATCH_CHANNEL_SPEC = P("a", None, None, "b")
BATCH_CHANNEL_SHAPE = (8, 12, 12, 8)
BATCH_CHANNEL_CASES = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (13, 3), (1, 1), "SAME"),
    pool("min_pool", (2, 2), (2, 2), ties="split"),
    pool("avg_pool", (3, 3), (2, 2), "SAME"),
    pool("max_pool_with_argmax", (3, 3), (2, 2), "SAME"),
    pool("adaptive_max_pool", (6, 4)),
    pool("adaptive_avg_pool", (5, 4)),
    pool("global_avg_pool"),
]
# Their programs branch on a predicate over all elements. Under automatic sharding that takes one bool per device.
BRANCHING = [
    pool("global_max_pool"),
    pool("adaptive_max_pool", (5, 4)),
]
# One scatter with the batch as an axis of its own
UNPOOLED = pool("max_unpool", (12, 12), (2, 2), (2, 2))
# Value and derivative branch on the range of the summands, the derivative also on that of the cotangents.
IN_RANGE = [pool("lp_pool", 2, (3, 3), (2, 2), "SAME")]


def values_and_gradients(cases):
    """Return one function with values and gradients of all cases."""
    return lambda x: [with_gradient(case.plain)(x) for case in cases]


def shard_batch_and_channels(cases, kind, mesh, spec):
    """Return `values_and_gradients(cases)` for an array sharded along batch and channels."""
    if kind != "manual":
        return values_and_gradients(cases)
    return jax.shard_map(
        lambda x: [first for first, _, _ in values_and_gradients(cases)(x)],
        mesh=mesh,
        in_specs=spec,
        out_specs=[P("a", "b") if case.whole else spec for case in cases],
    )


@pytest.mark.parametrize(
    "kind", ["auto", "manual", pytest.param("explicit", marks=pytest.mark.slow)]
)
def test_batch_channel_sharding_has_no_collectives(kind):
    """Forward and backward pass use no collective."""
    mesh = mesh_of((4, 2), kind)
    x = jax.device_put(
        jnp.asarray(numbers(BATCH_CHANNEL_SHAPE)), NamedSharding(mesh, BATCH_CHANNEL_SPEC)
    )
    cases = BATCH_CHANNEL_CASES + ([*BRANCHING, UNPOOLED, *IN_RANGE] if kind != "auto" else [])
    assert collectives(shard_batch_and_channels(cases, kind, mesh, BATCH_CHANNEL_SPEC), x) == []


def test_lp_pool_all_reduces_only_range_status():
    mesh = mesh_of((4, 2), "auto")
    x = jax.device_put(
        jnp.asarray(numbers(BATCH_CHANNEL_SHAPE)), NamedSharding(mesh, BATCH_CHANNEL_SPEC)
    )
    assert set(collectives(values_and_gradients(IN_RANGE), x)) == {("all-reduce", 1)}


@pytest.mark.parametrize("case", BRANCHING, ids=str)
def test_auto_batch_branch_all_reduces_one_bool(case):
    x = jax.device_put(jnp.ones(BATCH_CHANNEL_SHAPE), NamedSharding(mesh_of((8,), "auto"), P("a")))
    assert collectives(values_and_gradients([case]), x) == [("all-reduce", 1)]


def test_auto_batch_unpool_has_no_collectives():
    x = jax.device_put(jnp.ones(BATCH_CHANNEL_SHAPE), NamedSharding(mesh_of((8,), "auto"), P("a")))
    assert collectives(values_and_gradients([UNPOOLED]), x) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_batch_channel_sharding_equals_one_device(kind):
    mesh = mesh_of((4, 2), kind)
    x = jnp.asarray(special_numbers(BATCH_CHANNEL_SHAPE))
    cases = [*BATCH_CHANNEL_CASES[:3], *BATCH_CHANNEL_CASES[4:5], *BRANCHING, UNPOOLED]
    want = jax.jit(values_and_gradients(cases))(x)
    got = jax.jit(shard_batch_and_channels(cases, kind, mesh, BATCH_CHANNEL_SPEC))(
        jax.device_put(x, NamedSharding(mesh, BATCH_CHANNEL_SPEC))
    )
    for case, a, b in zip(cases, got, want, strict=True):
        compare(case, a, b[0] if kind == "manual" else b)


def test_batch_sharding_has_operations_of_one_device():
    """With explicit batch sharding, the program has the same kinds of operations as that of one shard."""
    mesh = mesh_of((8,), "explicit")
    local = jnp.ones((2, 32, 32, 8), jnp.bfloat16)
    whole = jax.device_put(jnp.ones((16, 32, 32, 8), jnp.bfloat16), NamedSharding(mesh, P("a")))
    for op in (jaxpool.max_pool, jaxpool.avg_pool):

        def pooled(x, op=op):
            return with_gradient(lambda x: op(x, (3, 3), (2, 2), "SAME"))(x)

        one, many = (jax.jit(pooled).lower(x).compile() for x in (local, whole))
        operations = [sorted(_operations(compiled.as_text())) for compiled in (one, many)]
        assert operations[0] == operations[1]


def _operations(text):
    """List, for each kind of arithmetic operation, whether the program has one."""
    kinds = "maximum", "compare", "select", "add", "multiply", "gather", "conditional", "reduce"
    return [f"{kind} {text.count(f' {kind}(') > 0}" for kind in kinds]


# Pooled axes under automatic sharding: correct results at any communication cost

AUTO_AXIS_CASES = [
    pool("max_pool", (3, 3), (1, 1), "SAME"),
    pool("max_pool", (2, 2), (1, 1), ((0, 1), (1, 0)), ties="last"),
    pool("min_pool", (5, 5), (2, 2), "SAME"),
    pool("avg_pool", (3, 3), (1, 1), "SAME"),
    pool("max_unpool", (16, 16), (3, 3), (2, 2), "SAME"),
]


@pytest.mark.parametrize(
    "case",
    [
        AUTO_AXIS_CASES[0],
        *[pytest.param(case, marks=pytest.mark.slow) for case in AUTO_AXIS_CASES[1:]],
    ],
    ids=str,
)
def test_auto_axis_gradient(case):
    """The gradient of `lax.reduce_window` is wrong there, on rows next to shard 0."""
    mesh = mesh_of((8,), "auto")
    x = jnp.asarray(numbers())
    want = with_gradient(case.plain)(x)
    got = jax.jit(with_gradient(case.plain))(jax.device_put(x, NamedSharding(mesh, P(None, "a"))))
    compare(case, got, want)


# Pooled axes under explicit sharding


@pytest.mark.slow
def test_explicit_sharding_sends_only_halos():
    cases = [
        pool("max_pool", (3, 3), (1, 1), "SAME"),
        pool("avg_pool", (3, 3), (2, 2), "SAME"),
        pool("max_pool", (2, 2), (2, 2)),
    ]
    run, put = on_mesh(cases, "rows over 4, columns over 2", "explicit")
    sent = collectives(run, [put(jnp.ones((2, 16, 16, 2))) for _ in cases])
    assert {name for name, _ in sent} == {"collective-permute"}


def test_max_unpool_collectives():
    run, put = on_mesh([pool("max_unpool", (16, 16), (2, 2), (2, 2))], "rows over 8", "explicit")
    sent = collectives(run, [put(jnp.ones((2, 16, 16, 2)))])
    assert {name for name, _ in sent} <= {"collective-permute", "all-reduce"}
    assert [size for name, size in sent if name == "all-reduce"] == [4]


def test_accelerate_along_sharded_axes():
    """The gradient of lax's own reductions raises under this sharding."""
    mesh = mesh_of((4, 2), "explicit")
    x = jnp.asarray(numbers())
    given = jax.device_put(x, NamedSharding(mesh, P(None, "a", "b")))
    geometry = (1, 3, 3, 1), (1, 1, 1, 1), "SAME"

    def loss(x):
        y = lax.reduce_window(x, -jnp.inf, lax.max, *geometry)
        y = y * 2 + lax.reduce_window(x, 0.0, lax.add, *geometry)
        return (y * lax.broadcasted_iota(np.float32, y.shape, 1)).sum()

    found = []
    fast = jax.jit(jax.grad(jaxpool.accelerate(loss, report=found.append)))
    np.testing.assert_allclose(fast(given), jax.grad(loss)(x), rtol=1e-6)
    assert [met.reason for met in found] == [None, None]
    assert {name for name, _ in collectives(fast, given)} == {"collective-permute"}
    with pytest.raises(Exception, match="not implemented"):
        jax.jit(jax.grad(loss))(given)


def test_accelerate_any_init_value():
    mesh = mesh_of((8,), "explicit")
    x = jnp.asarray(numbers())

    def loss(start, x):
        y = lax.reduce_window(x, start, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        z = lax.reduce_window(x, start, lax.add, (1, 2, 1, 1), (1, 2, 1, 1), "VALID")
        return (y**2).sum() + z.sum()

    fast = jax.jit(jax.grad(jaxpool.accelerate(loss), (0, 1)))
    want = fast(jnp.float32(0.5), x)
    with jax.set_mesh(mesh):
        got = fast(jnp.float32(0.5), jax.device_put(x, NamedSharding(mesh, P(None, "a"))))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_accelerate_skips_indivisible_output():
    mesh = mesh_of((8,), "explicit")
    given = jax.device_put(jnp.ones((16, 4)), NamedSharding(mesh, P("a")))
    found = []

    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (1, 1), "VALID")

    with pytest.raises(Exception, match="not divisible"):
        jaxpool.accelerate(pooled, report=found.append)(given)
    assert [met.reason for met in found] == [
        "x is not of a size along axis 0 that its 8 shards divide, as they must the 14 of the output"
    ]


def test_error_names_divisible_sizes():
    given = jax.device_put(
        jnp.ones((2, 16, 4, 2)), NamedSharding(mesh_of((8,), "explicit"), P(None, "a"))
    )
    for call in (
        functools.partial(jaxpool.max_pool, given, (3, 3)),
        functools.partial(jaxpool.avg_pool, given, (3, 3)),
        functools.partial(jaxpool.lp_pool, given, 2, (3, 3)),
        functools.partial(jaxpool.max_pool_with_argmax, given, (3, 3)),
    ):
        with pytest.raises(ValueError, match="that its 8 shards divide, as they must the 14"):
            call()
    with pytest.raises(ValueError, match=r"or 1 along every axis.* Use 8 or 16 there"):
        jaxpool.adaptive_max_pool(given, (9, 2))


# Names of other libraries, and pools without communication


def test_compat_functions_on_sharded_arrays():
    """PyTorch's indices count in the whole array, and NaN is selected as in PyTorch."""
    mesh = mesh_of((8,), "explicit")
    x = jnp.asarray(special_numbers())
    given = jax.device_put(x, NamedSharding(mesh, P(None, "a")))
    calls = [
        lambda x: flax.avg_pool(jnp.nan_to_num(x, neginf=0), (3, 3), (2, 2), "SAME"),
        lambda x: torch.max_pool2d(jnp.moveaxis(x, 3, 1), 3, 1, 1, return_indices=True),
    ]

    def every(x):
        return [with_gradient(call)(x) for call in calls]

    for a, b in zip(*map(jax.tree.leaves, map(jax.jit(every), (given, x))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"torch\.max_pool2d.*Use 32 there"):
        torch.max_pool2d(jnp.moveaxis(given, 3, 1), 4)


@pytest.mark.parametrize(
    "spec", [P("a", None, "b"), pytest.param(P(None, "a", "b"), marks=pytest.mark.slow)]
)
def test_vmap_over_sharded_or_replicated_axis(spec):
    mesh = mesh_of((2, 4), "explicit")
    x = jnp.asarray(numbers((4, 2, 16, 2)))
    case = pool("max_pool", (3,), (1,), "SAME")
    given = jax.device_put(x, NamedSharding(mesh, spec))
    got = jax.jit(jax.vmap(with_gradient(case.plain)))(given)
    compare(case, got, jax.jit(jax.vmap(with_gradient(case.plain)))(x))


def test_shard_map_over_batch_only():
    """Inside the shard_map, the type still carries the sharding of rows."""
    mesh = jax.make_mesh((2, 4), ("a", "b"), (AxisType.Explicit,) * 2)
    x = jnp.asarray(numbers())
    case = pool("max_pool", (3, 3), (1, 1), "SAME")
    mapped = jax.shard_map(
        case.plain, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}
    )
    given = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
    np.testing.assert_array_equal(jax.jit(mapped)(given), case.plain(x))


def test_caches_separate_sharded_calls():
    """Caches do not mix a call on one device with the same call on eight."""
    x = special_numbers()
    assert_same([pool("max_pool", (3, 3), (1, 1), "SAME")], "rows over 4 x 2", "explicit", [x])
