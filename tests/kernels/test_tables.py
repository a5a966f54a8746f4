"""Passes that read through index tables on CPU: the programs that use them, their memory and their rounding."""

import functools
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.cpu import tables
from tests.support.compilation import DEFAULT_FUSION
from tests.support.programs import arguments, value_and_vjp

WIDE = (2, 64, 64, 32)


def pool(name, window, strides, padding, **options):
    function = getattr(jaxpool, f"{name}_pool")
    return lambda x: function(x, (window, window), (strides, strides), padding, **options)


def compiled(function, *arguments):
    """Compile with XLA's default fusion, which determines memory use and recomputation."""
    return jax.jit(function).lower(*arguments).compile(DEFAULT_FUSION)


def temp_bytes(program):
    return program.memory_analysis().temp_size_in_bytes


def count_pool_gathers(pool, shape, dtype="float32", platform="cpu"):
    return count_gathers(value_and_vjp(pool), *arguments(pool, shape, dtype), platform=platform)


def count_gathers(function, *xs, platform="cpu"):
    lowered = jax.jit(function).trace(*xs).lower(lowering_platforms=(platform,))
    return len(re.findall(r"stablehlo\.(?:dynamic_)?gather\b", lowered.as_text()))


# Contents of the programs


@pytest.mark.parametrize("name", ["max", "avg"])
def test_tables_with_explicit_sharding(name):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    ours = pool(name, 3, 2, "VALID")

    def gradient(x):
        return jax.grad(lambda x: (ours(x) ** 2).sum())(x)

    def count(spec):
        sharding = jax.NamedSharding(mesh, spec)
        return count_gathers(gradient, jax.ShapeDtypeStruct(WIDE, jnp.float32, sharding=sharding))

    with jax.set_mesh(mesh):
        assert count(jax.P("i")) == count(jax.P()) > 0


@pytest.mark.parametrize(("name", "long"), [("avg_pool", (40, 1, 1)), ("max_pool", (10, 1, 1))])
def test_regions_preserve_explicit_sharding(name, long):
    """Explicit shardings survive, also with phases without taps."""
    pool = getattr(jaxpool, name)
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 66, 65, 32)), jnp.float32)

    def gradients(x):
        for window, stride, dilation in ((3, 1, 1), (3, 2, 1), (2, 4, 2), long):
            sides = ((window - 1, 1), (0, window - 1))
            options = {"window_dilation": dilation, "axes": (1, 2)}
            of = functools.partial(
                pool, window_shape=window, strides=stride, padding=sides, **options
            )
            yield jax.vjp(of, x)[1](jnp.ones_like(of(x)))[0]

    program = jax.jit(lambda x: list(gradients(x)))
    wanted = program(x)
    with jax.set_mesh(mesh):
        found = program(jax.device_put(x, jax.NamedSharding(mesh, jax.P("b"))))
    for got, want in zip(found, wanted, strict=True):
        assert got.sharding.spec[0] == "b"
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("name", ["max", "avg"])
def test_vmap_over_any_axis(name, place):
    ours = pool(name, 3, 2, "VALID", **({"divisor": 1} if name == "avg" else {}))
    x = np.random.default_rng(0).integers(-9, 9, (3, 2, 20, 21, 32)).astype(np.float32)
    assert count_pool_gathers(ours, x.shape[1:])

    @jax.jit
    def both(x):
        gradient = jax.grad(lambda x: (ours(x) ** 2).sum())
        alone = jnp.stack([gradient(each) for each in x], place)
        return jax.vmap(gradient, place, place)(jnp.moveaxis(x, 0, place)), alone

    np.testing.assert_array_equal(*both(x))


# Temporaries and recomputation


@pytest.mark.parametrize(
    ("name", "window", "strides", "padding", "dtype", "most"),
    [
        ("max", 31, 16, "VALID", "float32", 0.3),
        ("max", 2, 2, "VALID", "bfloat16", 0.2),
        ("max", 3, 1, "VALID", "bfloat16", 0.6),  # the index
        ("max", 5, 2, "VALID", "float32", 0.8),  # the intermediate of the two loops
        ("avg", 3, 1, "SAME", "float32", 1 / 16),
        ("avg", 3, 2, "VALID", "bfloat16", 1 / 16),
        ("avg", 3, 2, "SAME", "float16", 1 / 16),
    ],
)
def test_temporaries_between_loops(name, window, strides, padding, dtype, most):
    """`most` is the size of the temporaries, forward and backward, relative to x."""
    shape = (8, 64, 64, 64)
    ours = pool(name, window, strides, padding)
    assert count_pool_gathers(ours, shape, dtype)
    program = compiled(value_and_vjp(ours), *arguments(ours, shape, dtype))
    assert temp_bytes(program) < most * np.prod(shape) * jnp.dtype(dtype).itemsize


@pytest.mark.parametrize(("strides", "most"), [(1, 2.1), (2, 0.6)])
def test_divided_cotangents_temporary_memory(strides, most):
    """The only large temporary is the divided dy in float32."""
    ours = pool("avg", 3, strides, "SAME", count_include_pad=False)
    x, dy = arguments(ours, (8, 64, 64, 64), "bfloat16")
    program = compiled(lambda x, dy: jax.vjp(ours, x)[1](dy), x, dy)
    assert temp_bytes(program) < most * 2 * np.prod(x.shape)


