"""A `CotangentRoute` as a matplotlib figure of windows, selected elements and cotangents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxpool._cli._route import CotangentRoute, LabelledArray
from jaxpool._cli._route_text import format_number, tie_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_INCHES = 0.42
INK, LINE_COLOUR, DIM_COLOUR = "#1f2430", "#b8bfcc", "#6b7480"
# A cell is darker the more windows select it. The last colour is for four or more windows.
CELL_COLOURS = ("#ffffff", "#ffd9a0", "#ffb454", "#ff9a1f", "#f27d00")


def draw_figure(route: CotangentRoute) -> Figure:
    """The figure of a route: values above cotangents, and inputs to the left of outputs."""
    from matplotlib.figure import Figure

    rows = route.labelled_arrays()
    # Panels are at least 5 cells wide, so that their titles fit.
    widths = [max(5, array.shape[1]) for array in (route.x, route.y)]
    heights = [max(len(route.x), len(route.y))] * len(rows)
    width = max(6.0, (sum(widths) + 3) * CELL_INCHES)
    height = (sum(heights) + 2 * len(rows) + 2) * CELL_INCHES
    figure = Figure(figsize=(width, height), layout="constrained")
    title = f"{route.call.source_code()}\n{tie_sentence(route)}".strip()
    figure.suptitle(title, fontsize=9, family="monospace")
    panels = figure.subplots(
        len(rows), 2, squeeze=False, width_ratios=widths, height_ratios=heights
    )
    for row, grids in zip(panels, rows, strict=True):
        for axes, grid in zip(row, grids, strict=True):
            _draw_grid(axes, grid, _cell_darkness(route, grid))
    if not route.call.returns_mask:
        _draw_windows(route, panels[0][0], panels[0][1])
    return figure


def _cell_darkness(route: CotangentRoute, grid: LabelledArray) -> np.ndarray:
    """Darkness of each cell, from 0 to 1: by the number of windows that select the cell, or by its cotangent."""
    if grid.is_gradient:
        magnitudes = np.where(np.isfinite(grid.values), np.abs(grid.values), 0)
        return magnitudes / max(magnitudes.max(), 1e-30)
    if grid.selected_mask is None or route.call.returns_mask:
        return np.zeros(grid.values.shape) if grid.selected_mask is None else grid.selected_mask
    return np.minimum(np.sum(route.cotangent_shares != 0, axis=(0, 1)) / 4, 1)


def _draw_grid(axes: Axes, grid: LabelledArray, darkness: np.ndarray) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    rows, columns = grid.values.shape
    colormap = LinearSegmentedColormap.from_list("fills", CELL_COLOURS)
    axes.imshow(darkness, cmap=colormap, vmin=0, vmax=1, extent=(0, columns, rows, 0))
    axes.set_anchor("NW")
    axes.set_title(grid.title, fontsize=10, loc="left", color=INK)
    axes.set_xticks(range(columns + 1), labels=[])
    axes.set_yticks(range(rows + 1), labels=[])
    axes.grid(color=LINE_COLOUR, linewidth=0.7)
    axes.spines[:].set_color(LINE_COLOUR)
    axes.tick_params(length=0)
    texts = [[format_number(value) for value in row] for row in grid.values.tolist()]
    max_length = max(len(text) for row in texts for text in row)
    for (row, column), value in np.ndenumerate(grid.values):
        is_selected = grid.selected_mask is not None and grid.selected_mask[row, column]
        axes.text(
            column + 0.5,
            row + 0.5,
            texts[row][column],
            ha="center",
            va="center_baseline",
            fontsize=min(11, 40 / max_length),
            color=DIM_COLOUR if grid.is_gradient and value == 0 else INK,
            weight="bold" if is_selected else "normal",
        )


def _draw_windows(route: CotangentRoute, left_axes: Axes, right_axes: Axes) -> None:
    """Outline all windows if they are disjoint, otherwise only the window of the middle output."""
    outputs = [*np.ndindex(route.y.shape)]
    if route.input_masks.sum((0, 1)).max() > 1:
        rows, columns = route.y.shape
        outputs = [(rows // 2, columns // 2)]
        _draw_outline(right_axes, *np.array(outputs).T)
    for output in outputs:
        _draw_outline(left_axes, *np.nonzero(route.input_masks[output]))


def _draw_outline(axes: Axes, rows: np.ndarray, columns: np.ndarray) -> None:
    """Draw the smallest rectangle around some cells."""
    from matplotlib.patches import Rectangle

    if rows.size:
        corner = columns.min(), rows.min()
        size = np.ptp(columns) + 1, np.ptp(rows) + 1
        frame = Rectangle(corner, *size, fill=False, edgecolor=INK, linewidth=2.2, clip_on=False)
        axes.add_patch(frame)
