"""A small convolutional network in Flax NNX, trained on images of noise."""

import sys
import time

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 16, (3, 3), rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.first(x)), (3, 3), (2, 2), "SAME")
        x = nnx.max_pool(nnx.relu(self.second(x)), (3, 3), (2, 2), "SAME")
        x = nnx.avg_pool(x, (2, 2), (2, 2))
        return self.head(x.mean((1, 2)))


def main(steps, size):
    random = np.random.default_rng(0)
    images = jnp.asarray(random.normal(size=(16, size, size, 3)), jnp.float32)
    labels = jnp.asarray(random.integers(0, 10, 16))
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.sgd(0.05), wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer):
        def loss_of(net):
            return optax.softmax_cross_entropy_with_integer_labels(net(images), labels).mean()

        loss, grads = nnx.value_and_grad(loss_of)(net)
        optimizer.update(net, grads)
        return loss

    for number in range(steps):
        if number == 1:  # the first step compiles
            start = time.perf_counter()
        print(f"{float(step(net, optimizer)):.5f}")
    if steps > 1:
        print(f"{(time.perf_counter() - start) / (steps - 1) * 1e3:.1f} ms", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
