"""Show which inputs each window of a max pool chose, and where the cotangent of its output goes.

Without options it explains a 2x2 window with stride 2 over a built-in 6x6 array.
"""

import argparse
import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

import jaxpool
from jaxpool._cli import UsageError, picture_path, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

SUMMARY = "which inputs a window chose and where the cotangent goes"
DEFAULT_ARRAY = "1 3 4 2 5 2; 4 2 5 6 8 3; 5 3 7 8 9 3; 8 4 3 6 0 2; 7 10 3 6 3 5; 4 7 2 4 7 8"
LARGEST = 400
PICTURE = "jaxpool_explain.png"
Pair = tuple[int, int]
Ties = Literal["first", "last", "split"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `explain`."""
    parser.add_argument(
        "--array",
        default=DEFAULT_ARRAY,
        metavar="ROWS",
        help='numbers, nan and -inf too: rows apart by ";", values by spaces, as in "1 3; 4 2"',
    )
    parser.add_argument("--window", default="2", help="2, or 2x3 for rows x columns (default: 2)")
    parser.add_argument("--stride", default="2", help="like --window (default: 2)")
    parser.add_argument(
        "--padding",
        default="VALID",
        help="VALID, SAME, SAME_LOWER, 1, 1x1 or low:high pairs as in 0:1x0:1 (default: VALID)",
    )
    parser.add_argument("--ties", default="first", help="first, last or split (default: first)")
    parser.add_argument("--output", metavar="PATH", help="also draw it: a .png file, or a folder")


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A max pool of `x` taken apart.

    `shares[i, j]` is what each input gets when output `(i, j)` sends 1.
    """

    x: np.ndarray
    y: np.ndarray
    shares: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """What each input gets when every output sends 1: the gradient of the sum of `y`."""
        return self.shares.sum((0, 1))

    def chosen(self, output: Pair) -> list[tuple[Pair, Fraction]]:
        """The inputs that one output sends its cotangent to, and each one's share of it."""
        share = self.shares[output]
        return [
            (
                (int(row), int(column)),
                Fraction(float(share[row, column])).limit_denominator(LARGEST),
            )
            for row, column in np.argwhere(share)
        ]


def explain(
    x: np.ndarray, window: Pair, stride: Pair, padding: str | int | list[Pair], ties: Ties
) -> Explanation:
    """Pools `x` and asks the pool's own derivative rule where each output's cotangent goes."""

    def pool(x: jax.Array) -> jax.Array:
        return jaxpool.max_pool(x[..., None], window, stride, padding, ties=ties)[..., 0]

    y, pull_back = jax.vjp(pool, jnp.asarray(x))
    one_each = jnp.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
    (shares,) = jax.vmap(pull_back)(one_each)
    return Explanation(x, np.asarray(y), np.asarray(shares).reshape(*y.shape, *x.shape))


def run(args: argparse.Namespace) -> int:
    """Prints the explanation, and draws it if a picture was asked for."""
    path = None
    if args.output is not None:
        require("demo", "matplotlib")
        path = picture_path(args.output, PICTURE)
    if args.ties not in get_args(Ties):
        raise UsageError(f"`--ties` must be first, last or split; got --ties={args.ties}.")
    x = _parse_array(args.array)
    window, stride = _parse_pair("--window", args.window), _parse_pair("--stride", args.stride)
    try:
        explanation = explain(x, window, stride, _parse_padding(args.padding), args.ties)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    title = (
        f"max_pool, window {window[0]}x{window[1]}, stride {stride[0]}x{stride[1]}, "
        f"padding {args.padding}, ties {args.ties}"
    )
    print("\n\n".join([title, *_sections(explanation)]))
    if path is not None:
        _draw(explanation, title).savefig(path, dpi=150)
        print(f"\nPicture: {path}")
    return 0


def _sections(explanation: Explanation) -> list[str]:
    x, y = explanation.x, explanation.y
    outputs = [(row, column) for row in range(y.shape[0]) for column in range(y.shape[1])]
    lines = ["output    value   chosen input"]
    for output in outputs:
        chosen = explanation.chosen(output)
        places = [str(at) if share == 1 else f"{at} gets {share}" for at, share in chosen]
        lines.append(f"{output!s:8}  {y[output]:<6g}  {', '.join(places)}")
    windows = y.size
    return [
        f"Input ({x.shape[0]}x{x.shape[1]}):\n{_grid(x)}",
        f"Output ({y.shape[0]}x{y.shape[1]}):\n{_grid(y)}",
        "What each window chose, as (row, column) from 0:\n" + "\n".join(lines),
        "Where the cotangent goes when each output sends 1 (the gradient of the sum):\n"
        + _grid(explanation.total),
        f"The gradient of the mean is this over the number of windows, {windows}.",
    ]


def _grid(values: np.ndarray) -> str:
    cells = [[f"{value:.4g}" for value in row] for row in values]
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in cells)


