"""A worked example in two dimensions: the number of windows that select each element, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")


def grid(text):
    return np.array([line.split() for line in text.strip().splitlines()], np.float32)


EXAMPLE = grid("""
    1 3 4 2 5 2
    4 2 5 6 8 3
    5 3 7 8 9 3
    8 4 3 6 0 2
    7 10 3 6 3 5
    4 7 2 4 7 8
""")

SELECTED_AT_STRIDE_2 = grid("""
    0 0 0 0 0 0
    1 0 0 1 1 0
    0 0 0 1 1 0
    1 0 0 0 0 0
    0 1 0 1 0 0
    0 0 0 0 0 1
""")

SELECTED_AT_STRIDE_1 = grid("""
    0 0 0 0 0 0
    1 0 1 1 2 0
    1 0 2 2 4 0
    1 0 0 2 0 0
    0 4 0 1 0 1
    0 0 0 0 1 1
""")
COVERED_AT_STRIDE_1 = np.outer([1, 2, 2, 2, 2, 1], [1, 2, 2, 2, 2, 1])


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize(
    ("strides", "selected", "covered"),
    [(2, SELECTED_AT_STRIDE_2, np.ones((6, 6))), (1, SELECTED_AT_STRIDE_1, COVERED_AT_STRIDE_1)],
)
def test_gradients_of_sum_and_mean(strides, selected, covered, autodiff):
    def gradient(pool, x, reduce):
        options = {"axes": (0, 1), "autodiff": autodiff}
        return jax.grad(lambda x: reduce(pool(x, (2, 2), strides, **options)))(x)

    windows = {2: 9, 1: 25}[strides]
    np.testing.assert_array_equal(gradient(jaxpool.max_pool, EXAMPLE, jnp.sum), selected)
    np.testing.assert_array_equal(gradient(jaxpool.min_pool, -EXAMPLE, jnp.sum), selected)
    of_mean = gradient(jaxpool.max_pool, EXAMPLE, jnp.mean)
    np.testing.assert_allclose(of_mean, selected / windows, rtol=1e-6)
    of_mean = gradient(jaxpool.avg_pool, EXAMPLE, jnp.mean)
    np.testing.assert_allclose(of_mean, covered / windows / 4, rtol=1e-6)
