"""Operations in lowered programs: no scatter and no loop on any platform, and no CPU-specific code on GPU and TPU."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool._ops.primitives import platform_override
from jaxpool.testing import pools
from tests.support.programs import value_and_vjp

LOOPS_AND_MORE = ("scatter", "gather", "while")
READS_OF_PLATFORM = {"cuda": {"gather"}}  # operations by which windows are read
PLATFORMS = ("cpu", "cuda", "tpu")
SHAPE, LARGE = (2, 9, 10, 3), (2, 64, 64, 32)  # small, and in regions and tables on CPU
SAME = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
POOLS = {
    "max": ("max_pool", SAME),
    "max last": ("max_pool", SAME | {"ties": "last"}),
    "max split": ("max_pool", SAME | {"ties": "split"}),
    "max stride 1": ("max_pool", {"window_shape": (3, 3), "padding": "SAME"}),
    "max dilated": ("max_pool", SAME | {"window_dilation": (2, 1)}),
    "max large": ("max_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "max large split": ("max_pool", {"window_shape": (9, 15), "padding": "SAME", "ties": "split"}),
    "max channels first": ("max_pool", SAME | {"axes": (2, 3)}),
    "min": ("min_pool", SAME),
    "avg": ("avg_pool", SAME),
    "avg real": ("avg_pool", SAME | {"count_include_pad": False}),
    "avg large": ("avg_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "sum": ("sum_pool", SAME),
    "sum ceil": ("sum_pool", {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
}


OTHERS = {  # ops with other kernels
    "max over axes": lambda x: jaxpool.max(x, (1, 2), ties="first"),
    "global average": jaxpool.global_avg_pool,
    "running maximum": lambda x: jaxpool.cummax(x, 1)[0],
    "maximum": lambda x: jaxpool.maximum(x, x[:1], ties="first"),
    "root of a sum of powers": lambda x: jaxpool.lp_pool(x, 3.0, (3, 3), padding="SAME"),
    "long average": lambda x: jaxpool.avg_pool(x, (40, 37), (2, 1), "SAME"),
}


def pool(name):
    function, settings = POOLS[name]
    return functools.partial(getattr(jaxpool, function), **settings)


def gradient(f):
    return jax.jit(jax.grad(lambda x: (f(x).astype(jnp.float32) ** 2).sum()))


def exported(f, platform, shape=SHAPE, dtype=np.float32):
    """Return the text of the program of f for a platform."""
    x = jax.ShapeDtypeStruct(shape, dtype)
    return jax.export.export(jax.jit(f), platforms=[platform])(x).mlir_module()


def operations(program):
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


def forbidden(operations, words=("scatter",)):
    return [name for name in operations if any(word in name for word in words)]


def compiled_operations(lowered):
    return re.findall(r" = \S+ ([\w-]+)\(", lowered.compile().as_text())


def cpu_constructs(program):
    """Return the constructs in a program that only programs for CPU should have."""
    held = {word for word in ("case", "if", "gather") if f"stablehlo.{word}" in program}
    held |= {"call"} if 'inlineable = "false"' in program else set()
    for dim, operands in re.findall(r"concatenate .*dim = (\d+) : \((.*)\) ->", program):
        sizes = [shape.split("x")[int(dim)] for shape in re.findall(r"tensor<([^>]*)>", operands)]
        if set(sizes) != {"1"}:  # interleaved phases are joined along an axis of their own
            held.add("regions")
    return held


def test_search_finds_scatters_of_lax_and_constructs_of_cpu():
    def lax_pool(x):
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, "SAME")

    for platform in PLATFORMS:
        found = operations(exported(gradient(lax_pool), platform))
        assert forbidden(found) == ["select_and_scatter"]
    of_pool = gradient(pool("max stride 1"))
    held = [
        cpu_constructs(exported(of_pool, "cpu", LARGE, dtype)) for dtype in ("float32", "bfloat16")
    ]
    assert held == [{"call", "regions"}, {"call", "regions", "gather"}]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", POOLS)
def test_derivatives_have_no_scatter_and_vmap_adds_no_loop(name, platform):
    of_pool = gradient(pool(name))
    found = operations(exported(of_pool, platform))
    assert "add" in found
    assert forbidden(found) == []
    assert forbidden(operations(exported(gradient(of_pool), platform))) == []
    stacked = exported(jax.vmap(of_pool), platform, (5, *SHAPE))
    words = [word for word in LOOPS_AND_MORE if word not in READS_OF_PLATFORM.get(platform, ())]
    assert forbidden(operations(stacked), words) == []


@pytest.mark.parametrize("platform", PLATFORMS[1:])
@pytest.mark.parametrize("name", [*POOLS, *OTHERS])
def test_gradient_has_no_cpu_constructs(name, platform):
    of_pool = gradient(OTHERS.get(name) or pool(name))
    # A branch on the range of the values, which short windows on GPUs do not have.
    allowed = {"case"} if "powers" in name and platform != "cuda" else set()
    for dtype in ("float32", "bfloat16"):
        constructs = cpu_constructs(exported(of_pool, platform, LARGE, dtype))
        reads = READS_OF_PLATFORM.get(platform, set())
        assert constructs - reads == allowed - reads


WITHOUT_SORT = [
    n for n, p in pools().items() if p.modes and not p.takes("boxes") and n != "k_max_pool"
]


@pytest.mark.parametrize("name", [*WITHOUT_SORT, "global_avg_pool", "global_max_pool", "blur_pool"])
def test_gradient_has_no_scatter_or_sort(name):
    """For all platforms in one program, and every tie rule."""
    for ties in pools()[name].ties or ("first",):
        f = gradient(pools()[name].of(ties=ties, output_shape=(3, 2), axis=1))
        x = jax.ShapeDtypeStruct((2, 4, 6, 4), np.float32)
        text = jax.export.export(f, platforms=PLATFORMS)(x).mlir_module()
        assert forbidden(operations(text), ("scatter", "sort")) == []


def scatters(f, platform):
    """List the combining operation and the element type of each scatter in a program."""
    pattern = r'stablehlo\.scatter".*?= stablehlo\.(\w+) \S+, \S+ : tensor<(\w+)>'
    return re.findall(pattern, exported(f, platform), re.DOTALL)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_max_unpool_scatters_do_not_add(platform):
    """Scatters are deterministic: an integer maximum is independent of the order, and XLA for CPU writes in order."""

    def unpooled(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2))
        return jaxpool.max_unpool(y, indices, x.shape[1:3])

    if platform == "cpu":
        writes = re.findall(
            r'"stablehlo\.scatter".*?\}\) : ', exported(unpooled, platform), re.DOTALL
        )
        last = re.compile(r"\^bb0\(%(\w+): .*?, %(\w+): .*?\):\s+stablehlo\.return %\2 ")
        assert writes
        assert all(map(last.search, writes))
    else:
        integers = "ui16" if platform == "cuda" else "i32"
        assert set(scatters(unpooled, platform)) == {("maximum", integers)}
    of_gradient = scatters(jax.grad(lambda x: unpooled(x).sum()), platform)
    if platform == "cpu":
        assert "add" not in dict(of_gradient)
    else:
        assert set(of_gradient) == {("maximum", integers)}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    "name", [name for name, pool in pools().items() if pool.takes("key", "output_shape")]
)
def test_fractional_gradient_has_no_scatter(name, platform):
    def pooled(x):
        return getattr(jaxpool, name)(jax.random.key(0), x, (2, 2), (3, 3)).sum()

    assert scatters(jax.grad(pooled), platform) == []


@pytest.mark.parametrize("name", ["max", "avg real", "max split"])
def test_one_export_for_all_platforms_runs_on_cpu(name):
    rng = np.random.default_rng(0)
    x, dy = (rng.integers(-9, 10, (2, size, size, 32)).astype(np.float32) for size in (64, 32))
    program = jax.jit(value_and_vjp(pool(name)))
    exported = jax.export.export(program, platforms=PLATFORMS)(x, dy)
    for got, want in zip(exported.call(x, dy), program(x, dy), strict=True):
        np.testing.assert_array_equal(got, want)


# `vmap` of a gradient: its program is no larger than that of the gradient with one more batch axis.

# A plan sees one example. Both the example and the stack exceed `min_sum_region_bytes`.
EXAMPLE = (8, 9, 10, 3)
EXAMPLE_SETTINGS = SAME | {
    **{"output_shape": (3, 5), "axes": (-3, -2), "count_include_pad": False},
    **{"p": 3.0, "temperature": 3.0},
}
# Rank pools compare pairs of elements and have separate tests.
WINDOWED = [n for n, p in pools().items() if p.takes("ceil_mode") and p.topic != "rank"]


def executed_operations(text):
    """The operations of a program. Those of a function are repeated for each of its calls."""
    functions = dict(re.findall(r"func\.func \w+ @([^(]+)(.*?)(?=func\.func|\Z)", text, re.S))

    def operations_of(name):
        names = re.findall(r"stablehlo\.(\w+)|call @([^(]+)", functions[name])
        return [op for word, called in names for op in ([word] if word else operations_of(called))]

    return operations_of("main")


TIES = [
    *((name, "first") for name in (*WINDOWED, "adaptive_max_pool", "adaptive_avg_pool")),
    *(("max_pool", "split"), ("min_pool", "last")),
]


@pytest.mark.parametrize(
    "axis", [pytest.param(n, marks=() if n == 3 else pytest.mark.slow) for n in range(5)]
)
@pytest.mark.parametrize(("name", "ties"), TIES)
def test_vmap_of_gradient_has_no_more_operations(name, ties, axis):
    """Both modes have the same program, see test_same_program.py."""
    x = jax.ShapeDtypeStruct((*EXAMPLE[:axis], 5, *EXAMPLE[axis:]), np.float32)
    of_example = gradient(pools()[name].of(**EXAMPLE_SETTINGS, ties=ties))

    def of_stack(x):
        return jnp.moveaxis(of_example(jnp.moveaxis(x, axis, 0)), 0, axis)

    programs = [jax.jit(f).lower(x) for f in (jax.vmap(of_example, axis, axis), of_stack)]
    one, whole = (executed_operations(lowered.as_text()) for lowered in programs)
    assert forbidden(one) == []
    assert one.count("while") == whole.count("while")
    if "while" not in whole:  # under vmap, the slice of a loop step becomes a gather
        assert one.count("gather") <= whole.count("gather")
    assert one.count("reduce_window") == whole.count("reduce_window")

    one, whole = (compiled_operations(lowered) for lowered in programs)
    assert whole.count("fusion") > 0
    assert one.count("fusion") <= 1.15 * whole.count("fusion")
    assert {*forbidden(one, LOOPS_AND_MORE)} <= {*forbidden(whole, LOOPS_AND_MORE)}


BARRIERS = {"local_maxima": {"ties": "all"}, "local_minima": {"ties": "all"}}


def texts_traced_for_cpu_and_gpu(f, arrays, platforms):
    """Return the StableHLO of f for `platforms`, traced with a CPU as the default device, and with a GPU."""

    def text(default_device):
        with platform_override(default_device):
            return jax.jit(f).trace(arrays).lower(lowering_platforms=platforms).as_text()

    return text("cpu"), text("gpu")


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("cpu", "cuda")])
@pytest.mark.parametrize("name", pools())
def test_lowering_platform_chooses_the_program(name, platforms):
    """The default device while tracing does not matter.

    A GPU has other optimisation barriers, which XLA for CPU ignores. It would compute x twice, with different rounding,
    and miss ties.
    """
    pool = pools()[name]
    given = pool.given(np.random.default_rng(0).integers(-9, 9, LARGE).astype(np.float32))
    given |= BARRIERS.get(name, {})
    operands = {key: given.pop(key) for key in pool.operands}
    text, traced_for_gpu = texts_traced_for_cpu_and_gpu(
        lambda operands: pool.run(given | operands), operands, platforms
    )
    assert traced_for_gpu == text
    if name in BARRIERS:
        assert ("optimization_barrier" in text) == (platforms != ("cpu",))


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",)])
@pytest.mark.parametrize("ties", ["first", "split"])
def test_lowering_platform_chooses_the_program_of_shards(ties, platforms):
    mesh = AbstractMesh((2,), ("a",), axis_types=(AxisType.Explicit,))
    x = jax.ShapeDtypeStruct(LARGE, np.float32, sharding=NamedSharding(mesh, P(None, "a")))

    def value(x):
        return jaxpool.max(x, (1, 2), ties=ties)

    for f in (value, jax.grad(lambda x: value(x).sum())):
        text, traced_for_gpu = texts_traced_for_cpu_and_gpu(f, x, platforms)
        assert "all_reduce" in text
        assert traced_for_gpu == text
