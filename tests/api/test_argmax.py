"""`max_pool_with_argmax`: values, indices, cotangents, dtypes and transformations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import draw_values, oracle, pool_cases
from tests.support.argmax_pools import column, every_dtype, hashable_options, pooled
from tests.support.drawn import examples, with_new_values

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("ties", ["first", "last"])
@examples(4)
@given(data=st.data())
def test_value_indices_and_cotangent(ties, autodiff, data):
    drawn = data.draw(pool_cases(kinds=("max",), ties=(ties,)))
    for case in with_new_values(drawn, ("ties", "special", "lowest"), rounds=2):
        answer = case.answer()
        dy = np.sign(case.dy)  # small integers have exact sums
        options = hashable_options(**case.geometry(), ties=ties, autodiff=autodiff)
        y, indices, dx = pooled(case.x, dy, options)
        assert indices.dtype == np.int32
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_array_equal(dx, answer.cotangent(dy))


@every_dtype
def test_dtypes(dtype):
    geometry = {"window_shape": (3,), "strides": (2,), "padding": ((1, 1),)}
    rng = np.random.default_rng(0)
    for kind in ("ties", "special", "lowest"):
        x = draw_values(rng, (9, 5), dtype, kind)
        answer = oracle.max_pool(x, **geometry)
        dy = np.ones(answer.y.shape, dtype) if oracle.is_floating(dtype) else None
        y, indices, dx = pooled(x, dy, hashable_options(**geometry))
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.float64(y), np.float64(answer.y))
        np.testing.assert_array_equal(indices, answer.indices)
        if dy is not None:
            assert dx.dtype == dtype
            np.testing.assert_array_equal(np.float64(dx), np.float64(answer.cotangent(dy)))


def test_split_ties_return_the_first_index():
    x = column(2, 1, 2, 2, 3, 3)
    y, indices, dx = pooled(
        x, column(6, 8), hashable_options(window_shape=3, strides=3, axes=(0,), ties="split")
    )
    np.testing.assert_array_equal(y, column(2, 3))
    np.testing.assert_array_equal(indices, column(0, 4))
    np.testing.assert_array_equal(dx, column(3, 0, 3, 0, 4, 4))


def test_indices_of_nan_and_never_of_padding():
    y, indices = jaxpool.max_pool_with_argmax(column(1, NAN, 5, NAN), (4,))
    assert np.isnan(y).all()
    assert indices.item() == 1
    assert jaxpool.max_pool_with_argmax(column(1, NAN, 5, NAN), (4,), ties="last")[1].item() == 3
    infinities = column(-INF, -INF, -INF)
    for ties, want in [("first", (0, 0, 1)), ("last", (1, 2, 2)), ("split", (0, 0, 1))]:
        _, indices = jaxpool.max_pool_with_argmax(infinities, (3,), padding=1, ties=ties)
        np.testing.assert_array_equal(indices, column(*want))


def test_indices_are_row_major_in_axes_order():
    x = np.zeros((2, 3, 4), np.float32)
    x[1, 2, 3] = 1
    for axes, want in [((0, 1), 1 * 3 + 2), ((1, 0), 2 * 2 + 1), ((2, 0), 3 * 2 + 1)]:
        shape = tuple(x.shape[axis] for axis in axes)
        y, indices = jaxpool.max_pool_with_argmax(x, shape, axes=axes)
        assert indices.max() == want
        assert y.shape == tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


def test_indices_wider_than_tap_indices():
    """A window of 300 taps; the maximum is the last of 90,000 elements."""
    x = np.zeros((300, 300, 1), np.float32)
    x[-1, -1] = 1
    _, indices = jaxpool.max_pool_with_argmax(x, (15, 20), (15, 20))
    assert indices[-1, -1, 0] == 300 * 300 - 1
    assert indices[3, 4, 0] == 45 * 300 + 80


def test_residual_is_one_tap_index_per_output():
    x = jnp.zeros((4, 6, 6, 3))
    for autodiff in ("vjp", "jvp"):
        pool = functools.partial(
            jaxpool.max_pool_with_argmax, window_shape=(2, 2), strides=(2, 2), autodiff=autodiff
        )
        _, pullback, _ = jax.vjp(pool, x, has_aux=True)
        residuals = [leaf for leaf in jax.tree.leaves(pullback) if leaf.size > 1]
        assert [(leaf.dtype, leaf.shape) for leaf in residuals] == [(np.uint8, (4, 3, 3, 3))]


def test_indices_have_no_gradient():
    def loss(x):
        y, indices = jaxpool.max_pool_with_argmax(x, (2,), (2,))
        return (y * indices.astype(y.dtype)).sum()

    x = column(1, 2, 4, 3)
    np.testing.assert_array_equal(jax.grad(loss)(x), column(0, 1, 2, 0))
