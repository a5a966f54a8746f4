"""A `CotangentRoute` as a matplotlib figure of windows, selected elements and cotangents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxpool._cli._route import CotangentRoute, LabelledArray
from jaxpool._cli._route_text import format_number

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
    widths = [max(5, *(grid.values.shape[1] for grid in side)) for side in zip(*rows, strict=True)]
    heights = [max(grid.values.shape[0] for grid in row) for row in rows]
    width, height = (
        max(6.0, (sum(widths) + 3) * CELL_INCHES),
        (sum(heights) + 2 * len(rows) + 2) * CELL_INCHES,
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(route.call.source_code(), fontsize=9, family="monospace")
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
    if grid.selected_mask is not None and route.call.returns_mask:
        return grid.selected_mask.astype(float)
    if grid.selected_mask is not None:
        num_windows = np.sum(route.cotangent_shares != 0, axis=(0, 1))
        return np.asarray(np.minimum(num_windows / 4, 1))
    if not grid.is_gradient:
        return np.zeros(grid.values.shape)
    magnitudes = np.where(np.isfinite(grid.values), np.abs(grid.values), 0)
    max_cotangent = np.abs(route.dy[np.isfinite(route.dy)]).max(initial=0)
    max_magnitude = 4 * max_cotangent if route.call.selects_elements else 1.2 * magnitudes.max()
    return np.asarray(np.minimum(magnitudes / max(float(max_magnitude), 1e-30), 1))


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
    """Outline all windows if they are disjoint blocks, otherwise only the window of the middle output."""
    rows, columns = route.y.shape
    windows = {output: route.input_masks[output] for output in np.ndindex(rows, columns)}
    outputs = [*windows]
    are_disjoint = route.input_masks.sum((0, 1)).max() <= 1
    if not are_disjoint or not all(map(_is_full_rectangle, windows.values())):
        outputs = [(rows // 2, columns // 2)]
    for output in outputs:
        _draw_outline(left_axes, windows[output])
    if len(outputs) == 1:
        output_mask = np.zeros((rows, columns), bool)
        output_mask[outputs[0]] = True
        _draw_outline(right_axes, output_mask)


def _is_full_rectangle(cell_mask: np.ndarray) -> bool:
    """Whether the cells are one rectangle without gaps, such as a window without dilation."""
    rows, columns = np.nonzero(cell_mask)
    return rows.size > 0 and rows.size == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)


def _draw_outline(axes: Axes, cell_mask: np.ndarray) -> None:
    """Draw a line around each connected group of cells."""
    from matplotlib.collections import LineCollection

    padded_mask = np.pad(cell_mask, 1)
    horizontal_edges = np.argwhere(padded_mask[1:, 1:-1] != padded_mask[:-1, 1:-1])
    vertical_edges = np.argwhere(padded_mask[1:-1, 1:] != padded_mask[1:-1, :-1])
    edges = [((column, row), (column + 1, row)) for row, column in horizontal_edges.tolist()]
    edges += [((column, row), (column, row + 1)) for row, column in vertical_edges.tolist()]
    lines = LineCollection(edges, colors=INK, linewidths=2.2, capstyle="projecting", clip_on=False)
    lines.set_gid("window")
    axes.add_collection(lines, autolim=False)
