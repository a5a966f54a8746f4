"""Max unpooling by scatters and gathers that run in order equals scatters and gathers for an arbitrary order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.window import replace_sizes
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


@functools.partial(jax.jit, static_argnums=(3, 4))
def both_ways(y, x, position, axes, sizes):
    """Return pairs of results: in order, and for an arbitrary order."""
    add_in_order = functools.partial(scatter_in_order, accumulate=True)
    pairs = [[put(y, position, axes, sizes) for put in (scatter_in_order, scatter_last_wins)]]
    pairs += [[read(x, position, axes) for read in (gather_in_order, gather_at_position)]]
    if jnp.issubdtype(y.dtype, jnp.floating):
        adding = (add_in_order, scatter_add_at_position)
        pairs += [[put(y, position, axes, sizes) for put in adding]]
    drop = functools.partial(drop_overwritten_positions, position, axes, sizes)
    return [*pairs, [drop(writes_in_order=flag) for flag in (True, False)]]


@pytest.mark.parametrize(("shape", "axes", "sizes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_in_order_equals_any_order(shape, axes, sizes, dtype):
    rng = np.random.default_rng(0)
    count, whole = int(np.prod(sizes)), replace_sizes(shape, axes, sizes)
    x, y = (jnp.asarray(rng.integers(-9, 10, each), dtype) for each in (whole, shape))
    anywhere = rng.integers(0, count, shape).astype(np.int32)  # with collisions
    beyond = np.where(rng.random(shape) < 0.2, count, anywhere).astype(np.int32)
    for position in (anywhere, beyond, np.full(shape, count // 2, np.int32)):
        for got, want in both_ways(y, x, position, axes, sizes):
            forms.assert_same_bits([got], [want], f"{axes} {dtype}")


def test_scatter_preserves_bits_of_16_bit_floats():
    bits = np.array([0x7FC1, 0xFFA0, 0x8000, 0x0001], np.uint16)
    y, position = bits.view(jnp.bfloat16), np.arange(4, dtype=np.int32)
    x = jax.jit(lambda y, position: scatter_in_order(y, position, (0,), (4,)))(y, position)
    np.testing.assert_array_equal(np.asarray(x).view(np.uint16), bits)
