"""Classify handwritten digits: a max pool, a global average and maxout in a network of plain JAX.

python examples/digits.py [--steps 300] [--seed 0]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import jaxpool


def data():
    """Training and test images (N, 8, 8, 1) from 0 to 1, then training and test labels."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def init(key):
    keys = jax.random.split(key, 3)
    shapes = {"lines": (3, 3, 1, 32), "shapes": (3, 3, 32, 64), "logits": (64, 10 * 2)}
    return {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def conv(x, kernel):
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def network(params, images):
    """(B, 8, 8, 1) to logits (B, 10)."""
    x = jax.nn.relu(conv(images, params["lines"]))
    x = jaxpool.max_pool(x, (2, 2), (2, 2))
    x = jax.nn.relu(conv(x, params["shapes"]))
    x = jaxpool.global_avg_pool(x)
    return jaxpool.maxout(x @ params["logits"], 10)


def loss(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(network(params, images), labels).mean()


def train(steps, seed=0):
    """Train on `steps` batches of 64. Return the parameters, the losses and the held-out accuracy."""
    images, held_out_images, labels, held_out_labels = data()
    params, optimizer = init(jax.random.key(seed)), optax.adam(5e-3)
    state, random, losses = optimizer.init(params), np.random.default_rng(seed), []

    @jax.jit
    def step(params, state, images, labels):
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    for _ in range(steps):
        batch = random.integers(len(labels), size=64)
        params, state, value = step(params, state, images[batch], labels[batch])
        losses.append(float(value))
    read = np.asarray(network(params, jnp.asarray(held_out_images))).argmax(-1)
    return params, losses, float((read == held_out_labels).mean())


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    _, losses, accuracy = train(args.steps, args.seed)
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {args.steps} steps")
    print(f"held-out accuracy {accuracy:.1%}")
    return losses


if __name__ == "__main__":
    main()
