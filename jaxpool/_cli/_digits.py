"""The demo's network and its data: scikit-learn's handwritten digits, 8x8 pixels each.

Needs the `demo` extra; `demo.py` checks that before it imports this module.
"""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import jaxpool

BATCH = 64


@dataclasses.dataclass(frozen=True)
class Digits:
    """Images `(B, 8, 8, 1)` from 0 to 1 and their labels `(B,)`, for training and held out."""

    images: np.ndarray
    labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray

    @classmethod
    def load(cls) -> "Digits":
        """Load the digits: four fifths for training, one fifth held out, always the same split."""
        images, labels = load_digits(return_X_y=True)
        images = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
        images, held_out_images, labels, held_out_labels = train_test_split(
            images, labels.astype(np.int32), test_size=0.2, random_state=0, stratify=labels
        )
        return cls(images, labels, held_out_images, held_out_labels)

    def batches(self, seed: int, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches in random order, each image shifted by up to one pixel along each axis."""
        random = np.random.default_rng(seed)
        padded = np.pad(self.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        order = np.empty(0, np.int64)
        for _ in range(steps):
            if len(order) < BATCH:
                order = np.concatenate([order, random.permutation(len(self.labels))])
            batch, order = order[:BATCH], order[BATCH:]
            rows, columns = np.arange(8) + random.integers(0, 3, (2, BATCH, 1))
            images = padded[batch[:, None, None], rows[:, :, None], columns[:, None, :]]
            yield images, self.labels[batch]


class Maxout(nnx.Module):
    """The elementwise maximum of two linear maps."""

    def __init__(self, size_in: int, size_out: int, *, rngs: nnx.Rngs) -> None:
        self.one = nnx.Linear(size_in, size_out, rngs=rngs)
        self.other = nnx.Linear(size_in, size_out, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """`(B, size_in)` to `(B, size_out)`."""
        return jaxpool.maximum(self.one(x), self.other(x))


class Network(nnx.Module):
    """Convolution, max pool, convolution, average pool, maxout, ten logits."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.lines = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.shapes = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.maxout = Maxout(2 * 2 * 64, 64, rngs=rngs)
        self.logits = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images `(B, 8, 8, 1)` to logits `(B, 10)`."""
        x = nnx.relu(jaxpool.max_pool(self.lines(images), (2, 2), (2, 2)))
        x = nnx.relu(self.shapes(x))
        x = jaxpool.avg_pool(x, (2, 2), (2, 2))
        x = self.maxout(x.reshape(len(x), -1))
        return self.logits(x)


@functools.partial(nnx.jit, static_argnums=(0, 1))
def new_network(seed: int, steps: int) -> tuple[Network, nnx.Optimizer]:
    """An untrained network, and an optimizer whose learning rate decays to 0 over `steps`."""
    network = Network(rngs=nnx.Rngs(seed))
    rate = optax.cosine_decay_schedule(4e-3, steps)
    return network, nnx.Optimizer(network, optax.adamw(rate, weight_decay=1e-3), wrt=nnx.Param)


def loss_of(network: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(network(images), labels).mean()


held_out_loss = nnx.jit(loss_of)


@nnx.jit
def train_step(
    network: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Update the network in place by one optimizer step. Returns the loss before the step."""
    loss, gradients = nnx.value_and_grad(loss_of)(network, images, labels)
    optimizer.update(network, gradients)
    return loss


@nnx.jit
def read(network: Network, images: jax.Array) -> jax.Array:
    """The predicted digit of each image: `(B,)`."""
    return network(images).argmax(-1)


@nnx.jit
def count_right(network: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Number of images that the network classifies correctly."""
    return (read(network, images) == labels).sum()


@dataclasses.dataclass(frozen=True)
class History:
    """The loss at each of N training steps, `(N,)`, and the loss on the digits held out after some of them, `(M,)`."""

    losses: np.ndarray
    held_out_steps: np.ndarray
    held_out_losses: np.ndarray

    def smoothed(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Moving means over `width` losses, and the last step of each."""
        width = min(width, len(self.losses))
        means = np.convolve(self.losses, np.full(width, 1 / width), "valid")
        return np.arange(width, len(self.losses) + 1), means


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Arrays of the picture, for N digits: pixels `(N, 8, 8)`, labels `(N,)` and predictions `(N,)`.

    `pooled` is a 2x2 max pool of the image with stride 2, `(N, 4, 4)`. `chosen` has the pixels that receive its
    cotangent, and NaN for all others.
    """

    images: np.ndarray
    pooled: np.ndarray
    chosen: np.ndarray
    labels: np.ndarray
    read: np.ndarray

    @classmethod
    def of(cls, network: Network, digits: Digits, count: int) -> "Drawn":
        """The first held-out image of each digit from 0 to `count - 1`."""
        labels = np.arange(count)
        first = [int(np.argmax(digits.held_out_labels == label)) for label in labels]
        images = digits.held_out_images[np.array(first)]
        pooled, pull_back = jax.vjp(lambda x: jaxpool.max_pool(x, (2, 2), (2, 2)), images)
        (cotangent,) = pull_back(jnp.ones_like(pooled))
        chosen = np.where(np.asarray(cotangent) > 0, images, np.nan)
        pixels = images[..., 0], np.asarray(pooled)[..., 0], chosen[..., 0]
        return cls(*pixels, labels, np.asarray(read(network, images)))
