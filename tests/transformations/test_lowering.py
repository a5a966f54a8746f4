"""Operations in lowered programs: no scatter and no loop on any platform, and no CPU-specific code on GPU and TPU."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools

PLATFORMS = ("cpu", "cuda", "tpu")
SHAPE = (2, 9, 10, 3)
SAME = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
POOLS = {
    "max": ("max_pool", SAME),
    "max jvp": ("max_pool", SAME | {"autodiff": "jvp"}),
    "max last": ("max_pool", SAME | {"ties": "last"}),
    "max split": ("max_pool", SAME | {"ties": "split"}),
    "max split jvp": ("max_pool", SAME | {"ties": "split", "autodiff": "jvp"}),
    "max stride 1": ("max_pool", {"window_shape": (3, 3), "padding": "SAME"}),
    "max dilated": ("max_pool", SAME | {"window_dilation": (2, 1)}),
    "max large": ("max_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "max large split": ("max_pool", {"window_shape": (9, 15), "padding": "SAME", "ties": "split"}),
    "max channels first": ("max_pool", SAME | {"axes": (2, 3)}),
    "min": ("min_pool", SAME),
    "avg": ("avg_pool", SAME),
    "avg real": ("avg_pool", SAME | {"count_include_pad": False}),
    "avg jvp": ("avg_pool", SAME | {"autodiff": "jvp"}),
    "avg large": ("avg_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "sum": ("sum_pool", SAME),
    "sum ceil": ("sum_pool", {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
}


def gradient(name):
    function, kwargs = POOLS[name]
    pool = functools.partial(getattr(jaxpool, function), **kwargs)
    return jax.jit(jax.grad(lambda x: (pool(x) ** 2).sum()))


def lowered_operations(f, platform, shape=SHAPE):
    """Return the names of the operations in the program of f for a platform."""
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=[platform])(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


def forbidden(operations, words=("scatter",)):
    return [name for name in operations if any(word in name for word in words)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_scatter_search_finds_select_and_scatter(platform):
    """The search for scatters in the tests below finds that of lax's gradient."""

    def lax_pool(x):
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, "SAME").sum()

    operations = lowered_operations(jax.jit(jax.grad(lax_pool)), platform)
    assert forbidden(operations) == ["select_and_scatter"]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", POOLS)
def test_gradient_has_no_scatter(name, platform):
    operations = lowered_operations(gradient(name), platform)
    assert "add" in operations
    assert forbidden(operations) == []


@pytest.mark.parametrize("name", ["max", "max split", "avg"])
def test_second_derivative_has_no_scatter(name):
    again = jax.jit(jax.grad(lambda x: (gradient(name)(x) ** 2).sum()))
    for platform in PLATFORMS:
        assert forbidden(lowered_operations(again, platform)) == []


@pytest.mark.parametrize("name", ["max", "max large", "max split", "avg", "avg large"])
@pytest.mark.parametrize("shape", [SHAPE, (2, 64, 64, 32)], ids=["small", "in regions and tables"])
def test_compiled_gradient_has_no_scatter(name, shape):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    compiled = gradient(name).lower(x).compile().as_text()
    operations = set(re.findall(r" = \S+ ([\w-]+)\(", compiled))
    assert "select" in operations or "add" in operations
    assert forbidden(operations, ("scatter", "while")) == []


def scatters(f, platform):
    """List the combining operation and the element type of each scatter in a program."""
    x = jax.ShapeDtypeStruct(SHAPE, np.float32)
    program = jax.export.export(jax.jit(f), platforms=[platform])(x).mlir_module()
    pattern = r'stablehlo\.scatter".*?= stablehlo\.(\w+) \S+, \S+ : tensor<(\w+)>'
    return re.findall(pattern, program, re.DOTALL)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_max_unpool_scatters_do_not_add(platform):
    """Scatters are deterministic: an integer maximum is independent of the order, and XLA for CPU writes in order."""

    def unpooled(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
        return jaxpool.max_unpool(y, indices, x.shape[1:3])

    if platform == "cpu":
        program = jax.jit(unpooled).trace(jax.ShapeDtypeStruct(SHAPE, np.float32))
        text = program.lower(lowering_platforms=(platform,)).as_text()
        writes = re.findall(r'"stablehlo\.scatter".*?\}\) : ', text, re.DOTALL)
        last = re.compile(r"\^bb0\(%(\w+): .*?, %(\w+): .*?\):\s+stablehlo\.return %\2 ")
        assert writes
        assert all(map(last.search, writes))
    else:
        assert set(scatters(unpooled, platform)) == {("maximum", "i32")}
    of_gradient = scatters(jax.grad(lambda x: unpooled(x).sum()), platform)
    if platform == "cpu":
        assert "add" not in dict(of_gradient)
    else:
        assert set(of_gradient) == {("maximum", "i32")}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    "name", [name for name, pool in pools().items() if pool.takes("key", "output_shape")]
)
def test_fractional_gradient_has_no_scatter(name, platform):
    def pooled(x):
        return getattr(jaxpool, name)(jax.random.key(0), x, (2, 2), (3, 3)).sum()

    assert scatters(jax.grad(pooled), platform) == []


