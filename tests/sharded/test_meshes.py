"""Meshes from a context, an argument or an array, mixed meshes, and functions of several pools or of lax on a mesh."""

import functools
import re

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import flax, torch
from tests.sharded.cases import (
    assert_close,
    assert_same_on_mesh,
    collectives,
    mesh_of,
    numbers,
    requires_eight_devices,
    special_numbers,
    with_gradient,
)

pytestmark = requires_eight_devices

ROWS = P(None, "a")
X = np.random.default_rng(0).integers(-9, 9, (2, 16, 8, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "told", ["context", "argument", pytest.param("array", marks=pytest.mark.slow)]
)
def test_mesh_from_context_argument_or_array(told):
    """Values with and without `jit`, and gradients with `jit`."""
    mesh = mesh_of((4,), "auto")
    pool = jaxpool.sharded(jaxpool.max_pool, spec=ROWS, mesh=mesh if told == "argument" else None)
    x = jax.device_put(X, NamedSharding(mesh, ROWS)) if told == "array" else jnp.asarray(X)

    def both(pool, x):
        run = functools.partial(pool, window_shape=(3, 3), padding="SAME")
        return run(x), jax.grad(lambda x: (run(x) ** 2).sum())(x)

    want = both(jaxpool.max_pool, X)
    with jax.set_mesh(mesh if told == "context" else None):
        assert_close(pool(x, (3, 3), padding="SAME"), want[0])
        assert_close(jax.jit(functools.partial(both, pool))(x), want)


def test_sharded_composed_function():
    def network(x):
        x = jaxpool.max_pool(x, (3, 3), (2, 2), "SAME")
        return jaxpool.global_avg_pool(jaxpool.maximum(x, 0.5))

    run, mesh = jaxpool.sharded(network, spec=ROWS), mesh_of((4,), "auto")
    x = jax.device_put(jnp.asarray(X), NamedSharding(mesh, ROWS))
    mapped = jax.shard_map(run, mesh=mesh, in_specs=ROWS, out_specs=P())
    for each in (run, mapped):
        np.testing.assert_allclose(jax.jit(each)(x), network(jnp.asarray(X)), rtol=1e-6)


def test_other_rank_in_shard_map_raises():
    """The spec does not determine the sharding of an array of another rank."""
    mapped = jaxpool.sharded(jax.vmap(lambda x: jaxpool.max_pool(x, (2, 2))), spec=ROWS)
    run = jax.shard_map(mapped, mesh=mesh_of((4,), "auto"), in_specs=ROWS, out_specs=ROWS)
    with pytest.raises(ValueError, match=r"jaxpool.max_pool: `x` must be of 4 axes, as jaxpool.sh"):
        run(X)


@pytest.mark.parametrize("shape", [(0, 8, 2), (2, 8, 0)])
def test_max_unpool_does_not_read_empty_sharded_indices(shape):
    """jax 0.10 to 0.12 raise where they read an array without elements that a program has sharded."""
    mesh = mesh_of((4,), "auto")
    place = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, ROWS))
    y, indices = place(np.zeros(shape, np.float32)), place(np.zeros(shape, np.int32))
    for unpool in (jaxpool.max_unpool, jaxpool.sharded(jaxpool.max_unpool, mesh=mesh, spec=ROWS)):
        assert unpool(y, indices, (16,), axes=(1,)).shape == (shape[0], 16, shape[2])


@pytest.mark.parametrize("check_vma", [True, False])
def test_max_unpool_into_adjacent_shard(check_vma):
    """One index is in the next shard, so all devices exchange elements with their neighbours."""
    y, indices = np.arange(8.0)[None, :, None], np.arange(0, 16, 2)[None, :, None]
    indices[0, 3] = 9  # from the second of four shards to the third
    unpool = jaxpool.sharded(functools.partial(jaxpool.max_unpool, spatial_shape=(16,)), spec=ROWS)
    specs = {"in_specs": (ROWS, ROWS), "out_specs": ROWS, "check_vma": check_vma}
    mapped = jax.jit(jax.shard_map(unpool, mesh=mesh_of((4,), "auto"), **specs))
    np.testing.assert_array_equal(mapped(y, indices), jaxpool.max_unpool(y, indices, (16,)))


