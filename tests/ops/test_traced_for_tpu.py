"""Max and min pools lowered for TPU: the residual is x, and select_and_scatter computes the cotangent.

No TPU is needed: the reference interpreter of StableHLO evaluates the lowered program, including padding.
"""

import contextlib
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
from jaxpool._ops.op import is_partitioned
from jaxpool._ops.primitives import platform_override, tracing_platform
from jaxpool._ops.select_pool import InputResidualPool, SelectPool, pool_op
from jaxpool._plan.max_pool import plan_scatter
from jaxpool._plan.problem import Problem
from jaxpool._plan.tuning import TPU, TUNING

VALUES = np.array([-np.inf, np.nan, -0.0, 0.0, 1.0, np.inf])
VALUE_PROBABILITIES = np.array([0.35, 0.1, 0.15, 0.15, 0.2, 0.05])
# Probability that the largest finite number of the dtype replaces a value
LARGEST_PROBABILITY = 0.1
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


def interpreter(function, *arrays, many=False):
    """Return an evaluator of the program for one TPU or `many` by StableHLO's interpreter, and its text.

    Arguments and results of 16-bit floats are converted to float32.
    """

    def wide(*given):
        y = function(*[each.astype(x.dtype) for each, x in zip(given, arrays, strict=True)])
        return y.astype(jnp.float32)

    with platform_override("tpu"), is_partitioned(many):
        traced = jax.jit(wide).trace(*[np.float32(x) for x in arrays])
        lowered = traced.lower(lowering_platforms=("tpu",))
    module = lowered.compiler_ir()

    def run(*arrays):
        with module.context:
            given = [ir.DenseElementsAttr.get(np.float32(x)) for x in arrays]
            return np.array(stablehlo.eval_module(module, given)[0])

    return run, lowered.as_text()


def cotangents(call):
    """Return a function of x and dy."""
    return lambda x, dy: jax.vjp(call, x)[1](dy)[0]


def text_if_same_as_here(function, *arrays, many=False):
    """Assert that a program for TPU gives the same numbers as the program for this platform, and return its text."""
    here = jax.jit(function)(*arrays)
    there, text = interpreter(function, *arrays, many=many)
    assert_same(there(*arrays), here)
    return text


def comparisons(text):
    """Return the number of comparisons in each select_and_scatter of a program."""
    _, *instructions = text.split('"stablehlo.select_and_scatter"')
    bodies = [each.partition("stablehlo.return")[0] for each in instructions]
    return [body.count("stablehlo.compare") for body in bodies]


