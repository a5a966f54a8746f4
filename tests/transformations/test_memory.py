"""Peak memory is at most that of lax, and constants do not grow with the image."""

import functools
import re
import time

import jax
import jax.numpy as jnp
import pytest

import jaxpool
from bench import _jax_peer
from bench.every_op import OPS, SHAPE
from tests.support import lax_pools
from tests.support.compilation import DEFAULT_FUSION
from tests.support.programs import arguments, value_and_vjp
from tests.support.soft_pools import NAMES


def peak_bytes(pool, shape):
    """Return the bytes of results and temporaries, forward and backward."""
    lowered = jax.jit(value_and_vjp(pool)).lower(*arguments(pool, shape))
    memory = lowered.compile(DEFAULT_FUSION).memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


SETTINGS = [
    ((2, 112, 112, 64), 3, 2, ((1, 1), (1, 1)), (1, 2)),
    ((2, 64, 64, 32), 3, 1, "SAME", (1, 2)),
    ((2, 64, 64, 32), 5, 1, "VALID", (1, 2)),
    ((2, 64, 64, 32), 5, 2, "SAME", (1, 2)),
    ((2, 64, 64, 32), 5, 5, "VALID", (1, 2)),
    ((2, 65, 64, 32), 7, 7, "SAME", (1, 2)),
    ((2, 64, 64, 32), 13, 1, "SAME", (1, 2)),
    ((4, 4096, 32), 64, 32, "SAME", (1,)),
    ((2, 128, 128, 1), 3, 1, "SAME", (1, 2)),
    ((2, 112, 112, 3), 3, 2, "SAME", (1, 2)),
    ((2, 16, 112, 112), 3, 1, "SAME", (2, 3)),
    ((2, 16, 112, 112), 3, 2, "SAME", (2, 3)),
    ((16, 8, 1024), 3, 2, "SAME", (2,)),
    ((1, 16, 32, 32, 16), 3, 2, "SAME", (1, 2, 3)),
]


@pytest.mark.parametrize(("shape", "window", "strides", "padding", "axes"), SETTINGS)
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_no_more_memory_than_lax(shape, window, strides, padding, axes, kind):
    geometry = (window,) * len(axes), (strides,) * len(axes), padding
    channels_last = axes[0] == 1

    def theirs(x):
        return lax_pools.POOLS[kind](x, *geometry, axes=None if channels_last else axes)

    def ours(x):
        return getattr(jaxpool, f"{kind}_pool")(x, *geometry, axes=axes)

    # Between the two passes of a transposed sum, the intermediate has the size of y along one axis only.
    more = 1.03 if (kind, window, strides, padding) == ("avg", 5, 1, "VALID") else 1
    predicates = 1 << 10  # bytes for predicates of conditionals, and tuples
    assert peak_bytes(ours, shape) <= more * peak_bytes(theirs, shape) + predicates


@pytest.mark.parametrize(("window", "strides"), [(31, 16), (31, 20), (63, 40)])
def test_long_strided_avg_pool_intermediate_size(window, strides):
    shape = (2, 128, 128, 16)

    def pool(x):
        return jaxpool.avg_pool(x, (window, window), (strides, strides), "SAME")

    x = 4 * 2 * 128 * 128 * 16
    assert peak_bytes(pool, shape) < x + 4 * jax.eval_shape(pool, jnp.ones(shape)).size + x / 7


@pytest.mark.parametrize("pool", ["avg_pool", "max_pool"])
def test_padding_does_not_copy_large_array(pool):
    shape = (2, 128, 128, 32)
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    loss = jax.grad(lambda x: getattr(jaxpool, pool)(x, (3, 3), (2, 2), "SAME").sum())
    memory = jax.jit(loss).lower(x).compile(DEFAULT_FUSION).memory_analysis()
    assert memory.temp_size_in_bytes < 0.9 * 4 * x.size


SAME = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME"}
SOFT = [(name, masked) for name in NAMES for masked in (False, True)]


@pytest.mark.parametrize(("name", "masked"), SOFT)
def test_soft_pools_temporary_memory(name, masked):
    """At most four temporaries as large as x, including the buffers of the loop over taps."""
    x = jax.ShapeDtypeStruct((4, 64, 64, 64), jnp.float32)
    given = {"where": jax.ShapeDtypeStruct(x.shape, bool)} if masked else {}

    def both(x, dy, **given):
        y, back = jax.vjp(lambda x: getattr(jaxpool, name)(x, **SAME, **given), x)
        return y, back(dy)

    memory = jax.jit(both).lower(x, x, **given).compile(DEFAULT_FUSION).memory_analysis()
    arrays = (4 if "softmax" in name else 3) + 0.8 * masked  # the mask needs memory, too
    assert memory.temp_size_in_bytes <= arrays * 4 * x.size


# Constants: masks, counts and bounds are vectors along the axes of an image.

IMAGE = jax.ShapeDtypeStruct((8, 256, 256, 4), jnp.float32)  # as large as `SHAPE`
AREA = 256 * 256


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", OPS)
def test_constants_are_smaller_than_image(name, platform):
    traced = jax.jit(lambda x: _jax_peer.value_and_vjp(OPS[name], jnp.float32(1), x)).trace(IMAGE)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    digits = [len(found) for found in re.findall(r'dense<"0x([0-9A-F]*)"', text)]
    assert max(digits, default=0) < AREA // 4  # hexadecimal digits of one bit per pixel


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_constant_cotangent_compile_time(name):
    """XLA's constant folding took seconds of compile time for tables applied to constants."""
    x = jax.ShapeDtypeStruct(SHAPE, jnp.float32)

    def seconds(function, *arguments):
        lowered = jax.jit(function).lower(*arguments)
        begin = time.process_time()
        lowered.compile()
        return time.process_time() - begin

    dy = jax.ShapeDtypeStruct((), jnp.float32)
    known = seconds(lambda x: _jax_peer.value_and_vjp(OPS[name], jnp.float32(1), x), x)
    given = seconds(functools.partial(_jax_peer.value_and_vjp, OPS[name]), dy, x)
    assert known < 2 * given + 0.5


def test_constant_cotangents_of_adaptive_averages_are_not_folded():
    """XLA evaluated the cotangent of x, a constant, at compile time: 4 s for 32 levels."""
    x = jax.ShapeDtypeStruct((1, 64, 64, 8), jnp.float32)

    def loss(x):
        return jaxpool.spatial_pyramid_pool(x, (20, 21, 22, 23), kind="avg").sum()

    program = jax.jit(jax.grad(loss)).lower(x).compile(DEFAULT_FUSION).as_text()
    shapes = re.findall(r"= \w+\[([\d,]+)\]\S* constant\(", program)
    assert max(shape.count(",") for shape in shapes) < 2
