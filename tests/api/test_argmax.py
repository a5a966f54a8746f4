"""`max_pool_with_argmax`: large indices, and their gradient."""

import jax
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")


def test_indices_wider_than_tap_indices():
    """A window of 300 taps; the maximum is the last of 90,000 elements."""
    x = np.zeros((300, 300, 1), np.float32)
    x[-1, -1] = 1
    _, indices = jaxpool.max_pool_with_argmax(x, (15, 20), (15, 20))
    assert indices[-1, -1, 0] == 300 * 300 - 1
    assert indices[3, 4, 0] == 45 * 300 + 80


def test_indices_have_no_gradient():
    def loss(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2,), (2,))
        return (y * indices.astype(y.dtype)).sum()

    x = np.float32([[1], [2], [4], [3]])
    np.testing.assert_array_equal(jax.grad(loss)(x).ravel(), [0, 1, 2, 0])
