"""Locate the centre of a digit on a photograph: a heat map from dilated and softmax pooling.

A dilated max pool enlarges the receptive field without reducing the resolution. Softmax pooling halves the
resolution, and its gradient reaches every pixel of a window.

python examples/keypoint.py [--steps 200] [--seed 0]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from sklearn.datasets import load_digits, load_sample_image

import jaxpool

SIDE, MAP = 48, 24
PLACES = np.float32(
    np.arange(MAP) * (SIDE / MAP) + 0.5
)  # centres of the cells of the map, in pixels


def data(number, seed):
    """Pictures (N, 48, 48, 1) of digits on a photograph, and the centres of mass (row, column) of the digits (N, 2)."""
    random = np.random.default_rng(seed)
    photograph = load_sample_image("china.jpg").mean(-1).astype(np.float32) / 255
    digits = load_digits().images / 16
    pictures, centres = [], []
    for digit in digits[random.integers(len(digits), size=number)]:
        top, left = random.integers(0, np.array(photograph.shape) - SIDE)
        corner = random.integers(0, SIDE - 16, size=2)
        ink = np.zeros((SIDE, SIDE), np.float32)
        ink[corner[0] : corner[0] + 16, corner[1] : corner[1] + 16] = np.kron(
            digit, np.ones((2, 2))
        )
        pictures.append(
            (1 - ink) * photograph[top : top + SIDE, left : left + SIDE] + ink * random.uniform()
        )
        centres.append((np.indices(ink.shape) * ink).sum((1, 2)) / ink.sum())
    return np.float32(pictures)[..., None], np.float32(centres)


def init(key):
    shapes = {
        "see": (5, 5, 1, 16),
        "near": (3, 3, 16, 32),
        "far": (3, 3, 64, 32),
        "heat": (1, 1, 32, 1),
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
    """Map pictures (B, 48, 48, 1) to the logits of heat maps (B, 24, 24)."""
    x = jax.nn.relu(conv(pictures, params["see"]))
    x = jaxpool.softmax_pool(x, (2, 2), (2, 2))
    near = jax.nn.relu(conv(x, params["near"]))
    far = jaxpool.max_pool(near, (3, 3), padding="SAME", window_dilation=(4, 4))
    x = jax.nn.relu(conv(jnp.concatenate([near, far], -1), params["far"]))
    return conv(x, params["heat"])[..., 0]


def located(params, pictures):
    """The mean position of each heat map, (row, column) in pixels of the picture (B, 2)."""
    logits = network(params, pictures)
    heat = jax.nn.softmax(logits.reshape(len(logits), -1)).reshape(logits.shape)
    return jnp.stack([heat.sum(2) @ PLACES, heat.sum(1) @ PLACES], -1)


def loss(params, pictures, centres):
    """Cross-entropy of the heat map against a Gaussian around the centre, three pixels wide."""
    logits = network(params, pictures)
    rows, columns = (jnp.exp(-(((PLACES - centres[:, axis, None]) / 3) ** 2)) for axis in (0, 1))
    target = rows[:, :, None] * columns[:, None, :]
    target = (target / target.sum((1, 2), keepdims=True)).reshape(len(logits), -1)
    return optax.softmax_cross_entropy(logits.reshape(len(logits), -1), target).mean()


def train(steps, seed=0):
    """Train on `steps` batches of 32. Return parameters, losses and the median distance on held-out pictures."""
    pictures, centres = data(32 * min(steps, 32), seed)
    params, optimizer = init(jax.random.key(seed)), optax.adam(3e-3)
    state, losses = optimizer.init(params), []

    @jax.jit
    def step(params, state, pictures, centres):
        value, gradients = jax.value_and_grad(loss)(params, pictures, centres)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    for number in range(steps):
        batch = slice(number % 32 * 32, number % 32 * 32 + 32)
        params, state, value = step(params, state, pictures[batch], centres[batch])
        losses.append(float(value))
    held_out, wanted = data(64, seed + 1)
    away = np.linalg.norm(np.asarray(located(params, held_out)) - wanted, axis=-1)
    return params, losses, float(np.median(away))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    _, losses, away = train(args.steps, args.seed)
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {args.steps} steps")
    print(
        f"held out: the centre is found to {away:.1f} pixels, the median; pictures have {SIDE}x{SIDE}"
    )
    return losses


if __name__ == "__main__":
    main()