@pytest.mark.parametrize("shape", [(2, 16), (2, 2, 16, 6)])
def test_torch_max_unpool_in_shard_map(shape):
    """The default `output_size` is that of the global array."""
    spec, num_dims = (P(None, "a"), 1) if len(shape) == 2 else (P(None, None, "a"), 2)
    pool, unpool = (getattr(torch, f"max_{name}pool{num_dims}d") for name in ("", "un"))
    y, indices = pool(special_numbers(shape), 2, return_indices=True)
    run = jaxpool.sharded(functools.partial(unpool, kernel_size=2), spec=spec)
    specs = {"in_specs": (spec, spec), "out_specs": spec}
    mapped = jax.jit(jax.shard_map(run, mesh=mesh_of((4,), "auto"), **specs))
    np.testing.assert_array_equal(mapped(y, indices), unpool(y, indices, 2))


def test_mesh_of_other_devices_raises():
    every, one = (Mesh(np.array(jax.devices()[:n]), ("a",)) for n in (2, 1))
    x = jax.device_put(jnp.ones((1, 8, 4, 1)), NamedSharding(every, ROWS))
    with pytest.raises(ValueError, match="`mesh` must be of the 2 devices of x; got mesh="):
        jaxpool.sharded(jaxpool.max_pool, mesh=one, spec=ROWS)(x, (2, 2), (2, 2))
    y = jaxpool.sharded(jaxpool.max_pool, mesh=every, spec=ROWS)(x, (2, 2), (2, 2))
    np.testing.assert_array_equal(y, np.ones((1, 4, 2, 1)))


def gradient(x):
    return jax.grad(lambda x: jaxpool.k_max_pool(x, 2).sum())(x)


@pytest.mark.parametrize("kind", ["mixed", "manual"])
def test_multi_platform_lowering_on_mixed_mesh(kind):
    """A gradient stores results of several types by a conditional, because JAX inlines the calls of such programs."""
    mesh = mesh_of((2, 4), kind)
    x = jax.device_put(jnp.ones((8, 12, 3)), NamedSharding(mesh, P("a")))
    by_rows = {"in_specs": P("a"), "out_specs": P("a"), "axis_names": {"a"}}
    function = gradient if kind == "mixed" else jax.shard_map(gradient, mesh=mesh, **by_rows)
    with jax.set_mesh(mesh):
        lowered = jax.jit(function).trace(x).lower(lowering_platforms=("cpu", "cuda"))
    # The predicate of a conditional. The choice of the platform also has the operation `case`.
    assert re.search(r"optimization_barrier .* : tensor<i1>", lowered.as_text())


def test_compat_functions_on_sharded_arrays():
    """PyTorch's indices count in the whole array, and NaN is selected as in PyTorch."""
    x = special_numbers()

    def torch_pool(x, *args, **options):
        return torch.max_pool2d(jnp.moveaxis(x, 3, 1), *args, **options)

    for pool in (
        lambda x: flax.avg_pool(jnp.nan_to_num(x, neginf=0), (3, 3), (2, 2), "SAME"),
        lambda x: torch_pool(x, 3, 1, 1, return_indices=True),
    ):
        assert_same_on_mesh(with_gradient(pool), [x], [ROWS], tolerance=1e-6)
    given = jax.device_put(x, NamedSharding(mesh_of((8,), "explicit"), ROWS))
    with pytest.raises(ValueError, match=r"torch\.max_pool2d.*Use 32 there"):
        torch_pool(given, 4)


