"""The demo's network and its data: scikit-learn's handwritten digits, 8x8 pixels each.

This module needs the `demo` extra. `demo.py` checks that the extra is installed before it imports this module.
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

BATCH_SIZE = 64


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

    def random_batches(self, seed: int, num_steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches in random order, each image shifted by up to one pixel along each axis."""
        rng = np.random.default_rng(seed)
        padded_images = np.pad(self.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        indices = np.empty(0, np.int64)
        for _ in range(num_steps):
            if len(indices) < BATCH_SIZE:
                indices = np.concatenate([indices, rng.permutation(len(self.labels))])
            batch, indices = indices[:BATCH_SIZE], indices[BATCH_SIZE:]
            rows, columns = np.arange(8) + rng.integers(0, 3, (2, BATCH_SIZE, 1))
            images = padded_images[batch[:, None, None], rows[:, :, None], columns[:, None, :]]
            yield images, self.labels[batch]


class Maxout(nnx.Module):
    """The elementwise maximum of two linear maps."""

    def __init__(self, num_inputs: int, num_outputs: int, *, rngs: nnx.Rngs) -> None:
        self.first_linear = nnx.Linear(num_inputs, num_outputs, rngs=rngs)
        self.second_linear = nnx.Linear(num_inputs, num_outputs, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map `(B, num_inputs)` to `(B, num_outputs)`."""
        return jaxpool.maximum(self.first_linear(x), self.second_linear(x))


class Network(nnx.Module):
    """Convolution, max pool, convolution, average pool, maxout, ten logits."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.maxout = Maxout(2 * 2 * 64, 64, rngs=rngs)
        self.logits = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images `(B, 8, 8, 1)` to logits `(B, 10)`."""
        x = nnx.relu(jaxpool.max_pool(self.conv1(images), (2, 2), (2, 2)))
        x = nnx.relu(self.conv2(x))
        x = jaxpool.avg_pool(x, (2, 2), (2, 2))
        x = self.maxout(x.reshape(len(x), -1))
        return self.logits(x)


@functools.partial(nnx.jit, static_argnums=(0, 1))
def new_network(seed: int, num_steps: int) -> tuple[Network, nnx.Optimizer]:
    """An untrained network, and an optimizer whose learning rate decays to 0 over `num_steps`."""
    network = Network(rngs=nnx.Rngs(seed))
    schedule = optax.cosine_decay_schedule(4e-3, num_steps)
    return network, nnx.Optimizer(network, optax.adamw(schedule, weight_decay=1e-3), wrt=nnx.Param)


def cross_entropy_loss(network: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(network(images), labels).mean()


held_out_loss = nnx.jit(cross_entropy_loss)


@nnx.jit
def train_step(
    network: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Update the network in place by one optimizer step. Returns the loss before the step."""
    loss, gradients = nnx.value_and_grad(cross_entropy_loss)(network, images, labels)
    optimizer.update(network, gradients)
    return loss


@nnx.jit
def predict_digits(network: Network, images: jax.Array) -> jax.Array:
    """The predicted digit of each image: `(B,)`."""
    return network(images).argmax(-1)


@dataclasses.dataclass(frozen=True)
class LossHistory:
    """The loss at each of N training steps, `(N,)`, and the held-out loss after M of these steps, `(M,)`."""

    losses: np.ndarray
    held_out_steps: np.ndarray
    held_out_losses: np.ndarray

    def moving_mean_losses(self, window_size: int) -> tuple[np.ndarray, np.ndarray]:
        """The last step of each window of `window_size` losses, and the mean of each window."""
        window_size = min(window_size, len(self.losses))
        means = np.convolve(self.losses, np.full(window_size, 1 / window_size), "valid")
        return np.arange(window_size, len(self.losses) + 1), means


@dataclasses.dataclass(frozen=True)
class PictureArrays:
    """Arrays of the picture, for N digits: pixels `(N, 8, 8)`, labels `(N,)` and predictions `(N,)`.

    `max_pooled` is a 2x2 max pool of the image with stride 2, `(N, 4, 4)`. `selected_pixels` has the pixels that
    receive the cotangent of `max_pooled`, and NaN for all other pixels.
    """

    images: np.ndarray
    max_pooled: np.ndarray
    selected_pixels: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray

    @classmethod
    def from_network(cls, network: Network, digits: Digits, num_digits: int) -> "PictureArrays":
        """The first held-out image of each digit from 0 to `num_digits - 1`."""
        labels = np.arange(num_digits)
        first_indices = [int(np.argmax(digits.held_out_labels == label)) for label in labels]
        images = digits.held_out_images[np.array(first_indices)]
        max_pooled, vjp_fn = jax.vjp(lambda x: jaxpool.max_pool(x, (2, 2), (2, 2)), images)
        (cotangent,) = vjp_fn(jnp.ones_like(max_pooled))
        selected_pixels = np.where(np.asarray(cotangent) > 0, images, np.nan)
        pixels = images[..., 0], np.asarray(max_pooled)[..., 0], selected_pixels[..., 0]
        return cls(*pixels, labels, np.asarray(predict_digits(network, images)))
