"""Worked examples with known answers, including both tables of selected positions."""

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

TABLES = [((2, 2), SELECTED_AT_STRIDE_2, 9), ((1, 1), SELECTED_AT_STRIDE_1, 25)]

# One array in several layouts: a function that makes the layout, and the axes to pool.
LAYOUTS = {
    "channels last": (lambda a: a[None, :, :, None], None),
    "no batch": (lambda a: a[:, :, None], None),
    "channels first": (lambda a: a[None, None], (2, 3)),
    "alone": (lambda a: a, (0, 1)),
    "between": (lambda a: a[:, None, :], (0, 2)),
    "two batch axes": (lambda a: a[None, None, :, :, None], (-3, -2)),
}


def make_pool(name, autodiff, axes, strides):
    pool = getattr(jaxpool, name)
    return lambda x: pool(x, (2, 2), strides, axes=axes, autodiff=autodiff)


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("strides", "table", "windows"), TABLES, ids=["stride 2", "stride 1"])
def test_max_pool_selection_counts(strides, table, windows, layout, autodiff):
    arrange, axes = LAYOUTS[layout]
    pool = make_pool("max_pool", autodiff, axes, strides)

    @jax.jit
    def gradients(x):
        return jax.grad(lambda x: pool(x).sum())(x), jax.grad(lambda x: pool(x).mean())(x)

    of_sum, of_mean = gradients(arrange(EXAMPLE))
    np.testing.assert_array_equal(of_sum, arrange(table))
    np.testing.assert_allclose(of_mean, arrange(table) / windows, rtol=1e-6)


def test_gradient_of_the_mean_in_decimals():
    def gradient(strides):
        return jax.grad(lambda x: jaxpool.max_pool(x, (2, 2), strides).mean())(EXAMPLE[:, :, None])

    assert {f"{value:.4f}" for value in np.ravel(gradient((2, 2)))} == {"0.0000", "0.1111"}
    assert {f"{value:.2f}" for value in np.ravel(gradient((1, 1)))} == {
        "0.00",
        "0.04",
        "0.08",
        "0.16",
    }


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_min_pool_of_negated_input_selects_equal_positions(autodiff):
    for strides, table, _ in TABLES:
        pool = make_pool("min_pool", autodiff, (0, 1), strides)
        np.testing.assert_array_equal(jax.grad(lambda x, pool=pool: pool(x).sum())(-EXAMPLE), table)


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_avg_pool_gradients(layout, autodiff):
    arrange, axes = LAYOUTS[layout]

    @jax.jit
    def gradients(x):
        pools = [make_pool("avg_pool", autodiff, axes, strides) for strides in ((2, 2), (1, 1))]
        return [jax.grad(lambda x, pool=pool: pool(x).mean())(x) for pool in pools]

    everywhere, overlapping = gradients(arrange(EXAMPLE))
    np.testing.assert_allclose(everywhere, arrange(np.full((6, 6), 1 / 36)), rtol=1e-6)
    assert f"{np.ravel(everywhere)[0]:.4f}" == "0.0278"
    counts = np.outer([1, 2, 2, 2, 2, 1], [1, 2, 2, 2, 2, 1])
    np.testing.assert_allclose(overlapping, arrange(counts / 100), rtol=1e-6)


def test_avg_pool_gradient_of_4x4_input():
    x = jnp.arange(16.0).reshape(4, 4, 1)
    gradient = jax.grad(lambda x: jaxpool.avg_pool(x, (2, 2), (2, 2)).sum())(x)
    np.testing.assert_array_equal(gradient, np.full((4, 4, 1), 0.25))


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_unselected_operand_of_maximum_gets_zeros(autodiff):
    def larger_sum(a, b):
        return jaxpool.maximum(a.sum(), b.sum(), autodiff=autodiff)

    a, b = jnp.full((2, 3), 2.0), jnp.ones((4,))
    value, (da, db) = jax.value_and_grad(larger_sum, argnums=(0, 1))(a, b)
    assert value == 12
    np.testing.assert_array_equal(da, np.ones((2, 3)))
    np.testing.assert_array_equal(db, np.zeros((4,)))
    assert (da.shape, db.shape) == ((2, 3), (4,))


def test_padded_window_of_infinities_gives_padding_no_cotangent():
    """PyTorch agrees. lax loses a cotangent to the padding."""
    x = jnp.full((3, 1), -jnp.inf)
    gradient = jax.grad(lambda x: jaxpool.max_pool(x, (3,), (1,), 1).sum())(x)
    np.testing.assert_array_equal(gradient[:, 0], [2, 1, 0])


def test_nan_gets_the_cotangent():
    """lax sends the cotangent to the 5."""
    x = jnp.array([[jnp.nan], [5.0], [2.0]])
    value, gradient = jax.value_and_grad(lambda x: jaxpool.max_pool(x, (3,)).sum())(x)
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient[:, 0], [1, 0, 0])
    one, other = jax.grad(jaxpool.maximum, argnums=(0, 1))(jnp.nan, 1.0)
    assert (one, other) == (1, 0)
