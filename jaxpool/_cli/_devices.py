"""`python -m jaxpool demo --devices N`: train a network on one image that is sharded over N devices of this host."""

import functools
import math
import re
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tqdm import tqdm

import jaxpool
from jaxpool._cli import UsageError
from jaxpool._cli._mosaic import (
    MOSAIC_SIZE,
    ShardedWrapper,
    Weights,
    init_conv_kernels,
    logits,
    loss,
    make_mosaic,
)

TRAINING_STEPS = 30
MIN_ACCURACY = 0.8
GRADIENT_TOLERANCE = 1e-5  # allowed difference of gradients, relative to the largest element
ROW_SHARDING = PartitionSpec(None, "rows")


def run(num_devices: int, seed: int, picture_path: Path) -> int:
    """Train and draw. Returns 1 if the accuracy is too low or gradients differ from those on one device, else 0."""
    mesh = _make_cpu_mesh(num_devices)
    sharded = functools.partial(jaxpool.sharded, mesh=mesh, spec=ROW_SHARDING)
    sharding = NamedSharding(mesh, ROW_SHARDING)
    image, labels = (jax.device_put(x, sharding) for x in make_mosaic(seed, held_out=False))
    weights = jax.device_put(init_conv_kernels(seed), NamedSharding(mesh, PartitionSpec()))
    print(
        f"A mosaic of two photographs, {MOSAIC_SIZE} x {MOSAIC_SIZE} pixels: "
        f"each of {num_devices} devices holds {MOSAIC_SIZE // num_devices} rows. "
        "The network says of every pixel which photograph it is of."
    )
    gradients_match = _gradients_match_single_device(weights, image, labels, sharded)
    weights = _train_weights(weights, image, labels, sharded)
    image, labels = (jax.device_put(x, sharding) for x in make_mosaic(seed + 1, held_out=True))
    jitted_logits = jax.jit(functools.partial(logits, sharded=sharded))
    predictions = np.asarray(jitted_logits(weights, image))[0] > 0
    accuracy = float((predictions == np.asarray(labels)[0]).mean())
    print(f"Pixels of parts held out that are told apart: {accuracy:.1%}.")
    _draw_predictions(np.asarray(image)[0], predictions, num_devices, picture_path)
    return 0 if gradients_match and accuracy >= MIN_ACCURACY else 1


def _make_cpu_mesh(num_devices: int) -> jax.sharding.Mesh:
    """A mesh of `num_devices` CPU devices of this host."""
    if MOSAIC_SIZE // 4 % num_devices:
        raise UsageError(
            f"`--devices` must be a divisor of {MOSAIC_SIZE // 4}; got --devices={num_devices}."
        )
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", num_devices)
    except RuntimeError:  # jax is initialised already
        pass
    if len(jax.devices("cpu")) < num_devices:
        raise UsageError(f"there are {len(jax.devices('cpu'))} devices, not {num_devices}.")
    return jax.make_mesh(
        (num_devices,), ("rows",), (AxisType.Auto,), devices=jax.devices("cpu")[:num_devices]
    )


def _gradients_match_single_device(
    weights: Weights, image: jax.Array, labels: jax.Array, sharded: ShardedWrapper
) -> bool:
    """Whether the sharded gradient equals the gradient on one device. Prints the program's memory and communication."""
    first_device = jax.devices("cpu")[0]
    single_mesh = jax.make_mesh((1,), ("rows",), (AxisType.Auto,), devices=[first_device])
    on_single = functools.partial(jaxpool.sharded, mesh=single_mesh, spec=ROW_SHARDING)
    shared, single = (
        jax.jit(jax.grad(functools.partial(loss, sharded=wrapper)))
        for wrapper in (sharded, on_single)
    )
    args = jax.device_put((weights, image, labels), first_device)
    programs: Any = shared.lower(weights, image, labels).compile(), single.lower(*args).compile()
    got, want = programs[0](weights, image, labels), programs[1](*args)
    error = 0.0
    for name in want:
        difference = np.abs(np.asarray(got[name]) - np.asarray(want[name])).max()
        error = max(error, float(difference / np.abs(want[name]).max()))
    sent_bytes = _bytes_sent(programs[0])
    shard_bytes, full_bytes = (program.memory_analysis().temp_size_in_bytes for program in programs)
    print(f"Gradients and those of one device differ by {error:.0e} at most, beside the largest.")
    print(
        f"For a gradient a device holds {shard_bytes / 1e6:.1f} MB of activations; one alone {full_bytes / 1e6:.1f} MB."
    )
    print(
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
    weights: Weights, image: jax.Array, labels: jax.Array, sharded: ShardedWrapper
) -> Weights:
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, TRAINING_STEPS))

    @jax.jit
    def train_step(
        weights: Weights, state: Any, image: jax.Array, labels: jax.Array
    ) -> tuple[Weights, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(weights, image, labels, sharded)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, updates), state, value

    start_time = time.perf_counter()
    state = jax.jit(optimizer.init)(weights)
    progress = tqdm(range(TRAINING_STEPS), desc="training", unit="step", disable=None)
    for _ in progress:
        weights, state, loss_value = train_step(weights, state, image, labels)
        progress.set_postfix(loss=f"{float(loss_value):.4f}")
    print(f"{TRAINING_STEPS} steps took {time.perf_counter() - start_time:.1f} s with compilation.")
    return weights


def _draw_predictions(
    image: np.ndarray, predictions: np.ndarray, num_devices: int, picture_path: Path
) -> None:
    """Draw the mosaic and the predictions, with the borders between devices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.8), layout="constrained")
    panels = figure.subplots(1, 2)
    panels[0].imshow((image + 1) / 2)
    panels[0].set_title("parts of two photographs that were held out", fontsize=10)
    panels[1].imshow(predictions, cmap="coolwarm", vmin=-0.3, vmax=1.3)
    panels[1].set_title("which photograph each pixel is of, as the network says", fontsize=10)
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks(
            (np.arange(num_devices) + 0.5) * MOSAIC_SIZE / num_devices,
            labels=range(num_devices),
            fontsize=7,
        )
        for border in range(1, num_devices):
            axes.axhline(border * MOSAIC_SIZE / num_devices - 0.5, color="white", linewidth=0.8)
    panels[0].set_ylabel("device")
    figure.suptitle(
        f"One image on {num_devices} devices, which send each other the rows beside the borders"
    )
    figure.savefig(picture_path, dpi=110)
    print(f"Picture of the image and of what was found: {picture_path}")
