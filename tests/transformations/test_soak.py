"""20,000 training steps in one process: constant memory, no recompilation, and the same loss as with lax."""

import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool

STEPS = 20_000
RECORD_INTERVAL = 2_000


def loss(params, x, labels):
    """Loss of a small network with the pools of lax."""
    kernel, weights = params
    y = lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    y = lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    scores = jax.nn.log_softmax(y.reshape(len(x), -1) @ weights)
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean()


def train(value_and_grad):
    """Return losses and peak memory in MB every `RECORD_INTERVAL` steps, and the number of compilations of the step."""

    @jax.jit
    def step(params, x, labels):
        value, grads = value_and_grad(params, x, labels)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), value

    rng = np.random.default_rng(0)
    images = rng.random((64, 4, 8, 8, 1), np.float32)
    labels = rng.integers(0, 2, (64, 4))
    images[:, :, 2, 2, 0] += 2 * labels
    kernel = rng.standard_normal((3, 3, 1, 8)).astype(np.float32) / 3
    params = kernel, np.zeros((2 * 2 * 8, 2), np.float32)
    losses, held = [], []
    for i in range(STEPS):
        params, now = step(params, images[i % 64], labels[i % 64])
        if i % RECORD_INTERVAL == RECORD_INTERVAL - 1:
            losses.append(float(now))
            held.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return losses, held, step._cache_size()


@pytest.mark.slow
def test_memory_is_constant_and_loss_equals_lax():
    got, held, compiled = train(jaxpool.accelerate(jax.value_and_grad(loss)))
    want, _, _ = train(jax.value_and_grad(loss))
    assert compiled <= 2  # for NumPy arrays, and for the results of the first step
    assert held[-1] - held[0] < 8  # MB of peak memory
    assert got[-1] < got[0]
    np.testing.assert_allclose(got, want, rtol=1e-3)
