"""A small convolutional network in Equinox, trained on images of noise."""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

steps, size = int(sys.argv[1]), int(sys.argv[2])
keys = jax.random.split(jax.random.key(0), 3)
net = eqx.nn.Sequential(
    [
        eqx.nn.Conv2d(3, 16, 3, padding=1, key=keys[0]),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.MaxPool2d(3, 2, padding=1),
        eqx.nn.Conv2d(16, 16, 3, padding=1, key=keys[1]),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.AvgPool2d(2, 2),
        eqx.nn.Lambda(lambda x: x.mean((1, 2))),
        eqx.nn.Linear(16, 10, key=keys[2]),
    ]
)
random = np.random.default_rng(0)
images = jnp.asarray(random.normal(size=(16, 3, size, size)), jnp.float32)
labels = jnp.asarray(random.integers(0, 10, 16))


@eqx.filter_jit
@eqx.filter_value_and_grad
def loss_and_gradients(net):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(jax.vmap(net)(images)), labels[:, None], 1)
    return -chosen.mean()


for number in range(steps):
    if number == 1:  # the first step compiles
        start = time.perf_counter()
    loss, gradients = loss_and_gradients(net)
    net = eqx.apply_updates(net, jax.tree.map(lambda g: -0.05 * g, gradients))
    print(f"{float(loss):.5f}")
if steps > 1:
    print(f"{(time.perf_counter() - start) / (steps - 1) * 1e3:.1f} ms", file=sys.stderr)
