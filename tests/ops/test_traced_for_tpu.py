"""Max and min pools lowered for TPU: the residual is x, and select_and_scatter computes the cotangent.

No TPU is needed: the reference interpreter of StableHLO evaluates the lowered program, including padding.
"""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from jaxlib.mlir.dialects import stablehlo

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._ops.apply import apply
from jaxpool._ops.op import is_partitioned, platform_override, tracing_platform
from jaxpool._ops.select_pool import InputResidualPool, SelectPool, pool_op
from jaxpool._plan.max_pool import plan_max, plan_scatter
from jaxpool._plan.problem import Problem
from jaxpool._plan.tuning import TPU, TUNING

VALUES = np.array([-np.inf, np.nan, -0.0, 0.0, 1.0, np.inf])
VALUE_PROBABILITIES = np.array([0.35, 0.1, 0.15, 0.15, 0.2, 0.05])
LARGEST_PROBABILITY = (
    0.1  # probability that the largest finite number of the dtype replaces a value
)
DEVICES = pytest.mark.parametrize("many", [False, True], ids=["one device", "many devices"])


def draw_pool(seed):
    """Draw a window, a kind, an order of ties, and a function that draws x with many ties and integer cotangents."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 3)), *map(int, rng.integers(1, 8, 2)), int(rng.integers(1, 3)))
    axes = ((1, 2), (1, 2), (2, 1))[rng.integers(3)]
    sizes = tuple(int(rng.integers(1, 1 + min(4, shape[axis]))) for axis in axes)
    strides = tuple(map(int, rng.integers(1, 5, 2)))
    padding = ("VALID", "SAME", "SAME_LOWER", tuple((w // 2, w // 2) for w in sizes))[
        rng.integers(4)
    ]
    ceil_mode = bool(rng.integers(2))
    window = make_window(
        shape, sizes, strides, padding, ceil_mode=ceil_mode, axes=axes, empty_windows="allow"
    )
    dtype = (np.float32, np.float32, np.float16, jnp.bfloat16)[rng.integers(4)]
    kind, ties = ("max", "min")[rng.integers(2)], ("first", "last")[rng.integers(2)]

    def numbers():
        x = rng.choice(VALUES, shape, p=VALUE_PROBABILITIES)
        x = np.where(rng.random(shape) < LARGEST_PROBABILITY, float(jnp.finfo(dtype).max), x)
        x *= 1 if kind == "max" else -1
        return x.astype(dtype), rng.integers(-4, 5, window.pooled_shape(shape)).astype(dtype)

    return window, kind, ties, numbers


def interpreter(function, *arrays):
    """Return an evaluator of the program for TPU by StableHLO's interpreter, and its text.

    Arguments and results of 16-bit floats are converted to float32.
    """

    def wide(*given):
        y = function(*[each.astype(x.dtype) for each, x in zip(given, arrays, strict=True)])
        return y.astype(jnp.float32)

    given = [np.float32(x) for x in arrays]
    lowered = jax.jit(wide).trace(*given).lower(lowering_platforms=("tpu",))
    module = lowered.compiler_ir()

    def run(*arrays):
        with module.context:
            given = [ir.DenseElementsAttr.get(np.float32(x)) for x in arrays]
            return np.array(stablehlo.eval_module(module, given)[0])

    return run, lowered.as_text()


def check(seed, times, many):
    """Check a random pool, with thresholds that depend on the seed, for one TPU or `many`.

    All axes are reduced at once or one after another, in the order of the array or with pooled axes last.
    """
    few = dataclasses.replace(
        TPU,
        small_scatter_taps=0 if seed % 2 else math.inf,
        scatter_taps_per_element=0,
        max_disjoint_scatter_taps=0 if seed % 2 else math.inf,
        min_compaction=math.inf if seed % 3 else 0,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TUNING, "tpu", few)
        plan_scatter.cache_clear()
        try:
            check_with(seed, times, many)
        finally:
            plan_scatter.cache_clear()


def check_with(seed, times, many):
    window, kind, ties, numbers = draw_pool(seed)
    kept, tap = InputResidualPool(window, kind, ties), SelectPool(window, kind, ties)

    @jax.jit
    def by_tap(x, dy):
        y, index = tap.primal("portable", x)
        return y, tap.transpose("portable", index, dy)[0], tap.linear("portable", index, x)

    @jax.jit
    def on_cpu(x, dy):
        return kept.value("cpu", x), *kept.transpose("cpu", (x,), dy), kept.linear("cpu", (x,), x)

    with platform_override("tpu"), is_partitioned(many):
        op = pool_op(window, kind, ties)
        gradient = lambda x, dy: jax.vjp(functools.partial(apply, op, "vjp"), x)[1](dy)[0]  # noqa: E731
        on_tpu, text = interpreter(gradient, *numbers())
    if isinstance(op, InputResidualPool):
        used = [dim.axis for dim in window.dims if not dim.is_identity]
        x = numbers()[0]
        problem = Problem(window, x.shape, x.dtype.name, "tpu", is_partitioned=many)
        plan = plan_scatter(problem)
        by_axis = seed % 2 or used != sorted(used) or plan.permutation
        instructions = len(used) if by_axis else min(1, len(used))
        branches = 2 if plan.comparison == "branch" else 1
        assert text.count("stablehlo.select_and_scatter") == branches * instructions
    for _ in range(times):
        x, dy = numbers()
        y, dx, tangent = by_tap(x, dy)
        assert_same(on_tpu(x, dy), dx)
        for one, other in zip(on_cpu(x, dy), (y, dx, tangent), strict=True):
            assert_same(one, other)


def assert_same(one, other):
    np.testing.assert_array_equal(np.float32(one), np.float32(other))


@DEVICES
@pytest.mark.parametrize("seed", range(12))
def test_cotangents_equal_other_platforms(seed, many):
    check(seed, 3, many)


@pytest.mark.slow
@DEVICES
@pytest.mark.parametrize("part", range(10))
def test_10_000_cotangents_equal_other_platforms(part, many):
    for seed in range(100 * part, 100 * (part + 1)):
        check(1000 + seed, 10, many)


@pytest.mark.parametrize("holds_nan", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_single_comparison_on_many_devices(kind, ties, holds_nan):
    """XLA partitions select_and_scatter only with a single comparison. x has infinities and the largest numbers."""
    rng = np.random.default_rng(6)
    most = np.finfo(np.float32).max
    values = [np.inf, most, np.nextafter(most, np.float32(0)), 0.0, -0.0, -most, -np.inf]
    x = rng.choice(values, (2, 9, 9, 8)).astype(np.float32)
    x[0, 4, 4] = np.nan if holds_nan else 1
    dy = rng.integers(-4, 5, (2, 8, 8, 8)).astype(np.float32)

    def gradient(x, dy):
        call = getattr(jaxpool, f"{kind}_pool")
        return jax.vjp(lambda x: call(x, (2, 2), ties=ties), x)[1](dy)[0]

    here = jax.jit(gradient)(x, dy)
    with platform_override("tpu"), is_partitioned(True):
        there, text = interpreter(gradient, x, dy)
    _, *instructions = text.split('"stablehlo.select_and_scatter"')
    assert [
        each.partition("stablehlo.return")[0].count("stablehlo.compare") for each in instructions
    ] == [1, 1]
    assert_same(there(x, dy), here)


def test_vmap_on_many_devices_has_a_branch():
    x, dy = X[:, None], np.ones((2, 1, 3, 3, 2), np.float32)
    x = np.where(x > 1, np.float32(np.nan), x)

    def gradient(x, dy):
        return jax.vjp(pool, x)[1](dy)[0]

    here = jax.jit(jax.vmap(gradient))(x, dy)
    with platform_override("tpu"), is_partitioned(True):
        there, text = interpreter(jax.vmap(gradient), x, dy)
    assert text.count('"stablehlo.case"') == 1
    assert_same(there(x, dy), here)


def test_branches_with_and_without_shard_map():
    """This holds for any sharding of the batch. Inside a `shard_map`, each device has a program of its own."""
    mesh = AbstractMesh((4,), ("batch",), axis_types=(AxisType.Auto,))
    like = jax.ShapeDtypeStruct((4, 6, 6, 2), np.float32)
    gradient = jax.grad(lambda x: jnp.sum(pool(x)))
    spec = PartitionSpec("batch")
    alone = jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec)
    branches = []
    for run in (gradient, alone):
        with platform_override("tpu"), jax.sharding.use_abstract_mesh(mesh):
            placed = jax.jit(run, in_shardings=NamedSharding(mesh, spec))
            lowered = placed.trace(like).lower(lowering_platforms=("tpu",))
        branches.append(lowered.as_text().count('"stablehlo.case"'))
    assert branches == [1, 0]


def scatter_groups(shape, sizes, strides=(1, 1), dtype="float32", axes=(1, 2)):
    """Return the axes of each select_and_scatter."""
    problem = Problem(make_window(shape, sizes, strides, axes=axes), shape, dtype, "tpu")
    return [[dim.axis for dim in group] for group in plan_scatter(problem).groups]


def test_value_groups_up_to_25_taps():
    def reduced(sizes, axes=(1, 2)):
        shape = (8, 64, 64, 64)
        problem = Problem(make_window(shape, sizes, axes=axes), shape, "float32", "tpu")
        return [[dim.axis for dim in group] for group in plan_max(problem).value_groups]

    assert reduced((5, 5)) == [[1, 2]]
    assert reduced((5, 6)) == [[1], [2]]
    assert reduced((3, 3), (2, 1)) == [[2, 1]]
    assert reduced((1, 1)) == []


def test_scatter_groups_of_large_windows():
    small, large, few = (8, 64, 64, 64), (64, 112, 112, 64), (4, 64, 64, 64)
    assert scatter_groups(small, (3, 3)) == [[1], [2]]
    assert scatter_groups(few, (3, 3), (2, 2)) == [[1], [2]]
    assert scatter_groups(large, (5, 5)) == [[1], [2]]
    assert scatter_groups(few, (8, 8), (8, 8)) == [[1], [2]]
    for at_once in [(few, (2, 2)), (few, (4, 4), (3, 3)), (large, (4, 4)), (few, (7, 7), (7, 7))]:
        assert scatter_groups(*at_once) == [[1, 2]]


def test_scatter_groups_of_full_sublanes():
    full = (8, 64, 64, 64)
    for sizes, strides in [((3, 3), (2, 2)), ((4, 4), (2, 2)), ((5, 5), (3, 3))]:
        assert scatter_groups(full, sizes, strides) == [[1, 2]]
    for by_axis in [((5, 5), (2, 2)), ((3, 3), (2, 1)), ((7, 7), (4, 4))]:
        assert scatter_groups(full, *by_axis) == [[1], [2]]
    assert scatter_groups(full, (3, 3), (2, 2), axes=(0, 1)) == [
        [0],
        [1],
    ]  # the first axis is no batch


@pytest.mark.parametrize(
    ("shape", "axes", "order"),
    [
        ((16, 128, 128, 3), (1, 2), (0, 3, 1, 2)),
        ((2, 64, 16), (1,), ()),  # 64 of 128 lanes in place of 16
        ((2, 65, 16), (1,), (0, 2, 1)),
        ((2, 9, 28, 9, 1), (1, 3), (0, 2, 4, 1, 3)),
        ((16, 1, 128, 128), (2, 3), ()),
        ((8, 64, 64, 64), (1, 2), ()),
        ((None, 128, 128, 3), (1, 2), ()),
    ],
)
def test_few_channels_are_permuted(shape, axes, order):
    known = tuple(size or 8 for size in shape)
    window = make_window(known, (2,) * len(axes), (2,) * len(axes), axes=axes)
    plan = plan_scatter(Problem(window, shape, "float32", "tpu"))
    assert plan.permutation == order
    if order:
        assert [len(group) for group in plan.groups] == [1] * len(axes)
        assert not plan_scatter(
            Problem(window, shape, "float32", "tpu", is_sharded=True)
        ).permutation


def test_scatter_groups_of_reversed_axes():
    """For all axes at once, select_and_scatter would select the first tied element in memory order."""
    assert scatter_groups((8, 64, 64, 64), (2, 2), (2, 2), axes=(2, 1)) == [[2], [1]]


X = np.array(np.random.default_rng(0).integers(0, 3, (2, 6, 6, 2)), np.float32)


def pool(x, **options):
    return jaxpool.max_pool(x, (3, 3), (2, 2), "SAME", **options)


def test_tracing_platform_is_default_device():
    assert tracing_platform() == "cpu"
    with jax.default_device(jax.devices("cpu")[0]):
        assert tracing_platform() == "cpu"
    with platform_override("tpu"):
        assert tracing_platform() == "tpu"
    with platform_override("gpu"):
        assert tracing_platform() == "gpu"


def test_residual_is_only_x():
    with platform_override("tpu"):
        residuals = jax.tree.leaves(jax.vjp(pool, jnp.asarray(X))[1])
    assert [(each.shape, each.dtype) for each in residuals] == [(X.shape, X.dtype)]
    assert {each.dtype.name for each in jax.tree.leaves(jax.vjp(pool, X)[1])} == {"uint8"}


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_every_mode_and_order(platform):
    """Forward mode, `vmap`, gradients of gradients and `jax.checkpoint`, traced for a platform and run on CPU."""
    weights = jnp.asarray(np.random.default_rng(1).standard_normal(pool(X).shape), jnp.float32)

    def loss(x):
        return jnp.sum(weights * pool(x, autodiff="jvp") ** 3)

    def everything(x):
        gradient = jax.grad(loss)
        yield gradient(x)
        yield jax.jvp(loss, (x,), (jnp.cos(x),))[1]
        yield jax.jvp(gradient, (x,), (jnp.cos(x),))[1]
        yield jax.grad(lambda x: jnp.sum(gradient(x) ** 2))(x)
        yield jax.grad(jax.checkpoint(loss))(x)
        yield jax.vmap(jax.grad(lambda x: jnp.sum(jaxpool.max_pool(x, (2, 2)) ** 2)))(x)

    here = jax.jit(lambda x: list(everything(x)))(X)
    with platform_override(platform):
        there = jax.jit(lambda x: list(everything(x)))(X)
    for one, other in zip(there, here, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("options", [{"ties": "split"}, {"window_dilation": (2, 1)}], ids=str)
def test_unsupported_options_use_no_scatter(options):
    with platform_override("tpu"):
        program = jax.jit(jax.grad(lambda x: jnp.sum(pool(x, **options)))).trace(X)
    assert "select_and_scatter" not in program.lower(lowering_platforms=("tpu",)).as_text()


def test_float64_uses_no_select_and_scatter():
    with jax.enable_x64(True), platform_override("tpu"):
        gradient = jax.jit(jax.grad(lambda x: jnp.sum(pool(x)))).trace(np.float64(X))
        assert "select_and_scatter" not in gradient.lower(lowering_platforms=("tpu",)).as_text()


def test_vmap_has_one_select_and_scatter():
    with platform_override("tpu"):
        program = jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(jaxpool.max_pool(x, (2, 2))))))
        text = program.trace(X).lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("stablehlo.select_and_scatter") == 1


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_many_taps_at_once(kind, ties):
    rng = np.random.default_rng(4)
    x = rng.choice(VALUES, (8, 8, 8, 1), p=VALUE_PROBABILITIES).astype(np.float32)
    dy = rng.integers(-4, 5, (8, 3, 3, 1)).astype(np.float32)

    def gradient(x, dy):
        call = getattr(jaxpool, f"{kind}_pool")
        return jax.vjp(lambda x: call(x, (4, 4), (2, 2), ties=ties), x)[1](dy)[0]

    here = jax.jit(gradient)(x, dy)
    with pytest.MonkeyPatch.context() as patch, platform_override("tpu"):
        patch.setitem(TUNING, "tpu", dataclasses.replace(TPU, min_compaction=math.inf))
        plan_scatter.cache_clear()
        there, text = interpreter(gradient, x, dy)
        plan_scatter.cache_clear()
    assert text.count("stablehlo.select_and_scatter") == 1
    assert_same(there(x, dy), here)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_16_bit_overlapping_windows_compare_once(kind, ties, dtype):
    """XLA partitions select_and_scatter only with a single comparison."""
    rng = np.random.default_rng(5)
    most = float(jnp.finfo(dtype).max)
    x = rng.choice([np.nan, np.inf, most, 0.0, -most, -np.inf], (2, 9, 9, 8)).astype(dtype)
    dy = rng.integers(-4, 5, (2, 8, 8, 8)).astype(dtype)

    def gradient(x, dy):
        call = getattr(jaxpool, f"{kind}_pool")
        return jax.vjp(lambda x: call(x, (2, 2), ties=ties), x)[1](dy)[0]

    here = jax.jit(gradient)(x, dy)
    with platform_override("tpu"):
        there, text = interpreter(gradient, x, dy)
    _, instruction = text.split('"stablehlo.select_and_scatter"')
    assert instruction.partition("stablehlo.return")[0].count("stablehlo.compare") == 1
    assert_same(there(x, dy), here)


def test_vmap_of_few_channels():
    rng = np.random.default_rng(3)
    x, dy = rng.integers(0, 3, (3, 2, 9, 9, 1)), rng.integers(-4, 5, (3, 2, 5, 5, 1))

    def gradient(x, dy):
        return jax.vjp(pool, x)[1](dy)[0]

    arrays = [np.float32(each) for each in (x, dy)]
    here = jax.jit(jax.vmap(gradient))(*arrays)
    with platform_override("tpu"):
        there, text = interpreter(jax.vmap(gradient), *arrays)
    assert "tensor<3x18x9xf32>" in text  # rows of 9 next to each other
    assert_same(there(*arrays), here)


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("call", ["adaptive_max_pool_with_argmax", "max_pool_with_argmax"])
def test_argmax_indices_equal_other_platforms(call, ties):
    size = (3, 3) if call.startswith("adaptive") else (2, 2)
    found = []
    for platform in ("cpu", "tpu"):
        with platform_override(platform):
            found.append(jax.jit(lambda x: getattr(jaxpool, call)(x, size, ties=ties))(X))
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


def test_last_nan_uses_index_residual():
    window = make_window((1, 4, 4, 1), (2, 2))
    with platform_override("tpu"):
        assert isinstance(pool_op(window, "max", "last_nan"), SelectPool)
    whole = make_window((1, 5, 5, 1), (5, 5))
    assert isinstance(pool_op(whole, "max", "last_nan"), SelectPool)