@pytest.mark.parametrize("strides", [1, 2])
def test_input_is_not_recomputed_per_tap(strides):
    """XLA must not fuse the computation of the input or the cotangent into the loop that gathers it several times."""
    ours = pool("avg", 3, strides, "SAME")
    x = jax.ShapeDtypeStruct((8, 64, 64, 64), jnp.float32)
    program = compiled(jax.value_and_grad(lambda x: (ours(jnp.tanh(x)) ** 2).sum()), x)
    parts = [part for part in program.as_text().split("\n\n") if " gather(" in part]
    assert parts
    for part in parts:
        assert not re.search(r" (tanh|multiply)\(.*\n(.*\n)* .* gather\(", part)
    assert temp_bytes(program) < 2.1 * 4 * np.prod(x.shape)


def test_cotangent_is_not_recomputed_per_window():
    """XLA must not fuse the computation of the cotangent into the loop that gathers it at least four times."""
    ours = pool("max", 4, 2, "SAME")
    x = jax.ShapeDtypeStruct((8, 64, 64, 64), jnp.float32)
    program = compiled(jax.value_and_grad(lambda x: jnp.sin(ours(x)).sum()), x).as_text()
    parts = program.split("\n\n")
    looking_up = {part for part in parts if " gather(" in part}
    sending = {part for part in parts if re.search(r" cosine\(", part)}
    assert looking_up
    assert sending
    assert not looking_up & sending


# Numbers


def test_cast_without_branches_equals_astype():
    """Every bfloat16, the midpoints between neighbours, floats next to them, and NaNs with different payloads."""
    every = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.asarray([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (every[:, None] | low).ravel().view(np.float32)
    got = np.asarray(jax.jit(lambda x: tables.cast_without_branches(x, jnp.bfloat16))(x))
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(got[finite].view(np.uint16), expected[finite].view(np.uint16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_rounding_if_last_loop_adds_nothing(dtype):
    """The result of the first loop is float32 and must be rounded even if the second loop adds nothing."""
    x = jnp.asarray(np.random.default_rng(0).integers(-99, 99, (1, 30, 30, 16)), dtype)

    def gradient(x):
        return jax.grad(lambda x: jaxpool.max_pool(x, (10, 2), (1, 2)).astype(np.float32).sum())(x)

    assert count_gathers(gradient, x)
    np.testing.assert_array_equal(gradient(x), gradient(x.astype(np.float32)).astype(dtype))


def test_corner_outside_every_window():
    """A window of 128 taps: twice the out-of-range tap 128 would wrap to tap 0 in a byte, which a window selected."""
    x = jnp.zeros((2, 19, 35, 3))

    def ours(x):
        return jaxpool.max_pool(x, (8, 16), (8, 16))

    assert count_pool_gathers(ours, x.shape)
    dx = jax.jit(jax.grad(lambda x: ours(x).sum()))(x)
    expected = np.zeros(x.shape)
    expected[:, :16:8, :32:16] = 1
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("taps", [255, 256, 257])
def test_index_at_dtype_limit(taps):
    """The tap after the last marks windows that do not exist."""
    ranks = np.random.default_rng(0).permutation(4 * (2 * taps + 3)).reshape(4, -1, 1)
    x = ranks.astype(np.float32)
    x[0, taps] = x[1, -4] = x.max() + 1  # the first and the last tap of the last window
    both = jax.jit(value_and_vjp(lambda x: jaxpool.max_pool(x, (taps,), (taps,))))
    dy = jnp.ones((4, 2, 1))
    assert count_gathers(both, x, dy)
    dx = both(x, dy)[1]
    tiles = x[:, : 2 * taps].reshape(4, 2, taps)
    expected = np.zeros_like(tiles)
    np.put_along_axis(expected, np.argmax(tiles, 2)[..., None], 1, 2)
    np.testing.assert_array_equal(dx[:, : 2 * taps, 0], expected.reshape(4, -1))
    assert not dx[:, 2 * taps :].any()


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: jaxpool.max_pool(x, (3, 3), (2, 2), "SAME"),
        lambda x: jaxpool.avg_pool(x, (3, 3), (1, 1), "SAME"),
        lambda x: jaxpool.avg_pool(x, (3, 3), (2, 2), "SAME"),
    ],
)
def test_constant_cotangent_is_not_folded(pool):
    # Constant folding of gathers takes XLA seconds at usual sizes, and would leave fewer gathers.
    x = jax.ShapeDtypeStruct((1, 16, 16, 64), jnp.float32)
    dy = jax.eval_shape(pool, x)

    def lookups_left(of_cotangent, *arguments):
        program = jax.jit(of_cotangent).lower(x, *arguments).compile().as_text()
        return program.count(" gather(")

    given = lookups_left(lambda x, dy: jax.vjp(pool, x)[1](dy), dy)
    assert given
    assert lookups_left(lambda x: jax.vjp(pool, x)[1](jnp.ones(dy.shape))) == given
