"""`python -m jaxpool demo --devices N`: train a network on one image that is sharded over N devices of this host.

The image is a mosaic of two photographs, and the network segments it. This module needs the `demo` extra. `demo.py`
checks that the extra is installed before it imports this module.
"""

import functools
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_images
from tqdm import tqdm

import jaxpool
from jaxpool._cli import UsageError

PIECE_SIZE = 128  # rows and columns of a piece of a photograph
PIECES_PER_SIDE = 8  # pieces along each side of the mosaic
MOSAIC_SIZE = PIECE_SIZE * PIECES_PER_SIDE
# Fraction of each photograph, from the left, for training. The rest is held out.
TRAINING_FRACTION = 0.7
TRAINING_STEPS = 30
MIN_ACCURACY = 0.8
GRADIENT_TOLERANCE = 1e-5  # allowed difference of gradients, relative to the largest element
ROW_SHARDING = PartitionSpec(None, "rows")
CONV_CHANNELS = {
    "stem": (3, 8),
    "deep": (8, 16),
    "deeper": (16, 16),
    "up": (16, 8),
    "logits": (8, 1),
}
Weights = dict[str, jax.Array]


def run(num_devices: int, seed: int, picture_path: Path) -> int:
    """Train and draw. Returns 1 if the accuracy is too low or gradients differ from those on one device, else 0."""
    if MOSAIC_SIZE // 4 % num_devices:
        raise UsageError(
            f"`--devices` must be a divisor of {MOSAIC_SIZE // 4}; got --devices={num_devices}."
        )
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", num_devices)
    mesh = _make_cpu_mesh(num_devices)
    sharding = NamedSharding(mesh, ROW_SHARDING)
    image, labels = (jax.device_put(x, sharding) for x in _make_mosaic(seed, held_out=False))
    weights = jax.device_put(_init_weights(seed), NamedSharding(mesh, PartitionSpec()))
    print(
        f"A mosaic of two photographs, {MOSAIC_SIZE} x {MOSAIC_SIZE} pixels: "
        f"each of {num_devices} devices holds {MOSAIC_SIZE // num_devices} rows. "
        "The network says of every pixel which photograph it is of."
    )
    gradients_match = _gradients_match_single_device(weights, image, labels, mesh)
    weights = _train_weights(weights, image, labels, mesh)
    image, labels = (jax.device_put(x, sharding) for x in _make_mosaic(seed + 1, held_out=True))
    predictions = np.asarray(jax.jit(functools.partial(_logits, mesh))(weights, image))[0] > 0
    accuracy = float((predictions == np.asarray(labels)[0]).mean())
    print(f"Pixels of parts held out that are told apart: {accuracy:.1%}.")
    _draw_predictions(np.asarray(image)[0], predictions, num_devices, picture_path)
    return 0 if gradients_match and accuracy >= MIN_ACCURACY else 1


def _make_cpu_mesh(num_devices: int) -> jax.sharding.Mesh:
    devices = jax.devices("cpu")[:num_devices]
    return jax.make_mesh((num_devices,), ("rows",), (AxisType.Auto,), devices=devices)


