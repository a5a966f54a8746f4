"""Max unpooling by one scatter that writes in order equals the scatter for an arbitrary order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.positions import (
    drop_overwritten_positions,
    gather_at_position,
    gather_in_order,
    scatter_add_at_position,
    scatter_in_order,
    scatter_last_wins,
)
from tests.support import forms

CASES = [  # shape of y, axes, sizes
    ((2, 4, 5, 3), (1, 2), (8, 15)),
    ((2, 4, 5, 3), (2, 1), (11, 9)),
    ((7, 2), (0,), (7,)),
    ((1, 2, 3, 2), (3, 1, 2), (4, 5, 6)),
    ((2, 3, 2, 5), (2, 0), (2, 3)),
    ((3, 2, 3, 2), (1, 2, 0), (3, 4, 2)),
]


@pytest.mark.parametrize(("shape", "axes", "sizes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_ordered_scatter_equals_unordered(shape, axes, sizes, dtype):
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.integers(-9, 10, shape), dtype)

    adding = functools.partial(scatter_in_order, accumulate=True)
    ways = [
        (scatter_in_order, scatter_last_wins),
        *[(adding, scatter_add_at_position)] * (dtype != "int8"),
    ]

    @jax.jit
    def run(y, position):
        return [[put(y, position, axes, sizes) for put in pair] for pair in ways]

    count = np.prod(sizes)
    anywhere = rng.integers(0, count, shape).astype(np.int32)  # with collisions
    beyond = np.where(rng.random(shape) < 0.2, count, anywhere).astype(np.int32)
    for position in (anywhere, beyond, np.full(shape, count // 2, np.int32)):
        for got, want in run(y, position):
            forms.assert_same_bits([got], [want], f"{axes} {dtype}")


@functools.partial(jax.jit, static_argnums=(2, 3))
def read_both_ways(x, position, axes, sizes):
    left = [
        drop_overwritten_positions(position, axes, sizes, writes_in_order=flag)
        for flag in (True, False)
    ]
    return [[read(x, position, axes) for read in (gather_in_order, gather_at_position)], left]


@pytest.mark.parametrize(("shape", "axes", "sizes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ordered_gather_equals_unordered(shape, axes, sizes, dtype):
    rng = np.random.default_rng(1)
    count = int(np.prod(sizes))
    whole = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        whole[axis] = size
    x = jnp.asarray(rng.integers(-9, 10, whole), dtype)
    position = rng.integers(0, count + 2, shape).clip(max=count).astype(np.int32)
    for one, other in read_both_ways(x, position, axes, sizes):
        np.testing.assert_array_equal(one, other)


def test_scatter_preserves_bits_of_16_bit_floats():
    bits = np.array([0x7FC1, 0xFFA0, 0x8000, 0x0001], np.uint16)
    y, position = bits.view(jnp.bfloat16), np.arange(4, dtype=np.int32)
    x = jax.jit(lambda y, position: scatter_in_order(y, position, (0,), (4,)))(y, position)
    np.testing.assert_array_equal(np.asarray(x).view(np.uint16), bits)
