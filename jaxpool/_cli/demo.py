"""Train a small CNN on real handwritten digits, with pools and a maxout unit from jaxpool.

Then draw which pixels the cotangent of the max pool reached, and time pools against jax.lax on
photographs.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

import jaxpool
from jaxpool._cli import integer, picture_path, require

if TYPE_CHECKING:
    from jaxpool._cli._digits import Digits, Network

SUMMARY = "train a small CNN on real handwritten digits; compare with jax.lax"
STEPS = 600
TARGET = 0.97
PICTURE = "jaxpool_demo.png"
DRAWN = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `demo`."""
    parser.add_argument("--steps", default=str(STEPS), help=f"training steps (default: {STEPS})")
    parser.add_argument("--seed", default="0", help="of weights and of batches (default: 0)")
    parser.add_argument(
        "--devices",
        metavar="N",
        help="in place of all that, split a large image over N devices of this host and train on it",
    )
    parser.add_argument(
        "--output",
        default=PICTURE,
        metavar="PATH",
        help=f"the picture: a .png file, or a folder (default: {PICTURE})",
    )


def run(args: argparse.Namespace) -> int:
    """Trains, draws and compares; returns 1 if accuracy or agreement is not as it must be."""
    steps = integer("--steps", args.steps, 1)
    seed = integer("--seed", args.seed, 0, 2**32 - 1)
    path = picture_path(args.output, PICTURE)
    require("demo", "flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm")
    jaxpool.keep_memory()
    if args.devices is not None:
        from jaxpool._cli import _devices

        return _devices.run(integer("--devices", args.devices, 1), seed, path)
    from jaxpool._cli._digits import Digits

    digits = Digits.load()
    print(
        f"Handwritten digits: {len(digits.labels)} to learn from, "
        f"{len(digits.held_out_labels)} held out. Backend: {jax.default_backend()}."
    )
    network, accuracy = _train(digits, steps, seed)
    _draw(network, digits, path)
    agree = _compare()
    reached = accuracy >= TARGET
    if not agree:
        print("The pools do not agree with jax.lax: see the table.")
    if not reached and steps < STEPS:
        print(f"The accuracy is below {TARGET:.0%}, which takes the default of {STEPS} steps.")
    elif not reached:
        print(f"The accuracy is below {TARGET:.0%}.")
    return 0 if agree and (reached or steps < STEPS) else 1


def _train(digits: "Digits", steps: int, seed: int) -> tuple["Network", float]:
    """A trained network and its accuracy on the digits held out."""
    from tqdm import tqdm

    from jaxpool._cli._digits import count_right, new_network, train_step

    start = time.perf_counter()
    network, optimizer = new_network(seed, steps)
    progress = tqdm(digits.batches(seed, steps), total=steps, desc="training", unit="step")
    for step, (images, labels) in enumerate(progress):
        loss = train_step(network, optimizer, images, labels)
        if step % 50 == 0 or step == steps - 1:
            progress.set_postfix(loss=f"{float(loss):.4f}")
    right = int(count_right(network, digits.held_out_images, digits.held_out_labels))
    count = len(digits.held_out_labels)
    print(
        f"Held-out accuracy: {right / count:.2%} ({right} of {count}) after {steps} steps, "
        f"{time.perf_counter() - start:.1f} s with compilation."
    )
    return network, right / count


def _draw(network: "Network", digits: "Digits", path: Path) -> None:
    """A column a digit: its pixels, those a max pool of them chooses, the cotangent's way back."""
    from matplotlib.figure import Figure

    from jaxpool._cli._digits import reached

    first_of_each = [int(np.argmax(digits.held_out_labels == digit)) for digit in range(DRAWN)]
    images = digits.held_out_images[np.array(first_of_each)]
    read, counts = reached(network, images)
    pooled, pull_back = jax.vjp(lambda x: jaxpool.max_pool(x, (2, 2), (2, 2)), images)
    (chosen,) = pull_back(np.ones_like(pooled))
    channels = int(counts.max())
    rows = [
        ("a digit held out", images[..., 0], "Greys", 1),
        (
            "its largest pixels:\n2x2 max pool, stride 2",
            chosen[..., 0] * (0.25 + images[..., 0]),
            "Blues",
            1.25,
        ),
        (
            "channels in which the\nnetwork's max pool passed\nthe cotangent there",
            counts,
            "Oranges",
            channels,
        ),
    ]
    figure = Figure(figsize=(2 + 1.7 * DRAWN, 6.2), layout="constrained")
    grid = figure.subplots(len(rows), DRAWN)
    for (label, panels, colours, largest), line in zip(rows, grid, strict=True):
        line[0].set_ylabel(label, fontsize=9)
        for panel, axes in zip(panels, line, strict=True):
            drawn = axes.imshow(panel, cmap=colours, vmin=0, vmax=largest)
            axes.set_xticks(np.arange(1.5, 7, 2), labels=[])
            axes.set_yticks(np.arange(1.5, 7, 2), labels=[])
            axes.tick_params(length=0)
            axes.grid(color="#bbbbbb", linewidth=0.6)
    figure.colorbar(drawn, ax=list(grid[-1]), label="channels")
    for axes, digit in zip(grid[0], read, strict=True):
        axes.set_title(f"read as {int(digit)}", fontsize=10)
    figure.suptitle("Where the cotangent of a max pool goes")
    figure.savefig(path, dpi=130)
    print(f"Picture of the pixels that the max pool's cotangent reached: {path}")


def _compare() -> bool:
    """Prints the table of times; returns whether values and gradients agree."""
    from jaxpool._cli._photograph import CASES, REPEATS, compare, photographs, table

    x = photographs()
    comparisons = [compare(x, case) for case in CASES]
    shape = "x".join(str(size) for size in x.shape)
    print(
        f"\nForward and backward of a pool over two photographs, {shape} {x.dtype}, "
        f"median of {REPEATS} runs in turns:\n{table(comparisons)}"
    )
    return all(comparison.agrees for comparison in comparisons)
