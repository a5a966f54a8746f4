"""Fractional pooling: random windows against loops, averages, and derivatives."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.chance import KEY, THREEFRY

pytestmark = pytest.mark.usefixtures("strict")


def test_fractional_windows_vary_by_lane_and_are_uniform():
    """With `arange` as input, the maximum is the last index of its window."""
    lanes, size, width, out = 4000, 20, 2, 8
    x = np.broadcast_to(np.arange(size, dtype=np.int32)[:, None], (size, lanes))
    begins = np.asarray(jaxpool.fractional_max_pool(KEY, x, (width,), (out,))) - (width - 1)
    alpha = (size - width) / (out - 1)
    assert (begins[0] == 0).all()
    assert (begins[-1] == size - width).all()
    steps = np.diff(begins, axis=0)
    assert set(np.unique(steps[:-1])) == {int(alpha), int(alpha) + 1}
    assert len(np.unique(begins, axis=1).T) > 5
    np.testing.assert_allclose(begins[:-1].mean(1), alpha * np.arange(out - 1), atol=0.2)


def test_fractional_draws_differ_by_axis_and_key():
    x = np.arange(12 * 12, dtype=np.float32).reshape(12, 12)[None, :, :, None].repeat(50, 0)
    pool = jax.jit(lambda key: jaxpool.fractional_max_pool(key, x, 2, (5, 5)))
    y = np.asarray(pool(KEY))[..., 0].astype(int)
    rows, columns = y[:, :, 0] // 12, y[:, 0, :] % 12
    assert (rows != columns).any()
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).any()
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))


@pytest.mark.slow
def test_fractional_vmap_over_keys():
    x = np.random.default_rng(9).random((8, 8, 5)).astype(np.float32)
    keys = jax.random.split(THREEFRY, 3)
    pool = functools.partial(jaxpool.fractional_max_pool, x=x, window_shape=2, output_shape=(5, 5))
    mapped = np.asarray(jax.jit(jax.vmap(pool))(keys))
    np.testing.assert_array_equal(mapped[2], pool(keys[2]))
    assert (mapped[0] != mapped[1]).any()


def test_fractional_avg_pool_matches_tensorflow():
    """With a ratio of 2 the windows do not depend on the key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow's imports warn
        tf = pytest.importorskip("tensorflow")
    x = np.random.default_rng(0).normal(size=(2, 8, 6, 3)).astype(np.float32)
    want, rows, columns = tf.nn.fractional_avg_pool(x, [1.0, 2.0, 2.0, 1.0], pseudo_random=True)
    f = functools.partial(jaxpool.fractional_avg_pool, jax.random.key(0))
    y, back = jax.vjp(lambda x: f(x, (2, 2), (4, 3)), jnp.asarray(x))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    dy = np.random.default_rng(1).normal(size=want.shape).astype(np.float32)
    grad = tf.raw_ops.FractionalAvgPoolGrad(
        orig_input_tensor_shape=x.shape,
        out_backprop=dy,
        row_pooling_sequence=rows,
        col_pooling_sequence=columns,
    )
    np.testing.assert_allclose(back(jnp.asarray(dy))[0], grad, rtol=1e-5, atol=1e-6)
