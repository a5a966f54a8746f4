"""Classify handwritten digits with Flax alone: a script for `python -m jaxpool run`, which computes its pools.

python -m jaxpool run examples/flax_digits.py [--steps 100] [--seed 0]
"""

import argparse

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.first(x)), (2, 2), (2, 2))
        x = nnx.avg_pool(nnx.relu(self.second(x)), (4, 4))
        return self.head(x.reshape(len(x), -1))


@nnx.jit
def train_step(net, optimizer, images, labels):
    def loss(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(images), labels).mean()

    value, gradients = nnx.value_and_grad(loss)(net)
    optimizer.update(net, gradients)
    return value


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=256, random_state=0, stratify=labels
    )
    net = Net(nnx.Rngs(args.seed))
    optimizer = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)
    order = np.random.default_rng(args.seed).integers(len(images), size=(args.steps, 256))
    losses = [float(train_step(net, optimizer, images[i], labels[i])) for i in order]
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {args.steps} steps")
    accuracy = (jnp.argmax(net(test_images), 1) == test_labels).mean()
    print(f"held-out accuracy {accuracy:.1%}")
    return losses


if __name__ == "__main__":
    main()
