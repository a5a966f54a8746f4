"""A `CotangentRoute` as text, with grids side by side, or as JSON."""

from __future__ import annotations

import itertools
import json
import shutil
import textwrap
from fractions import Fraction
from typing import Any

import numpy as np

from jaxpool._cli._route import CotangentRoute, LabelledArray, Position

GRID_SEPARATOR = "    "  # between two grids in a row
MAX_TEXT_COLUMNS = 100  # columns of running text


def route_as_text(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as text for a terminal."""
    columns = shutil.get_terminal_size().columns
    width = min(columns, MAX_TEXT_COLUMNS)
    parts = [route.call.source_code()]
    parts += [textwrap.fill(f"Note: {note}", width) for note in notes]
    parts += _format_grids(route.labelled_arrays(), columns)
    parts += [textwrap.fill(_summary_text(route), width)]
    parts += [] if route.call.returns_mask else [_table_of_outputs(route, width)]
    return "\n\n".join(parts)


def route_as_json(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as JSON; NaN and infinities are the strings "nan", "inf" and "-inf"."""
    x, y = route.call.array_names
    grids = {x: route.x, y: route.y}
    if not route.call.returns_mask:
        grids |= {f"d{y}": route.dy, f"d{x}": route.dx}
    explanation = {
        "call": route.call.source_code(),
        "settings": {key: _value_as_json(value) for key, value in route.call.settings().items()},
        "notes": notes,
        **{
            name: [[_value_as_json(value) for value in row] for row in grid.tolist()]
            for name, grid in grids.items()
        },
        "shares": [
            {
                "output": list(output),
                "to": [
                    [*position, _value_as_json(share)]
                    for position, share in route.cotangent_receivers_of(output)
                ],
            }
            for output in np.ndindex(route.y.shape)
        ],
    }
    return json.dumps(explanation, allow_nan=False)


def _value_as_json(value: Any) -> Any:
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def format_number(value: float) -> str:
    """A number for people: integers in full, other numbers to about four digits."""
    size = abs(value)
    if size < 1e6 and value == int(value):
        return str(int(value))
    if 0.001 <= size < 1:
        return f"{round(value, 4):g}"
    return f"{value:.3g}" if size < 1 else f"{value:.4g}" if size < 1000 else f"{value:.6g}"


def _format_grids(rows: list[tuple[LabelledArray, LabelledArray]], columns: int) -> list[str]:
    """Rows of two grids. If one row has more than `columns` characters, all grids are one below the other."""
    left, right = (_grid_blocks(side) for side in zip(*rows, strict=True))
    width, right_width = (
        max(len(line) for block in side for line in block) for side in (left, right)
    )
    width += len(GRID_SEPARATOR)
    if width + right_width > columns:
        blocks = [block for pair in zip(left, right, strict=True) for block in pair]
        return ["\n".join(line.rstrip() for line in block) for block in blocks]
    return [
        "\n".join(f"{a:{width}}{b}".rstrip() for a, b in itertools.zip_longest(*pair, fillvalue=""))
        for pair in zip(left, right, strict=True)
    ]


def _grid_blocks(grids: tuple[LabelledArray, ...]) -> list[list[str]]:
    """The lines of grids below each other, with aligned columns. A selected number has a star."""
    has_stars = any(grid.selected_mask is not None for grid in grids)
    blocks = []
    for grid in grids:
        cells = [[format_number(value) for value in row] for row in grid.values.tolist()]
        if has_stars:
            is_selected = np.zeros(grid.values.shape, bool)
            if grid.selected_mask is not None:
                is_selected = grid.selected_mask
            for (row, column), selected in np.ndenumerate(is_selected):
                cells[row][column] += "*" if selected else " "
        blocks.append(cells)
    width = max(len(cell) for cells in blocks for row in cells for cell in row)
    return [
        [grid.title, *(" ".join(cell.rjust(width) for cell in row) for row in cells)]
        for grid, cells in zip(grids, blocks, strict=True)
    ]


def _summary_text(route: CotangentRoute) -> str:
    x, y = route.call.array_names
    if route.call.returns_mask:
        return "y is 1 where it is True. A star marks these elements of x. A boolean result has no gradient."
    unit = "window" if route.call.window is not None else "output"
    text = "A cotangent says how much a loss changes when a number does. "
    text += f"A star marks what some {unit} chose. " if route.call.selects_elements else ""
    text += f"d{x} adds up what the {unit}s of an input send it"
    if not (route.dy == 1).all():
        return text + f": its share of each one's d{y}."
    mean_note = f"; that of the mean is this over the number of {unit}s, {route.y.size}"
    return text + f". Each d{y} is 1, so d{x} is the gradient of the sum of {y}{mean_note}."


def _table_of_outputs(route: CotangentRoute, columns: int) -> str:
    """One line per output: its value, its window, and the elements that receive its cotangent."""
    has_windows = route.call.window is not None
    output_name = route.call.array_names[1]
    rows = [(f"{output_name} at", "value", *["window"] * has_windows, "cotangent goes to")]
    for output in np.ndindex(route.y.shape):
        if route.input_masks[output].any():
            window = [_window_ranges(route.input_masks[output])] * has_windows
            value = format_number(route.y[output].item())
            rows.append((str(output), value, *window, _receivers_text(route, output)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row[:-1], widths, strict=False)
        prefix = "".join(f"{cell:{width}}  " for cell, width in cells)
        indent = " " * len(prefix)
        lines.append(
            textwrap.fill(row[-1], columns, initial_indent=prefix, subsequent_indent=indent)
        )
    return "\n".join(lines)


def _window_ranges(window_mask: np.ndarray) -> str:
    rows, columns = (sorted(set(positions.tolist())) for positions in np.nonzero(window_mask))
    return f"rows {_format_range(rows)}, columns {_format_range(columns)}"


def _format_range(positions: list[int]) -> str:
    first, last = positions[0], positions[-1]
    if last - first + 1 != len(positions):
        return " ".join(map(str, positions))
    return f"{first}-{last}" if last > first else f"{first}"


def _receivers_text(route: CotangentRoute, output: Position) -> str:
    receivers = route.cotangent_receivers_of(output)
    if not receivers:
        return "nobody"
    shares = {share for _, share in receivers}
    has_equal_shares = not route.call.selects_elements and len(shares) == 1
    if has_equal_shares and len(receivers) == route.input_masks[output].sum() > 1:
        return f"all {len(receivers)}, {_format_share(route, shares.pop())} each"
    return ", ".join(
        str(position) if share == 1 else f"{position} gets {_format_share(route, share)}"
        for position, share in receivers
    )


def _format_share(route: CotangentRoute, share: float) -> str:
    """A share as a fraction such as 1/3, or as a number if it is not a simple fraction."""
    if not route.call.prints_shares_as_fractions or not np.isfinite(share):
        return format_number(share)
    ratio = Fraction(share).limit_denominator(400)
    return str(ratio) if abs(float(ratio) - share) <= 1e-6 * abs(share) else format_number(share)
