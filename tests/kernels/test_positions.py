"""Positions of windows along long axes, and scatters to positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.positions import ragged_window_bounds, scatter_in_order


@pytest.mark.parametrize("out", [63, 1_428_572])
def test_window_bounds_of_long_axis(out):
    size = 10_000_000
    (dim,) = adaptive_window((1, size, 1), (out,), None).dims
    number = np.unique(np.linspace(0, out - 1, 999).astype(int))
    start, last = ragged_window_bounds(dim, jnp.asarray(number, np.int32))
    assert (np.asarray(start) == number * size // out).all()
    assert (np.asarray(start + last) == -(-(number + 1) * size // out) - 1).all()


def test_scatter_preserves_bits_of_16_bit_floats():
    bits = np.array([0x7FC1, 0xFFA0, 0x8000, 0x0001], np.uint16)
    y, position = bits.view(jnp.bfloat16), np.arange(4, dtype=np.int32)
    x = jax.jit(lambda y, position: scatter_in_order(y, position, (0,), (4,)))(y, position)
    np.testing.assert_array_equal(np.asarray(x).view(np.uint16), bits)
