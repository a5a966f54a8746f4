"""The demo on scikit-learn's handwritten digits, 8x8 pixels each: a network, its training, and the picture.

This module needs the `demo` extra. `demo.py` checks that the extra is installed before it imports this module.
"""

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jaxpool

BATCH_SIZE = 64
# Training steps between two held-out losses, and in each moving mean of the training loss.
STEPS_PER_HELD_OUT_LOSS = 20
NUM_DIGITS_DRAWN = 6
COLOURS = ("#ffd9a0", "#ffb454", "#ff9a1f", "#f27d00", "#8a4a00")
PICTURE_CAPTION = (
    "Forward, a 2x2 max pool with stride 2 keeps the largest, darkest pixel of each window, the first of equal ones. "
    "Backward,\nthe cotangent of each output goes to that pixel, and the other three get 0. The lines part the windows."
)


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
    return network, nnx.Optimizer(network, optax.adamw(schedule, weight_decay=1e-3), wrt=nnx.Param)


@nnx.jit
def _loss(network: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(network(images), labels).mean()


@nnx.jit
def _train_step(
    network: Network, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Update the network in place by one optimizer step. Returns the loss before the step."""
    loss, gradients = nnx.value_and_grad(_loss)(network, images, labels)
    optimizer.update(network, gradients)
    return loss


def _random_batches(
    images: np.ndarray, labels: np.ndarray, seed: int, num_steps: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches in random order, each image shifted by up to one pixel along each axis."""
    rng = np.random.default_rng(seed)
    padded_images = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    indices = np.empty(0, np.int64)
    for _ in range(num_steps):
        if len(indices) < BATCH_SIZE:
            indices = np.concatenate([indices, rng.permutation(len(labels))])
        batch, indices = indices[:BATCH_SIZE], indices[BATCH_SIZE:]
        rows, columns = np.arange(8) + rng.integers(0, 3, (2, BATCH_SIZE, 1))
        yield (
            padded_images[batch[:, None, None], rows[:, :, None], columns[:, None, :]],
            labels[batch],
        )


def train_and_draw(num_steps: int, seed: int, picture_path: Path) -> float:
    """Train a network, and draw digits and losses. Returns the accuracy on the fifth of the digits that is held out."""
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
    batches = _random_batches(images, labels, seed, num_steps)
    progress = tqdm(batches, total=num_steps, desc="training", unit="step", disable=None)
    losses, held_out_losses = [], {}
    for step, batch in enumerate(progress, 1):
        losses.append(_train_step(network, optimizer, *batch))
        if step % STEPS_PER_HELD_OUT_LOSS == 0 or step == num_steps:
            held_out_losses[step] = float(_loss(network, held_out_images, held_out_labels))
            progress.set_postfix(loss=f"{float(losses[-1]):.4f}")
    predictions = np.asarray(nnx.jit(Network.__call__)(network, held_out_images)).argmax(-1)
    is_correct = predictions == held_out_labels
    print(
        f"Held-out accuracy: {is_correct.mean():.2%} ({is_correct.sum()} of {len(is_correct)}) "
        f"after {num_steps} steps, {time.perf_counter() - start_time:.1f} s with compilation."
    )
    first_indices = [int(np.argmax(held_out_labels == digit)) for digit in range(NUM_DIGITS_DRAWN)]
    digits = held_out_images[first_indices], predictions[first_indices]
    draw_picture(*digits, np.array(losses), held_out_losses).savefig(picture_path, dpi=130)
    print(
        f"Picture of the pixels that the cotangent of a max pool goes to, and of the loss: {picture_path}"
    )
    return float(is_correct.mean())


def draw_picture(
    images: np.ndarray,
    predictions: np.ndarray,
    losses: np.ndarray,
    held_out_losses: dict[int, float],
) -> Figure:
    """The figure of the demo: the pool of images of the digits 0, 1, 2, ..., and below it the losses."""
    figure = Figure(figsize=(2 + 1.7 * len(images), 9.2), layout="constrained")
    subfigures: Any = figure.subfigures(2, 1, height_ratios=(6.8, 2.4))
    _draw_digits(subfigures[0], images, predictions)
    _draw_losses(subfigures[1].subplots(), losses, held_out_losses)
    return figure


def _draw_digits(figure: Any, images: np.ndarray, predictions: np.ndarray) -> None:
    """One column per digit: its pixels, their max pool, and the pixels with a cotangent."""
    max_pooled, vjp_fn = jax.vjp(lambda x: jaxpool.max_pool(x, (2, 2), (2, 2)), images)
    (cotangent,) = vjp_fn(jnp.ones_like(max_pooled))
    selected_pixels = np.where(np.asarray(cotangent) > 0, images, np.nan)
    oranges = LinearSegmentedColormap.from_list("oranges", COLOURS)
    selected_label = "the pixels that get the\ncotangent, 1 each;\nall others get 0"
    rows = [
        ("a digit held out", images, "Greys", "pixel"),
        ("its 2x2 max pool\nwith stride 2", np.asarray(max_pooled), "Greys", "pixel"),
        (selected_label, selected_pixels, oranges, "selected pixel"),
    ]
    axes_grid = figure.subplots(len(rows), len(images))
    for (label, panels, colours, colorbar_label), axes_row in zip(rows, axes_grid, strict=True):
        axes_row[0].set_ylabel(label, fontsize=9)
        for panel, axes in zip(panels, axes_row, strict=True):
            image = axes.imshow(panel[..., 0], cmap=colours, vmin=0, vmax=1)
            edges = [len(panel) * part / 4 - 0.5 for part in (1, 2, 3)]
            axes.set_xticks(edges, labels=[])
            axes.set_yticks(edges, labels=[])
            axes.tick_params(length=0)
            axes.grid(color="#bbbbbb", linewidth=0.6)
        figure.colorbar(image, ax=axes_row, label=colorbar_label, ticks=[0, 0.5, 1], aspect=12)
    for digit, (axes, guess) in enumerate(zip(axes_grid[0], predictions, strict=True)):
        colour = "black" if digit == guess else "firebrick"
        axes.set_title(f"a {digit}, read as {guess}", fontsize=10, color=colour)
    figure.suptitle("Where the cotangent of a max pool goes")
    figure.supxlabel(PICTURE_CAPTION, fontsize=9)


def _draw_losses(axes: Any, losses: np.ndarray, held_out_losses: dict[int, float]) -> None:
    """The training loss at each step, its moving mean, and the held-out loss."""
    window_size = min(STEPS_PER_HELD_OUT_LOSS, len(losses))
    means = np.convolve(losses, np.full(window_size, 1 / window_size), "valid")
    steps = np.arange(1, len(losses) + 1)
    axes.semilogy(steps, losses, color=COLOURS[0], linewidth=0.8, label="training")
    label = f"training, mean of {window_size} steps"
    axes.semilogy(steps[window_size - 1 :], means, color=COLOURS[-1], linewidth=1.6, label=label)
    held_out = [*held_out_losses], [*held_out_losses.values()]
    axes.semilogy(*held_out, "o-", color="#0072B2", markersize=3, linewidth=1.2, label="held out")
    axes.legend(fontsize=8, frameon=False)
    axes.set_xlabel("training step")
    axes.set_ylabel("loss (cross-entropy)")
    axes.grid(color="#dddddd", linewidth=0.6)
