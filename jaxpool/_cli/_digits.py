"""The demo on scikit-learn's handwritten digits, 8x8 pixels each: a network, its training, and the picture.

This module needs the `demo` extra. `demo.py` checks that the extra is installed before it imports this module.
"""

import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jaxpool

BATCH_SIZE = 64
NUM_DIGITS_DRAWN = 6


class Network(nnx.Module):
    """Convolution, max pool, convolution, average pool, the maximum of two linear maps (maxout), ten logits."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.linear1 = nnx.Linear(2 * 2 * 64, 64, rngs=rngs)
        self.linear2 = nnx.Linear(2 * 2 * 64, 64, rngs=rngs)
        self.logits = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images `(B, 8, 8, 1)` to logits `(B, 10)`."""
        x = nnx.relu(jaxpool.max_pool(self.conv1(images), (2, 2), (2, 2)))
        x = nnx.relu(self.conv2(x))
        x = jaxpool.avg_pool(x, (2, 2), (2, 2))
        x = x.reshape(len(x), -1)
        return self.logits(jaxpool.maximum(self.linear1(x), self.linear2(x)))


@functools.partial(nnx.jit, static_argnums=(0, 1))
def _new_network(seed: int, num_steps: int) -> tuple[Network, nnx.Optimizer]:
    """An untrained network, and an optimizer whose learning rate decays to 0 over `num_steps`."""
    network = Network(rngs=nnx.Rngs(seed))
    schedule = optax.cosine_decay_schedule(4e-3, num_steps)
    return network, nnx.Optimizer(network, optax.adamw(schedule), wrt=nnx.Param)


@nnx.jit
def _train_step(
    network: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> None:
    """Update the network in place by one optimizer step."""

    def loss(network: Network) -> jax.Array:
        logits = network(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    optimizer.update(network, nnx.grad(loss)(network))


def train_and_draw(num_steps: int, seed: int, picture_path: Path) -> float:
    """Train a network, and draw digits. Returns the accuracy on the fifth of the digits that is held out."""
    all_images, all_labels = load_digits(return_X_y=True)
    all_images = (all_images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    images, held_out_images, labels, held_out_labels = train_test_split(
        all_images, all_labels.astype(np.int32), test_size=0.2, random_state=0, stratify=all_labels
    )
    print(
        f"Handwritten digits: {len(labels)} to learn from, {len(held_out_labels)} held out. "
        f"Backend: {jax.default_backend()}."
    )
    start_time = time.perf_counter()
    network, optimizer = _new_network(seed, num_steps)
    rng = np.random.default_rng(seed)
    for _ in tqdm(range(num_steps), desc="training", unit="step", disable=None):
        batch = rng.choice(len(labels), BATCH_SIZE, replace=False)
        _train_step(network, optimizer, images[batch], labels[batch])
    predictions = np.asarray(nnx.jit(Network.__call__)(network, held_out_images)).argmax(-1)
    is_correct = predictions == held_out_labels
    print(
        f"Held-out accuracy: {is_correct.mean():.2%} ({is_correct.sum()} of {len(is_correct)}) "
        f"after {num_steps} steps, {time.perf_counter() - start_time:.1f} s with compilation."
    )
    drawn = [int(np.argmax(held_out_labels == digit)) for digit in range(NUM_DIGITS_DRAWN)]
    draw_picture(held_out_images[drawn], predictions[drawn]).savefig(picture_path, dpi=130)
    print(f"Picture of the pixels that the cotangent of a max pool goes to: {picture_path}")
    return float(is_correct.mean())


def draw_picture(images: np.ndarray, predictions: np.ndarray) -> Figure:
    """One column per image of the digits 0, 1, 2, ...: its pixels, their max pool, and the pixels with a cotangent."""
    max_pooled, vjp_fn = jax.vjp(lambda x: jaxpool.max_pool(x, (2, 2), (2, 2)), images)
    (cotangent,) = vjp_fn(jnp.ones_like(max_pooled))
    rows = [
        ("a digit held out", images, "Greys"),
        ("its 2x2 max pool\nwith stride 2", max_pooled, "Greys"),
        (
            "its cotangent: 1 at the\nfirst largest pixel of\neach window, else 0",
            cotangent,
            "Oranges",
        ),
    ]
    figure = Figure(figsize=(2 + 1.7 * len(images), 6.5), layout="constrained")
    figure.suptitle("Where the cotangent of a max pool goes")
    panels = figure.subplots(len(rows), len(images))
    for (label, arrays, colours), axes_row in zip(rows, panels, strict=True):
        axes_row[0].set_ylabel(label, fontsize=9)
        for array, axes in zip(np.asarray(arrays), axes_row, strict=True):
            axes.imshow(array[..., 0], cmap=colours, vmin=0, vmax=1)
            window_edges = [len(array) * part / 4 - 0.5 for part in (1, 2, 3)]
            axes.set_xticks(window_edges, labels=[])
            axes.set_yticks(window_edges, labels=[])
            axes.grid(color="#bbbbbb", linewidth=0.6)
    for digit, (axes, guess) in enumerate(zip(panels[0], predictions, strict=True)):
        colour = "black" if digit == guess else "firebrick"
        axes.set_title(f"digit {digit}, read as {guess}", fontsize=10, color=colour)
    return figure
