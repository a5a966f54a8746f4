"""Medians, ranks and the k largest elements: partitioned programs, methods and masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops.op import is_partitioned

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8, np.uint8, np.bool_])
def test_k_max_pool_sorts_in_partitioned_programs(dtype):
    """XLA for CPU all-gathers the batch of a `top_k`."""
    values = [np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-45, -1.0] if dtype != np.bool_ else [0, 1]
    x = np.random.default_rng(0).choice(values, (3, 40, 2))
    x = jnp.asarray(
        np.nan_to_num(x, posinf=5, neginf=0) if np.dtype(dtype).kind in "iu" else x
    ).astype(dtype)
    pool = functools.partial(jaxpool.k_max_pool, k=20, axis=1)
    want = jax.jit(pool)(x)
    with is_partitioned(True):
        program = jax.jit(pool)
        assert "top_k" not in program.lower(x).as_text()
        np.testing.assert_array_equal(np.float32(program(x)), np.float32(want))


@pytest.mark.parametrize("method", ["higher", "lower", "midpoint"])
@pytest.mark.parametrize("taps", [3, 4])
def test_median_methods_match_numpy_quantile(method, taps):
    x = np.random.default_rng(taps).permutation(12).astype(np.float32)
    y = jaxpool.median_pool(x, taps, taps, axes=(0,), method=method)
    np.testing.assert_array_equal(y, np.quantile(x.reshape(-1, taps), 0.5, axis=1, method=method))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_midpoint_of_integers_matches_jnp_median(dtype):
    x = jnp.array([0, 1, 1, 0, 1, 1, 1, 0]).astype(dtype)
    y = jaxpool.median_pool(x, 4, 2, axes=(0,), method="midpoint")
    assert y.dtype == jnp.float32
    np.testing.assert_array_equal(y, [jnp.median(x[at : at + 4]) for at in (0, 2, 4)])
    assert jaxpool.median_pool(x, 4, axes=(0,), method="lower").dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_midpoint_of_large_values_and_nan(dtype):
    """NaN ranks above numbers, so a pair with NaN has the midpoint NaN. Large numbers do not overflow."""
    largest = float(jnp.finfo(dtype).max)
    x = jnp.array([largest, largest, np.nan, 1, -np.inf, np.nan, -2, -2], dtype)
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="midpoint")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, np.nan, np.nan, -2])
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="lower")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, 1, -np.inf, -2])


def test_too_few_unmasked_elements_give_zero():
    x, mask = jnp.array([5.0, 2.0, 7.0, 4.0]), jnp.array([True, True, False, True])
    for rank, want in ((1, [5, 0]), (-2, [2, 0]), (0, [2, 4]), (-1, [5, 4])):
        y = jaxpool.rank_pool(x, rank, 2, 2, axes=(0,), where=mask)
        np.testing.assert_array_equal(y, want)
    dx = jax.grad(lambda x: jaxpool.rank_pool(x, 1, 2, 2, axes=(0,), where=mask).sum())(x)
    np.testing.assert_array_equal(dx, [1, 0, 0, 0])
