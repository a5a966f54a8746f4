"""Train a small CNN on real handwritten digits, with pools and a maxout unit from jaxpool.

After that, draw the pixels of a digit that receive the cotangent of a max pool, and time pools against jax.lax on
photographs. The cotangent of an array, which the backward pass computes, is the derivative of the result with respect
to each element of the array.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxpool
from jaxpool._cli import output_path, parse_integer, require_modules

if TYPE_CHECKING:
    import jax

    from jaxpool._cli._digits import Digits, LossHistory, Network, PictureArrays

DEFAULT_STEPS = 600
MIN_ACCURACY = 0.97
# Training steps between two held-out losses, and in each moving mean of the training loss.
STEPS_PER_HELD_OUT_LOSS = 20
COLOURS = ("#ffd9a0", "#ffb454", "#ff9a1f", "#f27d00", "#8a4a00")
PICTURE_NAME = "jaxpool_demo.png"
NUM_DIGITS_DRAWN = 6
PICTURE_CAPTION = (
    "Forward, a 2x2 max pool with stride 2 keeps the largest, darkest pixel of each window, the first of equal ones. "
    "Backward,\nthe cotangent of each output goes to that pixel, and the other three get 0. The lines part the windows."
)
TABLE_LEGEND = (
    "value and gradient: the largest difference from jax.lax, of outputs and of cotangents of the input; "
    "equal: there is none.\n"
    "The photographs have 3 channels. The table in README.md is of arrays with 32 to 128 channels, on its own machine: "
    "expect other ratios here."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `demo`."""
    parser.add_argument(
        "--steps", default=str(DEFAULT_STEPS), help=f"training steps (default: {DEFAULT_STEPS})"
    )
    parser.add_argument(
        "--seed", default="0", help="seed of the weights and of the order of images (default: 0)"
    )
    parser.add_argument(
        "--devices",
        metavar="N",
        help="instead, train on one large image that N devices of this host share, a part each",
    )
    parser.add_argument(
        "--output",
        default=PICTURE_NAME,
        metavar="PATH",
        help=f"the picture: a .png file, or a folder (default: {PICTURE_NAME})",
    )


def run(args: argparse.Namespace) -> int:
    """Train, draw and compare. Returns 1 if the accuracy is too low or pools disagree with lax, else 0."""
    num_steps = parse_integer("--steps", args.steps, 1)
    seed = parse_integer("--seed", args.seed, 0, 2**32 - 1)
    path = output_path("--output", args.output, ".png", PICTURE_NAME)
    require_modules("demo", "flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm")
    jaxpool.keep_memory()
    if args.devices is not None:
        from jaxpool._cli import _devices

        return _devices.run(parse_integer("--devices", args.devices, 1), seed, path)
    from jaxpool._cli._photograph import NUM_REPEATS, load_photographs

    accuracy, pools_agree = _run_demo(num_steps, seed, path, load_photographs(), NUM_REPEATS)
    return _exit_status(accuracy, pools_agree, num_steps)


def _run_demo(
    num_steps: int, seed: int, picture_path: Path, photographs: "jax.Array", num_repeats: int
) -> tuple[float, bool]:
    """Train, draw, and time pools of photographs. Returns the accuracy, and whether pools agree with lax."""
    import jax

    from jaxpool._cli._digits import Digits, PictureArrays

    digits = Digits.load()
    print(
        f"Handwritten digits: {len(digits.labels)} to learn from, "
        f"{len(digits.held_out_labels)} held out. Backend: {jax.default_backend()}."
    )
    network, accuracy, history = _train_network(digits, num_steps, seed)
    _draw_picture(
        PictureArrays.from_network(network, digits, NUM_DIGITS_DRAWN), history, picture_path
    )
    return accuracy, _compare_with_lax(photographs, num_repeats)


def _exit_status(accuracy: float, pools_agree: bool, num_steps: int) -> int:
    """The exit status. Prints the checks that failed."""
    is_accurate = accuracy >= MIN_ACCURACY
    if not pools_agree:
        print("The pools do not agree with jax.lax: see the table.")
    if not is_accurate and num_steps < DEFAULT_STEPS:
        print(
            f"The accuracy is below {MIN_ACCURACY:.0%}: reaching it takes the default of {DEFAULT_STEPS} steps."
        )
    elif not is_accurate:
        print(f"The accuracy is below {MIN_ACCURACY:.0%}.")
    return 0 if pools_agree and (is_accurate or num_steps < DEFAULT_STEPS) else 1


