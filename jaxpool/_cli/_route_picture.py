"""A route as a picture: the grids of the text, what was chosen framed, what got a cotangent tinted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxpool._cli._route import Grid, Route
from jaxpool._cli._route_text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.42  # inches
CHOSEN, LIT, SOFT = "#0b5c52", "#f0a055", "#6b7480"


def draw(route: Route) -> Figure:
    """Values above, cotangents below; on the left what a pool takes, on the right what it gives."""
    from matplotlib.figure import Figure

    rows = route.grids()
    wide = [max(grid.values.shape[1] for grid in side) for side in zip(*rows, strict=True)]
    high = [max(grid.values.shape[0] for grid in row) for row in rows]
    width, height = max(6.0, (sum(wide) + 3) * CELL), (sum(high) + 2 * len(rows) + 2) * CELL
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(route.settings.call(route.array.shape), fontsize=9, family="monospace")
    panels = figure.subplots(len(rows), 2, squeeze=False, width_ratios=wide, height_ratios=high)
    for row, grids in zip(panels, rows, strict=True):
        for axes, grid in zip(row, grids, strict=True):
            _draw_grid(axes, grid)
    return figure


def _draw_grid(axes: Axes, grid: Grid) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    rows, columns = grid.values.shape
    sizes = np.zeros(grid.values.shape)
    if grid.lit is not None:
        sizes = np.where(np.isfinite(grid.values), np.abs(grid.values), 0)
    tints = LinearSegmentedColormap.from_list("tints", ["white", LIT])
    top = max(float(sizes.max()), 1e-30) * 1.2
    axes.imshow(sizes, cmap=tints, vmin=0, vmax=top, extent=(0, columns, rows, 0))
    axes.set_anchor("NW")
    axes.set_title(grid.title, fontsize=10, loc="left")
    axes.set_xticks(range(columns + 1), labels=[])
    axes.set_yticks(range(rows + 1), labels=[])
    axes.grid(color="#d5dae0", linewidth=0.7)
    axes.tick_params(length=0)
    texts = [[number(value) for value in row] for row in grid.values.tolist()]
    letters = max(len(text) for row in texts for text in row)
    for (row, column), value in np.ndenumerate(grid.values):
        chosen = grid.chosen is not None and bool(grid.chosen[row, column])
        quiet = grid.lit is not None and value == 0
        axes.text(
            column + 0.5,
            row + 0.5,
            texts[row][column],
            ha="center",
            va="center_baseline",
            fontsize=min(11, 40 / letters),
            color=CHOSEN if chosen else SOFT if quiet else "black",
            weight="bold" if chosen else "normal",
        )
        if chosen:
            _frame(axes, row, column)


def _frame(axes: Axes, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    place = (column + 0.06, row + 0.06)
    axes.add_patch(Rectangle(place, 0.88, 0.88, fill=False, color=CHOSEN, linewidth=1.8))
