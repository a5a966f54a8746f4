"""Positions of windows along long axes, and scatters to positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.patches import window_starts_and_lengths
from jaxpool._kernels.positions import scatter_in_order


@pytest.mark.parametrize("out", [63, 1_428_572])
def test_window_bounds_of_long_axis(out):
    size = 10_000_000
    (dim,) = adaptive_window((1, size, 1), (out,), None).dims
    number = np.arange(out)
    start, length = map(np.asarray, window_starts_and_lengths(dim))
    assert (start == number * size // out).all()
    assert (start + length == -(-(number + 1) * size // out)).all()


def test_scatter_preserves_bits_of_16_bit_floats():
    bits = np.array([0x7FC1, 0xFFA0, 0x8000, 0x0001], np.uint16)
    y, position = bits.view(jnp.bfloat16), np.arange(4, dtype=np.int32)
    x = jax.jit(lambda y, position: scatter_in_order(y, position, (0,), (4,)))(y, position)
    np.testing.assert_array_equal(np.asarray(x).view(np.uint16), bits)