def _make_mosaic(seed: int, *, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """An image `(1, MOSAIC_SIZE, MOSAIC_SIZE, 3)` of random pieces, from -1 to 1, and the photograph of each pixel.

    The photograph is 0 or 1. The top edge cuts pieces in half, so that some pieces cross the border between devices.
    """
    photographs = np.stack(load_sample_images().images)
    border = int(photographs.shape[2] * TRAINING_FRACTION)
    photographs = photographs[:, :, border:] if held_out else photographs[:, :, :border]
    rng = np.random.default_rng(seed)
    piece_labels = rng.permutation(np.arange(PIECES_PER_SIDE**2) % 2)
    piece_labels = piece_labels.reshape(PIECES_PER_SIDE, PIECES_PER_SIDE)
    image = np.empty((MOSAIC_SIZE, MOSAIC_SIZE, 3), np.float32)
    for (row, column), photograph in np.ndenumerate(piece_labels):
        top, left = rng.integers(0, np.array(photographs.shape[1:3]) - PIECE_SIZE)
        piece = photographs[photograph, top : top + PIECE_SIZE, left : left + PIECE_SIZE]
        rows, columns = (slice(at * PIECE_SIZE, (at + 1) * PIECE_SIZE) for at in (row, column))
        image[rows, columns] = piece[:, :: rng.choice([-1, 1])] / 127.5 - 1
    labels = piece_labels.repeat(PIECE_SIZE, 0).repeat(PIECE_SIZE, 1).astype(np.float32)
    return np.roll(image, PIECE_SIZE // 2, 0)[None], np.roll(labels, PIECE_SIZE // 2, 0)[None]


def _init_weights(seed: int) -> Weights:
    """Untrained kernels of 3x3 convolutions."""
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(
            rng.standard_normal((3, 3, *channels)) * (2 / (9 * channels[0])) ** 0.5, jnp.float32
        )
        for name, channels in CONV_CHANNELS.items()
    }


def _conv3x3(x: jax.Array, kernel: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)


def _logits(mesh: jax.sharding.Mesh, weights: Weights, x: jax.Array) -> jax.Array:
    """Map `(B, H, W, 3)` to `(B, H, W)` by two max pools, an unpool of the second, an average pool, and repetition."""

    def sharded(pool: Callable[..., Any]) -> Callable[..., Any]:
        return jaxpool.sharded(pool, mesh=mesh, spec=ROW_SHARDING)

    _, height, width, _ = x.shape
    x = jax.nn.relu(_conv3x3(x, weights["stem"]))
    x = sharded(jaxpool.max_pool)(x, (3, 3), (2, 2), "SAME")
    x = jax.nn.relu(_conv3x3(x, weights["deep"]))
    x, indices = sharded(jaxpool.max_pool_with_argmax)(x, (2, 2), (2, 2))
    x = jax.nn.relu(_conv3x3(x, weights["deeper"]))
    x = sharded(jaxpool.max_unpool)(x, indices, (height // 2, width // 2))
    x = jax.nn.relu(_conv3x3(x, weights["up"]))
    x = sharded(jaxpool.avg_pool)(x, (9, 9), (1, 1), "SAME", count_include_pad=False)
    return _conv3x3(x, weights["logits"])[..., 0].repeat(2, 1).repeat(2, 2)


def _loss(mesh: jax.sharding.Mesh, weights: Weights, x: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy over all pixels."""
    return optax.sigmoid_binary_cross_entropy(_logits(mesh, weights, x), labels).mean()


def _gradients_match_single_device(
    weights: Weights, image: jax.Array, labels: jax.Array, mesh: jax.sharding.Mesh
) -> bool:
    """Whether the sharded gradient equals the gradient on one device. Prints the program's memory and communication."""
    sharded_args = weights, image, labels
    single_args = jax.device_put(sharded_args, jax.devices("cpu")[0])
    sharded_program, single_program = (
        jax.jit(jax.grad(functools.partial(_loss, mesh_of_program))).lower(*args).compile()
        for mesh_of_program, args in ((mesh, sharded_args), (_make_cpu_mesh(1), single_args))
    )
    got, want = sharded_program(*sharded_args), single_program(*single_args)
    error = max(
        float(np.abs(np.asarray(got[name]) - want[name]).max() / np.abs(want[name]).max())
        for name in want
    )
    sent_bytes = _bytes_sent(sharded_program)
    memory: list[Any] = [sharded_program.memory_analysis(), single_program.memory_analysis()]
    shard_bytes, full_bytes = (each.temp_size_in_bytes for each in memory)
    print(
        f"Gradients and those of one device differ by {error:.0e} at most, beside the largest.\n"
        f"For a gradient a device holds {shard_bytes / 1e6:.1f} MB of activations; "
        f"one alone {full_bytes / 1e6:.1f} MB.\n"
        f"It sends {sent_bytes / 1e3:.0f} kB of halos, of pools and convolutions: "
        f"{sent_bytes / shard_bytes:.2%} of that."
    )
    return error <= GRADIENT_TOLERANCE


def _bytes_sent(compiled_program: Any) -> int:
    """Bytes of float32 and int32 that a device sends to its neighbours.

    Branches are not counted: the unpooling of this network does not take the branch that communicates.
    """
    text = compiled_program.as_text()
    entry_text = text[text.index("\nENTRY") :]
    shape_texts = re.findall(r"= [fs]32\[([\d,]+)\]\S* collective-permute(?:-start)?\(", entry_text)
    return sum(4 * math.prod(map(int, sizes.split(","))) for sizes in shape_texts)


def _train_weights(
    weights: Weights, image: jax.Array, labels: jax.Array, mesh: jax.sharding.Mesh
) -> Weights:
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, TRAINING_STEPS))

    @jax.jit
    def train_step(
        weights: Weights, state: Any, image: jax.Array, labels: jax.Array
    ) -> tuple[Weights, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(functools.partial(_loss, mesh))(weights, image, labels)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state, loss

    start_time = time.perf_counter()
    state = jax.jit(optimizer.init)(weights)
    progress = tqdm(range(TRAINING_STEPS), desc="training", unit="step", disable=None)
    for _ in progress:
        weights, state, loss = train_step(weights, state, image, labels)
        progress.set_postfix(loss=f"{float(loss):.4f}")
    print(f"{TRAINING_STEPS} steps took {time.perf_counter() - start_time:.1f} s with compilation.")
    return weights


def _draw_predictions(
    image: np.ndarray, predictions: np.ndarray, num_devices: int, picture_path: Path
) -> None:
    """Draw the mosaic and the predictions, with the borders between devices."""
    figure = Figure(figsize=(11, 5.8), layout="constrained")
    panels = figure.subplots(1, 2)
    panels[0].imshow((image + 1) / 2)
    panels[0].set_title("parts of two photographs that were held out", fontsize=10)
    panels[1].imshow(predictions, cmap="coolwarm", vmin=-0.3, vmax=1.3)
    panels[1].set_title("which photograph each pixel is of, as the network says", fontsize=10)
    borders = np.arange(1, num_devices) * MOSAIC_SIZE / num_devices - 0.5
    for axes in panels:
        axes.set_axis_off()
        axes.hlines(borders, *axes.get_xlim(), color="white", linewidth=0.8)
    figure.suptitle(
        f"One image on {num_devices} devices, which send each other the rows beside the borders"
    )
    figure.savefig(picture_path, dpi=110)
    print(f"Picture of the image and of what was found: {picture_path}")