@pytest.mark.parametrize("name", ["max", "max split", "min", "avg", "sum"])
def test_vmap_adds_no_loop_or_gather(name):
    for platform in PLATFORMS:
        operations = lowered_operations(jax.jit(jax.vmap(gradient(name))), platform, (5, *SHAPE))
        assert forbidden(operations, ("scatter", "gather", "while")) == []


# CPU-specific code


def cpu_constructs(f, platform, dtype, shape=(2, 64, 64, 32)):
    """Return the constructs in the program of f that only programs for CPU should have."""
    x = jax.ShapeDtypeStruct(shape, dtype)
    program = jax.export.export(jax.jit(f), platforms=[platform])(x).mlir_module()
    held = {word for word in ("case", "if", "gather") if f"stablehlo.{word}" in program}
    held |= {"call"} if 'inlineable = "false"' in program else set()
    for dim, operands in re.findall(r"concatenate .*dim = (\d+) : \((.*)\) ->", program):
        sizes = [shape.split("x")[int(dim)] for shape in re.findall(r"tensor<([^>]*)>", operands)]
        if set(sizes) != {"1"}:  # interleaved phases are joined along an axis of their own
            held.add("regions")
    return held


def square(f):
    return lambda x: (f(x).astype(jnp.float32) ** 2).sum()


OTHERS = {  # ops with other kernels
    "max over axes": lambda x: jaxpool.max(x, (1, 2), ties="first"),
    "global average": jaxpool.global_avg_pool,
    "running maximum": lambda x: jaxpool.cummax(x, 1)[0],
    "maximum": lambda x: jaxpool.maximum(x, x[:1], ties="first"),
    "root of a sum of powers": lambda x: jaxpool.lp_pool(x, 3.0, (3, 3), padding="SAME"),
    "long average": lambda x: jaxpool.avg_pool(x, (40, 37), (2, 1), "SAME"),
}
GRADIENTS = {name: gradient(name) for name in POOLS}
GRADIENTS |= {name: jax.grad(square(f)) for name, f in OTHERS.items()}


@pytest.mark.parametrize("name", GRADIENTS)
def test_no_cpu_constructs_on_gpu_and_tpu(name):
    for platform in ("cuda", "tpu"):
        for dtype in (np.float32, jnp.bfloat16):
            others = {"case"} if "powers" in name else set()  # a branch on the range of the values
            others |= {"gather"} if "max over" in name else set()  # reads the value at its index
            assert cpu_constructs(GRADIENTS[name], platform, dtype) == others


def test_cpu_construct_search():
    held = [
        cpu_constructs(gradient("max stride 1"), "cpu", dtype) for dtype in ("float32", "bfloat16")
    ]
    assert held == [{"call", "regions"}, {"call", "regions", "gather"}]


@pytest.mark.parametrize("name", ["max", "avg real", "max split"])
def test_one_export_for_all_platforms_runs_on_cpu(name):
    function, kwargs = POOLS[name]

    def both(x, dy):
        y, vjp = jax.vjp(functools.partial(getattr(jaxpool, function), **kwargs), x)
        return y, vjp(dy)[0]

    rng = np.random.default_rng(0)
    x, dy = (rng.integers(-9, 10, (2, size, size, 32)).astype(np.float32) for size in (64, 32))
    program = jax.jit(both)
    exported = jax.export.export(program, platforms=PLATFORMS)(x, dy)
    for got, want in zip(exported.call(x, dy), program(x, dy), strict=True):
        np.testing.assert_array_equal(got, want)


def test_same_bits_on_every_run():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 32, 32, 16), np.float32)
    dy = rng.standard_normal((4, 32, 32, 16), np.float32)

    @jax.jit
    def cotangent(x, dy):
        pool = functools.partial(jaxpool.max_pool, window_shape=(5, 5), padding="SAME")
        return jax.vjp(pool, x)[1](dy)[0]

    first = np.asarray(cotangent(x, dy))
    for _ in range(5):
        assert np.asarray(cotangent(x, dy)).tobytes() == first.tobytes()
