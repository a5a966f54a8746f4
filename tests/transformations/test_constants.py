"""What a program holds does not grow with the image: masks, counts and bounds are vectors along its axes."""

import re

import jax
import jax.numpy as jnp
import pytest

from bench.every_op import OPS, value_and_gradient

X = jax.ShapeDtypeStruct((8, 256, 256, 4), jnp.float32)  # as many elements as `every_op.SHAPE`
AREA = 256 * 256


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", OPS)
def test_no_constant_is_as_large_as_an_image(name, platform):
    traced = jax.jit(lambda x: value_and_gradient(OPS[name], x, jnp.float32(1))).trace(X)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    digits = [len(found) for found in re.findall(r'dense<"0x([0-9A-F]*)"', text)]
    assert max(digits, default=0) < AREA // 4  # the hexadecimal digits of a bit a pixel
