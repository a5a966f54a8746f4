"""Arrays with axes too long for an int32: each call is traced, or raises our error.

Nothing large is allocated: the arguments are broadcast zeros, or only their types.
"""

import re
import resource
import tracemalloc

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import jaxpool
from jaxpool._kernels import positions
from jaxpool.testing import pools

SHAPE = (2, 4, 6, 4)
# jax indexing requests int64 if any axis is this long, even an axis that is not indexed.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
IOTA = re.compile(r"stablehlo\.iota dim = (\d+) : tensor<([\dx]+)x(u?)i(\d+)>")


@pytest.fixture(autouse=True)
def limited_memory():
    """Limit the memory, so that a table as long as an axis raises."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="utf-8") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def little_memory():
    """Fail if Python and NumPy allocate 64 MiB or more."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**26


def zeros(shape, dtype=np.float32):
    """Zeros that need no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def arguments_for(pool, axis, length):
    """Usual arguments of `pool` for images with `length` elements along `axis`."""
    shape = tuple(length if at == axis else size for at, size in enumerate(SHAPE))
    x, settings = zeros(shape), {}
    if pool.takes("segment_ids"):
        settings["segment_ids"] = zeros((shape[0] * shape[1],), np.int32)
        settings["x"] = x.reshape(-1, *shape[2:])
    elif pool.takes("x"):
        settings["x"] = x
    if pool.takes("indices"):
        settings["indices"] = zeros(shape, np.int32)
    return pool.given(x, **settings)


def value_and_cotangent_functions(pool, given):
    """Value and cotangents as functions of the large arguments, and the types of these arguments."""

    def is_large(value):
        return isinstance(value, np.ndarray) and value.size > 10**5

    leaves, tree = jax.tree.flatten(
        given, is_leaf=lambda value: not isinstance(value, tuple | dict)
    )
    large = [n for n, leaf in enumerate(leaves) if is_large(leaf)]
    types = [jax.ShapeDtypeStruct(leaves[n].shape, leaves[n].dtype) for n in large]

    def value(*arrays):
        known = dict(zip(large, arrays, strict=True))
        all_leaves = [known.get(n, leaf) for n, leaf in enumerate(leaves)]
        return jax.tree.leaves(pool.run(jax.tree.unflatten(tree, all_leaves)))[0]

    def cotangents(*arrays):
        floats = [n for n, each in enumerate(arrays) if jnp.issubdtype(each.dtype, jnp.floating)]

        def of_floats(*float_arrays):
            known = dict(zip(floats, float_arrays, strict=True))
            return value(*[known.get(n, each) for n, each in enumerate(arrays)])

        y, pullback = jax.vjp(of_floats, *[arrays[n] for n in floats])
        return pullback(jnp.zeros(y.shape, y.dtype))

    return [value] if pool.marks else [value, cotangents], types


def trace_or_raise(name, axis, length, platform):
    """Trace value and gradient: both succeed or both raise, and no iota overflows. Return True if they succeed."""
    pool = pools()[name]
    run, types = value_and_cotangent_functions(pool, arguments_for(pool, axis, length))
    messages = []
    for function in run:
        try:
            program = jax.jit(function).trace(*types).lower(lowering_platforms=(platform,))
        except ValueError as error:
            messages.append(str(error))
            continue
        for dim, shape, unsigned, bits in IOTA.findall(program.as_text()):
            count = int(shape.split("x")[int(dim)])
            assert count <= 2 ** (int(bits) - (not unsigned)), (name, shape)
    assert len(messages) in (0, len(run))
    for message in messages:
        assert re.match(rf"jaxpool\.{name}: `[\w\[\]]+` must be .*; got ", message), message
    return not messages


OTHER_LENGTHS = [
    pytest.param(length, platform, marks=pytest.mark.slow)
    for length in (2**31 - 1, 2**31, 2**32, 2**33)
    for platform in ("cpu", "cuda", "tpu")
    if (length, platform) != (2**31, "cpu")
]


@pytest.mark.parametrize(("length", "platform"), [(2**31, "cpu"), *OTHER_LENGTHS])
@pytest.mark.parametrize("name", pools())
def test_long_axes_trace_or_raise(name, length, platform):
    for axis in range(len(SHAPE)):
        trace_or_raise(name, axis, length, platform)


@pytest.mark.parametrize("name", pools())
def test_no_table_of_axis_length(name, little_memory):
    trace_or_raise(name, 0 if pools()[name].takes("segment_ids") else 1, 2**28, "cpu")


LONG_VECTOR = jax.ShapeDtypeStruct((2**28,), jnp.float32)
LONG_VECTOR_CALLS = {
    "avg_pool": lambda x: jaxpool.avg_pool(x, 3, 1, "SAME", count_include_pad=False, axes=(0,)),
    "avg_pool, ceil": lambda x: jaxpool.avg_pool(x, 3, 2, ceil_mode=True, axes=(0,)),
    "max_pool": lambda x: jaxpool.max_pool(x, 3, 1, "SAME", axes=(0,)),
    "max_pool, split": lambda x: jaxpool.max_pool(x, 3, 1, "SAME", axes=(0,), ties="split"),
    "max_pool_with_argmax": lambda x: jaxpool.max_pool_with_argmax(x, 3, 1, "SAME", axes=(0,))[0],
    "median_pool": lambda x: jaxpool.median_pool(x, 3, 1, "SAME", axes=(0,)),
    "rank_pool": lambda x: jaxpool.rank_pool(x, 0, 3, 1, "SAME", axes=(0,)),
    "softmax_pool, gaps": lambda x: jaxpool.softmax_pool(x, 2, 3, axes=(0,)),
    "lp_pool, dilated": lambda x: jaxpool.lp_pool(x, 3.0, 2, 3, window_dilation=2, axes=(0,)),
    "adaptive_avg_pool": lambda x: jaxpool.adaptive_avg_pool(x, 2**27 + 1, axes=(0,)),
    "adaptive_max_pool": lambda x: jaxpool.adaptive_max_pool(x, 2**27 + 1, axes=(0,)),
    "fractional_max_pool": lambda x: jaxpool.fractional_max_pool(
        jax.random.key(0), x, (2,), output_shape=(2**27 + 1,), axes=(0,)
    )[0],
    "cummax": jaxpool.cummax,
    "k_max_pool": lambda x: jaxpool.k_max_pool(x, 3, axis=0),
}


@pytest.mark.parametrize("name", LONG_VECTOR_CALLS)
def test_no_table_of_axis_length_with_padding(name, little_memory):
    total = jax.value_and_grad(lambda x: LONG_VECTOR_CALLS[name](x).sum())
    jax.jit(total).trace(LONG_VECTOR).lower(lowering_platforms=("cpu",))


def test_pools_without_indices_accept_any_axis_length():
    x = jax.ShapeDtypeStruct((2**33,), jnp.float32)
    for pool in (jaxpool.max_pool, jaxpool.sum_pool, jaxpool.avg_pool):
        y = jax.eval_shape(lambda x, pool=pool: pool(x, 2, 2, axes=(0,)), x)
        assert y.shape == (2**32,)


# Integer arithmetic


FRACTIONS = [(1, 1), (7, 3), (2**31 - 1, 2**31 - 2), (2**30 + 1, 2**30 + 3)]
FRACTIONS += [(12_345, 2**31 - 1), (2**31 - 1, 1_234_567), (5, 7), (10**7, 63), (1_428_572, 10**7)]


@pytest.mark.parametrize(("numerator", "denominator"), FRACTIONS)
def test_floor_division_is_exact(numerator, denominator):
    """Products of up to 62 bits, divided with tables."""
    max_index = min(2**31 - 1, (2**31 - 1) * denominator // numerator)
    i = np.unique(np.linspace(0, max_index, 999).astype(np.int64))
    for more in (0, denominator - 1):
        fraction = numerator, denominator, more
        wanted = (i * numerator + more) // denominator
        fits_int32 = wanted < 2**31
        constants = i[fits_int32].astype(np.int32)
        numbers = jnp.asarray(constants)
        for each in (
            positions.scaled_floor_division(numbers, max_index + 1, *fraction),
            positions.scaled_floor_division(constants, max_index + 1, *fraction),
        ):
            assert np.array_equal(each, wanted[fits_int32])


def test_many_adaptive_windows_of_unequal_lengths():
    """2^17 windows over 2^18 elements: products of index and size exceed 32 bits."""
    size, out = 2**18 + 1, 2**17 + 1
    x = jnp.asarray(np.random.default_rng(0).integers(0, 9, size), jnp.float32)
    first = np.arange(out, dtype=np.int64) * size // out
    last = -(-(np.arange(1, out + 1, dtype=np.int64) * size) // out)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(x, np.float64))])
    wanted = (sums[last] - sums[first]) / (last - first)
    y = jaxpool.adaptive_avg_pool(x, out, axes=(0,))
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


# Pixels


@pytest.mark.parametrize("ties", ["first", "split"])
def test_roi_gathers_index_by_image_and_pixel(ties):
    """70 images of 2^25 pixels: gathers index by image and pixel, never by a flat index over all images."""
    images = jax.ShapeDtypeStruct((70, 8192, 4096, 1), jnp.float32)
    boxes, batch_indices = np.array([[0, 0, 3, 3]], np.float32), np.array([69], np.int32)

    def value_and_gradient(x):
        def pool(x):
            return jaxpool.roi_max_pool(x, boxes, 2, batch_indices=batch_indices, ties=ties)

        y, pullback = jax.vjp(pool, x)
        return y, pullback(y), jax.jvp(pool, (x,), (x,))

    for platform in ("cpu", "cuda"):
        traced = jax.jit(value_and_gradient).trace(images)
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        gathers = re.findall(r'"stablehlo.gather"\(.*?tensor<([\dx]+)xf32>, tensor', text)
        assert f"{images.size}x1" not in gathers
        assert any(shape.startswith("70x") for shape in gathers)