def _train_network(
    digits: "Digits", num_steps: int, seed: int
) -> tuple["Network", float, "LossHistory"]:
    """A trained network, its accuracy on held-out digits, and the losses."""
    import numpy as np
    from tqdm import tqdm

    from jaxpool._cli._digits import (
        LossHistory,
        held_out_loss,
        new_network,
        predict_digits,
        train_step,
    )

    start_time = time.perf_counter()
    network, optimizer = new_network(seed, num_steps)
    batches = digits.random_batches(seed, num_steps)
    progress = tqdm(batches, total=num_steps, desc="training", unit="step", disable=None)
    held_out_data = digits.held_out_images, digits.held_out_labels
    losses, held_out_losses = [], {}
    for step, (images, labels) in enumerate(progress, 1):
        losses.append(train_step(network, optimizer, images, labels))
        if step % STEPS_PER_HELD_OUT_LOSS == 0 or step == num_steps:
            held_out_losses[step] = held_out_loss(network, *held_out_data)
            progress.set_postfix(loss=f"{float(losses[-1]):.4f}")
    predictions = np.asarray(predict_digits(network, digits.held_out_images))
    num_correct = int((predictions == digits.held_out_labels).sum())
    num_held_out = len(digits.held_out_labels)
    print(
        f"Held-out accuracy: {num_correct / num_held_out:.2%} ({num_correct} of {num_held_out}) "
        f"after {num_steps} steps, {time.perf_counter() - start_time:.1f} s with compilation."
    )
    history = LossHistory(
        np.array(losses), np.array([*held_out_losses]), np.array([*held_out_losses.values()])
    )
    return network, num_correct / num_held_out, history


def _draw_picture(
    picture_arrays: "PictureArrays", history: "LossHistory", picture_path: Path
) -> None:
    """Draw one column per digit: its pixels, their max pool, and the pixels with a cotangent. Below, the loss."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    colormap = LinearSegmentedColormap.from_list("oranges", COLOURS)
    rows = [
        ("a digit held out", picture_arrays.images, "Greys", "pixel"),
        ("its 2x2 max pool\nwith stride 2", picture_arrays.max_pooled, "Greys", "pixel"),
        (
            "the pixels that get the\ncotangent, 1 each;\nall others get 0",
            picture_arrays.selected_pixels,
            colormap,
            "selected pixel",
        ),
    ]
    figure = Figure(figsize=(2 + 1.7 * NUM_DIGITS_DRAWN, 9.2), layout="constrained")
    subfigures: Any = figure.subfigures(2, 1, height_ratios=(6.8, 2.4))
    top_figure, bottom_figure = subfigures
    axes_grid = top_figure.subplots(len(rows), NUM_DIGITS_DRAWN)
    for (label, panels, colours, colorbar_label), axes_row in zip(rows, axes_grid, strict=True):
        axes_row[0].set_ylabel(label, fontsize=9)
        for panel, axes in zip(panels, axes_row, strict=True):
            image = axes.imshow(panel, cmap=colours, vmin=0, vmax=1)
            edges = [len(panel) * part / 4 - 0.5 for part in (1, 2, 3)]
            axes.set_xticks(edges, labels=[])
            axes.set_yticks(edges, labels=[])
            axes.tick_params(length=0)
            axes.grid(color="#bbbbbb", linewidth=0.6)
        top_figure.colorbar(image, ax=axes_row, label=colorbar_label, ticks=[0, 0.5, 1], aspect=12)
    for axes, label, guess in zip(
        axes_grid[0], picture_arrays.labels, picture_arrays.predictions, strict=True
    ):
        is_right = label == guess
        axes.set_title(
            f"a {label}, read as {guess}", fontsize=10, color="black" if is_right else "firebrick"
        )
    top_figure.suptitle("Where the cotangent of a max pool goes")
    top_figure.supxlabel(PICTURE_CAPTION, fontsize=9)
    plot = bottom_figure.subplots()
    steps = range(1, len(history.losses) + 1)
    plot.semilogy(steps, history.losses, color=COLOURS[0], linewidth=0.8, label="training")
    label = f"training, mean of {min(STEPS_PER_HELD_OUT_LOSS, len(steps))} steps"
    plot.semilogy(
        *history.moving_mean_losses(STEPS_PER_HELD_OUT_LOSS),
        color=COLOURS[-1],
        linewidth=1.6,
        label=label,
    )
    held_out = history.held_out_steps, history.held_out_losses
    plot.semilogy(*held_out, "o-", color="#0072B2", markersize=3, linewidth=1.2, label="held out")
    plot.legend(fontsize=8, frameon=False)
    plot.set_xlabel("training step")
    plot.set_ylabel("loss (cross-entropy)")
    plot.grid(color="#dddddd", linewidth=0.6)
    figure.savefig(picture_path, dpi=130)
    print(
        f"Picture of the pixels that the cotangent of a max pool goes to, and of the loss: {picture_path}"
    )


def _compare_with_lax(photographs: "jax.Array", num_repeats: int) -> bool:
    """Print the table of times. Returns whether values and gradients agree."""
    from tqdm import tqdm

    from jaxpool._cli._photograph import BENCHMARK_CASES, comparison_table, time_and_compare

    progress = tqdm(BENCHMARK_CASES, desc="timing", unit="pool", leave=False, disable=None)
    comparisons = [time_and_compare(photographs, case, num_repeats) for case in progress]
    shape = "x".join(str(size) for size in photographs.shape)
    print(
        f"\nForward and backward of a pool over two photographs, {shape} {photographs.dtype}, "
        f"median of {num_repeats} runs in turns:\n{comparison_table(comparisons)}\n{TABLE_LEGEND}"
    )
    return all(comparison.results_agree for comparison in comparisons)
