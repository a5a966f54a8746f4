"""Zeros of both signs tie. Functions of PyTorch that return an index return the bits of the element there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.compat import torch


def float_bits(x):
    return np.asarray(x, np.float32).view(np.int32)


@pytest.mark.parametrize("values", [(-0.0, 1.0), (0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0, 0.0)])
@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min", "cummax", "cummin"])
def test_torch_drop_in_values_match_their_indices(name, values):
    x = np.array(values, np.float32)
    y, index = getattr(torch, name)(x, 0)
    np.testing.assert_array_equal(float_bits(y), float_bits(x[index]))
    dx = jax.grad(lambda x: getattr(torch, name)(x, 0).values.sum())(x)
    np.testing.assert_array_equal(dx, np.bincount(np.atleast_1d(index), minlength=x.size))


@pytest.mark.parametrize("window", [(2,), (41,), (90,)])
@pytest.mark.parametrize("ties", ["first", "last", "split"])
def test_ranks_are_positive_zeros(ties, window):
    x = jnp.where(jnp.arange(90.0).reshape(1, 90, 1) % 3, -0.0, 0.0)
    y, _ = jax.vjp(lambda x: jaxpool.rank_pool(x, 1, window, ties=ties), x)
    for value in (y, jaxpool.rank_pool(x, 1, window, ties=ties)):
        np.testing.assert_array_equal(float_bits(value), 0)


def test_median_of_masked_window_is_positive_zero():
    x = np.full((1, 3, 1), -0.0, np.float32)
    y = jax.vjp(lambda x: jaxpool.median_pool(x, (3,), where=np.zeros((3, 1), bool)), x)[0]
    assert float_bits(y).ravel() == 0
