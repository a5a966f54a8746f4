"""Constants in a program do not grow with the image area: masks, counts and bounds are vectors along its axes."""

import functools
import re
import time

import jax
import jax.numpy as jnp
import pytest

from bench._jax_peer import value_and_vjp
from bench.every_op import OPS, SHAPE

X = jax.ShapeDtypeStruct((8, 256, 256, 4), jnp.float32)  # same size as `every_op.SHAPE`
AREA = 256 * 256


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", OPS)
def test_constants_are_smaller_than_image(name, platform):
    traced = jax.jit(lambda x: value_and_vjp(OPS[name], jnp.float32(1), x)).trace(X)
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
    known = seconds(lambda x: value_and_vjp(OPS[name], jnp.float32(1), x), x)
    given = seconds(functools.partial(value_and_vjp, OPS[name]), dy, x)
    assert known < 2 * given + 0.5