@pytest.mark.parametrize("pool", [flax.avg_pool, flax.min_pool])
def test_compat_functions_on_shards_of_a_dtype_without_zero(pool):
    """Halos and their cotangents hold zeros, which are NaN in float8_e8m0fnu."""

    def total(x):
        y = pool(x, (3, 3), (1, 1), "SAME")
        return y.astype(np.float32).sum(), y

    x = np.exp2(numbers()).astype(jnp.float8_e8m0fnu)
    assert_same_on_mesh(jax.value_and_grad(total, has_aux=True), [x], [ROWS])


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_torch_indices_along_sharded_axis(name, keepdim):
    run = with_gradient(lambda x: getattr(torch, name)(x, 1, keepdim))
    assert_same_on_mesh(run, [special_numbers((4, 16))], [P(None, "a")])


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("spec", [P("a"), P(None, "a")], ids=str)
def test_torch_median_of_sharded_array(name, spec):
    run = with_gradient(getattr(torch, name))
    assert_same_on_mesh(run, [special_numbers((4, 16))], [spec], (4,))


@pytest.mark.parametrize("kind", ["explicit", "manual"])
@pytest.mark.parametrize("spec", [P("a"), P(None, "a")], ids=str)
def test_torch_extrema_of_sharded_array(kind, spec):
    def extrema(x):
        return torch.amax(x, 1), *torch.aminmax(x, dim=1), torch.max(x)

    def sharded(x):
        run = jaxpool.sharded(extrema, spec=spec)
        rows = P(spec[0])
        return jax.shard_map(run, in_specs=spec, out_specs=(rows, rows, rows, P()))(x)

    x = special_numbers((8, 16))
    want = with_gradient(extrema)(x)
    with jax.set_mesh(mesh_of((8,), kind)):
        run = jax.jit(with_gradient(sharded if kind == "manual" else extrema))
        assert_close(run(jax.device_put(x, spec)), want, 1e-6)


@pytest.mark.parametrize("kind", ["auto", "explicit", "manual"])
@pytest.mark.parametrize(
    "pool",
    [
        functools.partial(flax.max_pool, window_shape=(2, 2)),
        functools.partial(flax.min_pool, window_shape=(2, 2)),
        functools.partial(flax.avg_pool, window_shape=(2, 2)),
        lambda x: flax.pool(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"),
    ],
)
def test_drop_in_of_other_library(pool, kind):
    """Along a sharded axis, the original raises lax's error, and pools shards without halos in a `shard_map`."""
    x = numbers((4, 16, 16, 2))

    def run(spec):
        function = jaxpool.sharded(pool, spec=spec)
        if kind == "manual":
            function = jax.shard_map(function, in_specs=spec, out_specs=spec)
        return jax.jit(function)(jax.device_put(x, spec))

    with jax.set_mesh(mesh_of((4,), kind)):
        assert_close(run(P("a")), pool(x))
        with pytest.raises(ValueError, match=r"^jaxpool\.sharded: `x` must be (of a size|whole)"):
            run(ROWS)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: flax.max_pool(x, (5, 2)),
        lambda x: flax.avg_pool(x, (5, 1)),
        jaxpool.accelerate(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 5, 1, 1))),
        lambda x: flax.max_pool(x, (4, 1), padding=((3, 0), (0, 0))),
        lambda x: flax.pool(x, 1.0, lax.mul, (2, 2), (2, 2), "VALID"),
        lambda x: flax.pool(x, 1.0, lax.add, (3, 3), (1, 1), "SAME"),
    ],
)
def test_reduction_left_to_lax_in_shard_map(pool):
    """Along a sharded axis it raises; along other axes each shard is pooled on its own."""
    x, mesh = numbers((1, 16, 16, 4)), mesh_of((4,), "auto")

    def run(spec):
        function = jaxpool.sharded(pool, spec=spec)
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))(x)

    assert_close(run(P(None, None, None, "a")), pool(x), 1e-6)
    with pytest.raises(
        ValueError, match=r"^jaxpool\.sharded: `x` must be whole along axis 1, not "
    ):
        run(ROWS)


