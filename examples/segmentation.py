"""Segment a digit on a photograph: a network that pools and unpools.

`max_unpool` writes each value to the position that `max_pool_with_argmax` selected, so edges stay sharp.

python examples/segmentation.py [--steps 400] [--seed 0]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from sklearn.datasets import load_digits, load_sample_image

import jaxpool

SIDE = 32


def data(number, seed):
    """Pictures (N, 32, 32, 3) of digits in random colours on a photograph, and their masks (N, 32, 32)."""
    random = np.random.default_rng(seed)
    photograph = load_sample_image("china.jpg").astype(np.float32) / 255
    digits = load_digits().images / 16
    pictures, masks = [], []
    for digit in digits[random.integers(len(digits), size=number)]:
        top, left = random.integers(0, np.array(photograph.shape[:2]) - SIDE)
        row, column = random.integers(0, SIDE - 16, size=2)
        mask = np.zeros((SIDE, SIDE), np.float32)
        mask[row : row + 16, column : column + 16] = np.kron(digit, np.ones((2, 2))) > 0.5
        ground = photograph[top : top + SIDE, left : left + SIDE]
        pictures.append(np.where(mask[..., None] > 0, random.uniform(size=3), ground))
        masks.append(mask)
    return np.float32(pictures), np.float32(masks)


def init(key):
    shapes = {
        "see": (5, 5, 3, 24),
        "join": (3, 3, 24, 24),
        "spread": (3, 3, 48, 16),
        "ink": (3, 3, 16, 1),
    }
    return {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(jax.random.split(key, 4), shapes.items(), strict=True)
    }


def conv(x, kernel):
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def network(params, pictures):
    """Map pictures (B, 32, 32, 3) to one logit per pixel (B, 32, 32)."""
    seen = jax.nn.relu(conv(pictures, params["see"]))
    x, indices = jaxpool.max_pool_with_argmax(seen, (2, 2), (2, 2))
    x = jax.nn.relu(conv(x, params["join"]))
    x = jaxpool.max_unpool(x, indices, (SIDE, SIDE))
    x = jax.nn.relu(conv(jnp.concatenate([x, seen], -1), params["spread"]))
    return conv(x, params["ink"])[..., 0]


def loss(params, pictures, masks):
    return optax.sigmoid_binary_cross_entropy(network(params, pictures), masks).mean()


def overlap(params, pictures, masks):
    """Intersection over union of the predicted masks and the true masks."""
    predicted, true = np.asarray(network(params, pictures)) > 0, masks > 0
    return float((predicted & true).sum() / (predicted | true).sum())


def train(steps, seed=0):
    """Train on `steps` batches of 32. Return the parameters, the losses and the held-out overlap."""
    pictures, masks = data(32 * min(steps, 32), seed)
    params, optimizer = init(jax.random.key(seed)), optax.adam(1e-2)
    state, losses = optimizer.init(params), []

    @jax.jit
    def step(params, state, pictures, masks):
        value, gradients = jax.value_and_grad(loss)(params, pictures, masks)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    for number in range(steps):
        batch = slice(number % 32 * 32, number % 32 * 32 + 32)
        params, state, value = step(params, state, pictures[batch], masks[batch])
        losses.append(float(value))
    return params, losses, overlap(params, *data(64, seed + 1))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    _, losses, share = train(args.steps, args.seed)
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {args.steps} steps")
    print(f"held out: intersection over union of the ink {share:.2f}")
    return losses


if __name__ == "__main__":
    main()
