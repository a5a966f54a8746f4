"""Morphology with kernels that contain NaN or infinities, over padding and over elements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

INF, NAN = np.inf, np.nan
X = np.array([1, 5, 2], np.float32)[None, :, None]


@pytest.mark.parametrize(("name", "sign"), [("dilate", 1), ("erode", -1)])
def test_nan_and_infinite_kernel_entries(name, sign):
    """-inf removes an element; +inf and NaN win, or meet padding of the opposite sign."""

    @jax.jit
    def pool(kernel):
        return sign * getattr(jaxpool, name)(jnp.asarray(sign * X), kernel, padding=1)[0, :, 0]

    np.testing.assert_array_equal(pool(np.float32([-INF, 0, 0])), [5, 5, 2])
    np.testing.assert_array_equal(pool(np.float32([0, 0, -INF])), [1, 5, 5])
    np.testing.assert_array_equal(pool(np.float32([INF, 0, 0])), [NAN, INF, INF])
    np.testing.assert_array_equal(pool(np.float32([0, 0, NAN])), [NAN, NAN, NAN])