@contextlib.contextmanager
def thresholds(**changed):
    """Replace thresholds of TPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TUNING, "tpu", dataclasses.replace(TPU, **changed))
        plan_scatter.cache_clear()
        try:
            yield
        finally:
            plan_scatter.cache_clear()


def check(seed, times, many):
    """Check a random pool, with thresholds that depend on the seed, for one TPU or `many`.

    All axes are reduced at once or one after another, in the order of the array or with pooled axes last.
    """
    window, kind, ties, numbers = draw_pool(seed)
    kept, tap = InputResidualPool(window, kind, ties), SelectPool(window, kind, ties)

    @jax.jit
    def by_tap(x, dy):
        y, index = tap.primal("portable", x)
        return y, tap.transpose("portable", index, dy)[0], tap.linear("portable", index, x)

    @jax.jit
    def on_cpu(x, dy):
        return kept.value("cpu", x), *kept.transpose("cpu", (x,), dy), kept.linear("cpu", (x,), x)

    most_taps = 0 if seed % 2 else math.inf
    with thresholds(
        scatter_taps_per_element=most_taps,
        max_fused_scatter_taps=most_taps,
        min_compaction=math.inf if seed % 3 else 0,
    ):
        with platform_override("tpu"), is_partitioned(many):
            op = pool_op(window, kind, ties)
        gradient = cotangents(functools.partial(apply, op, autodiff="vjp"))
        on_tpu, text = interpreter(gradient, *numbers(), many=many)
        x = numbers()[0]
        plan = plan_scatter(Problem(x.shape, x.dtype.name, "tpu", window, is_partitioned=many))
    if isinstance(op, InputResidualPool):
        used = [dim.axis for dim in window.dims if not dim.is_identity]
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


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize(
    ("dtype", "holds_nan", "many", "instructions"),
    [
        (np.float32, False, True, 4),
        (np.float32, True, True, 4),
        (np.float16, True, False, 2),
        (jnp.bfloat16, True, False, 2),
    ],
)
def test_single_comparison(kind, ties, dtype, holds_nan, many, instructions):
    """XLA partitions select_and_scatter only with a single comparison. x has infinities and the largest numbers."""
    rng = np.random.default_rng(6)
    most = float(jnp.finfo(dtype).max)
    below = float(np.nextafter(np.asarray(most, dtype), np.asarray(0, dtype)))
    x = rng.choice([np.inf, most, below, 0.0, -0.0, -most, -np.inf], (2, 9, 9, 8)).astype(dtype)
    x[0, ::4, 4] = np.nan if holds_nan else 1
    dy = rng.integers(-4, 5, (2, 8, 8, 8)).astype(dtype)
    call = functools.partial(getattr(jaxpool, f"{kind}_pool"), window_shape=(2, 2), ties=ties)
    text = text_if_same_as_here(cotangents(call), x, dy, many=many)
    assert comparisons(text) == [1] * instructions


def test_vmap_on_many_devices_has_a_branch():
    x, dy = X[:, None], np.ones((2, 1, 3, 3, 2), np.float32)
    x = np.where(x > 1, np.float32(np.nan), x)
    text = text_if_same_as_here(jax.vmap(cotangents(pool)), x, dy, many=True)
    assert text.count('"stablehlo.case"') == 1


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


X = np.array(np.random.default_rng(0).integers(0, 3, (2, 6, 6, 2)), np.float32)


def pool(x, **options):
    return jaxpool.max_pool(x, (3, 3), (2, 2), "SAME", **options)


def test_tracing_platform():
    assert tracing_platform() == "cpu"
    for platform in ("tpu", "gpu"):
        with platform_override(platform):
            assert tracing_platform() == platform


def test_residual_is_only_x():
    with platform_override("tpu"):
        residuals = jax.tree.leaves(jax.vjp(pool, jnp.asarray(X))[1])
    assert [(each.shape, each.dtype) for each in residuals] == [(X.shape, X.dtype)]
    assert {each.dtype.name for each in jax.tree.leaves(jax.vjp(pool, X)[1])} == {"uint8"}


def test_every_mode_and_order():
    """Forward mode, `vmap`, gradients of gradients and `jax.checkpoint`, traced for a TPU and run on CPU."""
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
    with platform_override("tpu"):
        there = jax.jit(lambda x: list(everything(x)))(X)
    for one, other in zip(there, here, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({"ties": "split"}, "float32"), ({"window_dilation": (2, 1)}, "float32"), ({}, "float64")],
    ids=str,
)
def test_unsupported_pools_use_no_scatter(options, dtype):
    with jax.enable_x64(True), platform_override("tpu"):
        gradient = jax.jit(jax.grad(lambda x: jnp.sum(pool(x, **options))))
        program = gradient.trace(X.astype(dtype)).lower(lowering_platforms=("tpu",))
    assert "select_and_scatter" not in program.as_text()


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_many_taps_at_once(kind, ties):
    rng = np.random.default_rng(4)
    x = rng.choice(VALUES, (8, 8, 8, 1), p=VALUE_PROBABILITIES).astype(np.float32)
    dy = rng.integers(-4, 5, (8, 2, 2, 1)).astype(np.float32)
    call = getattr(jaxpool, f"{kind}_pool")
    with thresholds(min_compaction=math.inf):
        text = text_if_same_as_here(cotangents(lambda x: call(x, (5, 5), (3, 3), ties=ties)), x, dy)
    assert len(comparisons(text)) == 1


def test_vmap_of_few_channels():
    rng = np.random.default_rng(3)
    x, dy = rng.integers(0, 3, (3, 2, 9, 9, 1)), rng.integers(-4, 5, (3, 2, 5, 5, 1))
    text = text_if_same_as_here(jax.vmap(cotangents(pool)), np.float32(x), np.float32(dy))
    assert "tensor<3x18x9xf32>" in text  # rows of 9 next to each other
    assert len(comparisons(text)) == 2


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


@pytest.mark.parametrize(("shape", "size"), [((4, 4), (2, 2)), ((5, 5), (5, 5))])
def test_last_nan_uses_index_residual(shape, size):
    with platform_override("tpu"):
        window = make_window((1, *shape, 1), size)
        assert isinstance(pool_op(window, "max", "last_nan"), SelectPool)
