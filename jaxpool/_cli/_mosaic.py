"""The demo on several devices: a mosaic of two photographs, and a network that segments it.

This module needs the `demo` extra. `demo.py` checks first that the extra is installed.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from sklearn.datasets import load_sample_images

import jaxpool

PIECE_SIZE = 128  # rows and columns of a piece of a photograph
PIECES_PER_SIDE = 8  # pieces along each side of the mosaic
MOSAIC_SIZE = PIECE_SIZE * PIECES_PER_SIDE
TRAINING_FRACTION = (
    0.7  # fraction of each photograph, from the left, for training; the rest is held out
)
CONV_CHANNELS = {"stem": (3, 8), "deep": (8, 16), "deeper": (16, 16), "up": (16, 8)}
Weights = dict[str, jax.Array]


def make_mosaic(seed: int, *, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """An image `(1, MOSAIC_SIZE, MOSAIC_SIZE, 3)` of random pieces, from -1 to 1, and the photograph of each pixel.

    The photograph is 0 or 1. The top edge cuts pieces in half, so that some pieces cross the border between devices.
    """
    photographs = np.stack(load_sample_images().images)
    border = int(photographs.shape[2] * TRAINING_FRACTION)
    photographs = photographs[:, :, border:] if held_out else photographs[:, :, :border]
    rng = np.random.default_rng(seed)
    piece_labels = rng.permutation(np.arange(PIECES_PER_SIDE**2) % 2).reshape(
        PIECES_PER_SIDE, PIECES_PER_SIDE
    )
    rows = []
    for label_row in piece_labels:
        pieces = []
        for photograph in label_row:
            top, left = rng.integers(0, np.array(photographs.shape[1:3]) - PIECE_SIZE)
            piece = photographs[photograph, top : top + PIECE_SIZE, left : left + PIECE_SIZE]
            pieces.append(piece[:, :: rng.choice([-1, 1])])
        rows.append(np.concatenate(pieces, 1))
    image = np.concatenate(rows).astype(np.float32) / 127.5 - 1
    labels = piece_labels.repeat(PIECE_SIZE, 0).repeat(PIECE_SIZE, 1).astype(np.float32)
    return np.roll(image, PIECE_SIZE // 2, 0)[None], np.roll(labels, PIECE_SIZE // 2, 0)[None]


def init_conv_kernels(seed: int) -> Weights:
    """Untrained convolution kernels; `logits` has one output channel."""
    rng = np.random.default_rng(seed)
    shapes = {name: (3, 3, *channels) for name, channels in CONV_CHANNELS.items()} | {
        "logits": (3, 3, 8, 1)
    }
    return {
        name: jnp.asarray(rng.standard_normal(shape) * (2 / np.prod(shape[:3])) ** 0.5, jnp.float32)
        for name, shape in shapes.items()
    }


def _conv3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def logits(weights: Weights, x: jax.Array, sharding_arguments: dict[str, Any]) -> jax.Array:
    """Map `(B, H, W, 3)` to `(B, H, W)` by two max pools, an unpool of the second, an average pool, and repetition.

    `sharding_arguments` holds the arguments `mesh` and `spec` of `jaxpool.sharded`.
    """
    batch, height, width, _ = x.shape
    x = jax.nn.relu(_conv3x3(x, weights["stem"]))
    x = jaxpool.sharded(jaxpool.max_pool, **sharding_arguments)(x, (3, 3), (2, 2), "SAME")
    x = jax.nn.relu(_conv3x3(x, weights["deep"]))
    x, indices = jaxpool.sharded(jaxpool.max_pool_with_argmax, **sharding_arguments)(
        x, (2, 2), (2, 2)
    )
    x = jax.nn.relu(_conv3x3(x, weights["deeper"]))
    x = jaxpool.sharded(jaxpool.max_unpool, **sharding_arguments)(
        x, indices, (height // 2, width // 2)
    )
    x = jax.nn.relu(_conv3x3(x, weights["up"]))
    x = jaxpool.sharded(jaxpool.avg_pool, **sharding_arguments)(
        x, (9, 9), (1, 1), "SAME", count_include_pad=False
    )
    x = _conv3x3(x, weights["logits"])[..., 0]
    return jnp.broadcast_to(x[:, :, None, :, None], (batch, height // 2, 2, width // 2, 2)).reshape(
        batch, height, width
    )


def loss(
    weights: Weights, x: jax.Array, labels: jax.Array, sharding_arguments: dict[str, Any]
) -> jax.Array:
    """The mean cross-entropy over all pixels."""
    return optax.sigmoid_binary_cross_entropy(logits(weights, x, sharding_arguments), labels).mean()


def make_optimizer(num_steps: int) -> optax.GradientTransformation:
    """Adam, with a learning rate that decays to 0 over `num_steps`."""
    return optax.adam(optax.cosine_decay_schedule(2e-2, num_steps))


def train_step(
    weights: Weights,
    optimizer_state: Any,
    x: jax.Array,
    labels: jax.Array,
    *,
    num_steps: int,
    sharding_arguments: dict[str, Any],
) -> tuple[Weights, Any, jax.Array]:
    """One optimizer step. Returns the new weights and state, and the loss before the step."""
    loss_value, gradients = jax.value_and_grad(
        functools.partial(loss, sharding_arguments=sharding_arguments)
    )(weights, x, labels)
    updates, optimizer_state = make_optimizer(num_steps).update(gradients, optimizer_state)
    return optax.apply_updates(weights, updates), optimizer_state, loss_value
