"""The demo on several devices: a mosaic of two photographs, and a network that segments it.

This module needs the `demo` extra. `demo.py` checks first that the extra is installed.
"""

from collections.abc import Callable
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
# Fraction of each photograph, from the left, for training. The rest is held out.
TRAINING_FRACTION = 0.7
CONV_CHANNELS = {
    "stem": (3, 8),
    "deep": (8, 16),
    "deeper": (16, 16),
    "up": (16, 8),
    "logits": (8, 1),
}
Weights = dict[str, jax.Array]
ShardedWrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


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
    """Untrained convolution kernels."""
    rng = np.random.default_rng(seed)
    kernels = {}
    for name, channels in CONV_CHANNELS.items():
        shape = (3, 3, *channels)
        values = rng.standard_normal(shape) * (2 / np.prod(shape[:3])) ** 0.5
        kernels[name] = jnp.asarray(values, jnp.float32)
    return kernels


def _conv3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def logits(weights: Weights, x: jax.Array, sharded: ShardedWrapper) -> jax.Array:
    """Map `(B, H, W, 3)` to `(B, H, W)` by two max pools, an unpool of the second, an average pool, and repetition.

    `sharded` is `jaxpool.sharded` with the arguments `mesh` and `spec`.
    """
    batch, height, width, _ = x.shape
    x = jax.nn.relu(_conv3x3(x, weights["stem"]))
    x = sharded(jaxpool.max_pool)(x, (3, 3), (2, 2), "SAME")
    x = jax.nn.relu(_conv3x3(x, weights["deep"]))
    x, indices = sharded(jaxpool.max_pool_with_argmax)(x, (2, 2), (2, 2))
    x = jax.nn.relu(_conv3x3(x, weights["deeper"]))
    x = sharded(jaxpool.max_unpool)(x, indices, (height // 2, width // 2))
    x = jax.nn.relu(_conv3x3(x, weights["up"]))
    x = sharded(jaxpool.avg_pool)(x, (9, 9), (1, 1), "SAME", count_include_pad=False)
    x = _conv3x3(x, weights["logits"])[..., 0]
    x = jnp.broadcast_to(x[:, :, None, :, None], (batch, height // 2, 2, width // 2, 2))
    return x.reshape(batch, height, width)


def loss(weights: Weights, x: jax.Array, labels: jax.Array, sharded: ShardedWrapper) -> jax.Array:
    """The mean cross-entropy over all pixels."""
    return optax.sigmoid_binary_cross_entropy(logits(weights, x, sharded), labels).mean()
