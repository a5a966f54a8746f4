"""Morphology and fractional averages against TensorFlow, if it is installed: values and gradients."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's imports warn
    tf = pytest.importorskip("tensorflow")


def random_arguments(seed):
    """Random arguments of a dilation, in the form of TensorFlow and in ours."""
    rng = np.random.default_rng(seed)
    kernel = (*rng.integers(1, 4, 2), rng.integers(1, 4))
    strides, dilations = rng.integers(1, 3, 2), rng.integers(1, 3, 2)
    x = rng.permutation(2 * 8 * 9 * kernel[2]).reshape(2, 8, 9, kernel[2]).astype(np.float32)
    padding = str(rng.choice(["SAME", "VALID"]))
    weights = rng.permutation(int(np.prod(kernel))).reshape(kernel).astype(np.float32) / 64
    theirs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
    ours = {"strides": tuple(map(int, strides)), "window_dilation": tuple(map(int, dilations))}
    return x, weights, {**theirs, "data_format": "NHWC"}, {**ours, "padding": padding}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["dilate", "erode"])
def test_morphology_matches_tensorflow(name, seed):
    x, kernel, theirs, ours = random_arguments(seed)
    # TensorFlow's erosion reverses the kernel.
    tf_kernel = kernel[::-1, ::-1] if name == "erode" else kernel
    op = tf.nn.dilation2d if name == "dilate" else tf.nn.erosion2d
    with tf.GradientTape() as tape:
        a, b = tf.constant(x), tf.constant(tf_kernel)
        tape.watch((a, b))
        want = op(a, b, **theirs)
        dy = np.cos(np.arange(np.prod(want.shape), dtype=np.float32)).reshape(want.shape)
        loss = tf.reduce_sum(want * dy)
    dx, dk = (np.asarray(d) for d in tape.gradient(loss, (a, b)))
    f = functools.partial(getattr(jaxpool, name), **ours)
    y, back = jax.vjp(f, jnp.asarray(x), jnp.asarray(kernel))
    np.testing.assert_allclose(y, want, rtol=1e-6)
    got_x, got_k = back(jnp.asarray(dy))
    np.testing.assert_allclose(got_x, dx, rtol=1e-5, atol=1e-5)
    dk = dk[::-1, ::-1] if name == "erode" else dk
    np.testing.assert_allclose(got_k, dk, rtol=1e-4, atol=1e-4)


def test_fractional_avg_pool_matches_tensorflow():
    """With a ratio of 2 the windows do not depend on the key."""
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
