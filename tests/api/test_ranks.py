"""The k largest elements in partitioned programs, and medians of large values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._ops.op import is_partitioned
from jaxpool._ops.rank_pool import RankPool, apply_rank_pool

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


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_midpoint_of_large_values_and_nan(dtype):
    """NaN ranks above numbers, so a pair with NaN has the midpoint NaN. Large numbers do not overflow."""
    largest = float(jnp.finfo(dtype).max)
    x = jnp.array([largest, largest, np.nan, 1, -np.inf, np.nan, -2, -2], dtype)
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="midpoint")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, np.nan, np.nan, -2])
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="lower")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, 1, -np.inf, -2])


def test_mask_and_subset_of_elements_of_whole_axis():
    """A pool of some elements of a whole axis leaves masked elements out, and has the chosen kind of derivatives."""
    x = jnp.arange(40.0)
    mask = np.arange(40) < 20
    window = make_window(x.shape, (40,), (40,), [(0, 0)], [1], axes=(0,))
    op = RankPool(window, "first", tuple(range(0, 40, 2)), -1)

    def pool(x):
        return apply_rank_pool(op, x, jnp.asarray(mask), autodiff="vjp")[0]

    assert pool(x) == 18
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(pool, [x], [x])