def _parse_array(text: str) -> np.ndarray:
    rule = 'rows of equally many numbers, as in "1 3; 4 2"'
    try:
        rows = [
            [float(value) for value in row.replace(",", " ").split()] for row in text.split(";")
        ]
    except ValueError:
        rows = []
    if not rows or not rows[0] or len({len(row) for row in rows}) != 1:
        raise UsageError(f"`--array` must be {rule}; got --array={text!r}.")
    x = np.array(rows, np.float32)
    if x.size > LARGEST:
        raise UsageError(f"`--array` must have at most {LARGEST} numbers; got {x.size}.")
    return x


def _parse_pair(name: str, text: str) -> Pair:
    try:
        sizes = [int(size) for size in text.split("x")]
    except ValueError:
        sizes = []
    if len(sizes) not in (1, 2) or min(sizes) < 1:
        raise UsageError(
            f"`{name}` must be a positive integer or two, as in 2x3; got {name}={text}."
        )
    return sizes[0], sizes[-1]


def _parse_padding(text: str) -> str | int | list[Pair]:
    if text in ("VALID", "SAME", "SAME_LOWER"):
        return text
    try:
        axes = [[int(size) for size in axis.split(":")] for axis in text.split("x")]
    except ValueError:
        axes = []
    if len(axes) not in (1, 2) or any(len(axis) > 2 or min(axis) < 0 for axis in axes):
        raise UsageError(
            "`--padding` must be VALID, SAME, SAME_LOWER, an integer of 0 or more, or one "
            f"integer or low:high pair an axis, as in 0:1x2; got --padding={text}."
        )
    pairs = [(axis[0], axis[-1]) for axis in axes]
    return [pairs[0], pairs[-1]]


def _draw(explanation: Explanation, title: str) -> "Figure":
    """Three panels: the input with what was chosen, the output, the cotangent of each input."""
    from matplotlib.figure import Figure

    x, y, total = explanation.x, explanation.y, explanation.total
    panels = [
        ("input; chosen numbers framed", x, (total > 0).astype(np.float32) * 0.35),
        ("output, and the input it chose", y, np.zeros_like(y)),
        ("cotangent at the input\nwhen each output sends 1", total, total),
    ]
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    figure.suptitle(title)
    for axes, (name, values, colours) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.imshow(colours, cmap="Oranges", vmin=0, vmax=max(1.0, float(total.max()) * 1.4))
        axes.set_title(name, fontsize=10)
        axes.set_xticks(range(values.shape[1]))
        axes.set_yticks(range(values.shape[0]))
        axes.tick_params(length=0, labelsize=8)
        for (row, column), value in np.ndenumerate(values):
            label = f"{value:.4g}"
            if values is y:
                label += "\n" + " ".join(
                    f"({r},{c})" for (r, c), _ in explanation.chosen((row, column))
                )
            size = max(4, min(11, 60 // max(values.shape)))
            axes.text(column, row, label, ha="center", va="center", fontsize=size)
            if values is x and total[row, column]:
                axes.add_patch(_frame(row, column))
    return figure


def _frame(row: int, column: int) -> "Rectangle":
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, color="#c2410c", lw=1.5)