@pytest.mark.parametrize("sizes", [(4, 2), (3, 5), (1, 1)])
def test_torch_adaptive_pool_of_sharded_array(sizes):
    """Shards divide some of the output sizes, or none."""
    for pool in (
        lambda x: torch.adaptive_max_pool2d(x, sizes, return_indices=True),
        lambda x: torch.adaptive_max_pool2d(x, sizes),
        lambda x: torch.adaptive_avg_pool2d(jnp.nan_to_num(x, neginf=0), sizes),
    ):
        x = special_numbers((2, 8, 8))
        assert_same_on_mesh(with_gradient(pool), [x], [P(None, "a", "b")], (4, 2), 1e-5)


# Operands with different shardings


@pytest.mark.parametrize("op", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("ties", ["split", "first"])
def test_broadcast_of_sharded_axis_of_size_one(op, ties):
    """An axis of size 1, sharded over one device, has a gradient. The gradient of `jnp.broadcast_to` raises."""
    xs, spec = (np.arange(6.0).reshape(3, 2), np.array([[2.0], [3.0], [9.0]])), P(None, "a")

    def gradients(*xs):
        function = functools.partial(getattr(jaxpool, op), ties=ties)
        return jax.grad(lambda *xs: (function(*xs) ** 2).sum(), (0, 1))(*xs)

    for dx in assert_same_on_mesh(gradients, xs, [spec, spec], (1, 1)):
        assert dx.sharding.is_equivalent_to(NamedSharding(mesh_of((1, 1), "explicit"), spec), 2)


@pytest.mark.parametrize(("op", "dtype"), [("maximum", "float32"), ("fmax", "bfloat16")])
@pytest.mark.parametrize(
    "specs",
    [
        (P("a"), P(), P(None, None, "b")),
        (
            P("a"),
            P("a"),
            P(None, None, "a"),
        ),  # a mesh axis is used once; the first operand has priority
        (P("a"), P(), P("b")),
        (P("a"), P(), P(None, None, ("b", "a"))),
    ],
    ids=str,
)
def test_operands_with_different_shardings(op, dtype, specs):
    """Scalars, replicated arrays, and arrays sharded along another axis are valid operands, as for jax's functions."""
    rng, function = np.random.default_rng(0), getattr(jaxpool, op)
    x, row = (jnp.asarray(rng.integers(-3, 4, shape), dtype) for shape in ((8, 2, 4), (2, 4)))

    def both(x, row, other):
        def loss(x, row, other):
            y = function(function(function(x, row), 0.5), other)
            return (y * y).astype(np.float32).sum(), y

        return jax.grad(loss, (0, 1, 2), has_aux=True)(x, row, other)

    _, y = assert_same_on_mesh(both, [x, row, -x], specs, (2, 2))
    together = P("a", None, "b" if "b" in specs[2][1:] else None)
    assert y.sharding.spec == together


@pytest.mark.parametrize("spec", [P("a"), P()], ids=str)
@pytest.mark.parametrize("of_mask", [P(None, "b"), P()], ids=str)
def test_masks_with_different_shardings(spec, of_mask):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    mask = np.arange(24).reshape(4, 6) % 3 > 0
    gradient = jax.grad(lambda x, mask: jaxpool.max(x, axis=1, where=mask, initial=0.0).sum())
    assert_same_on_mesh(gradient, [x, mask], [spec, of_mask], (2, 2))


# `accelerate`


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
    def loss(start, x):
        y = lax.reduce_window(x, start, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        z = lax.reduce_window(x, start, lax.add, (1, 2, 1, 1), (1, 2, 1, 1), "VALID")
        return (y**2).sum() + z.sum()

    gradients = jax.grad(jaxpool.accelerate(loss), (0, 1))
    assert_same_on_mesh(gradients, [np.float32(0.5), numbers()], [P(), ROWS], tolerance=1e-5)


def test_accelerate_skips_indivisible_output():
    given = jax.device_put(jnp.ones((16, 4)), NamedSharding(mesh_of((8,), "explicit"), P("a")))
    found = []

    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (3, 1), (1, 1), "VALID")

    with pytest.raises(Exception, match="not divisible"):
        jaxpool.accelerate(pooled, report=found.append)(given)
    assert [met.reason for met in found] == [
        "x is not of a size along axis 0 that its 8 shards divide, as they must the 14 of the output"
    ]
