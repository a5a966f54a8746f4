"""A `CotangentRoute` as text, with grids side by side, and colours if the terminal supports them, or as JSON."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from jaxpool._cli._route import CotangentRoute, LabelledArray, Position

TextStyler = Callable[[str, str], str]
LinesWithLengths = list[tuple[str, int]]
BOLD, DIM, SELECTED, RECEIVER, PLAIN = "1", "2", "1;36", "1;33", ""  # SGR codes of a terminal
GRID_SEPARATOR = "    "  # between two grids in a row
MAX_TEXT_COLUMNS = 100  # columns of running text


def route_as_text(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as text for a terminal."""
    columns, style_text = shutil.get_terminal_size().columns, _make_text_styler()
    width = min(columns, MAX_TEXT_COLUMNS)
    parts = [style_text(route.call.source_code(), BOLD)]
    parts += [textwrap.fill(f"Note: {note}", width) for note in notes]
    parts += _format_grid_pairs(route.labelled_arrays(), columns, style_text)
    parts += [textwrap.fill(_route_summary_text(route), width)]
    parts += [] if route.call.returns_mask else [_table_of_outputs(route, width, style_text)]
    return "\n\n".join(parts)


def route_as_json(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as JSON; NaN and infinities are the strings "nan", "inf" and "-inf"."""
    grids = {"x": route.x, "y": route.y}
    if not route.call.returns_mask:
        grids |= {"dy": route.dy, "dx": route.dx}
    if route.indices is not None:  # `max_unpool` names its input y and its output x
        grids = {"array": route.array, "y": route.x, "indices": route.indices}
        grids |= {"x": route.y, "dx": route.dy, "dy": route.dx}
    explanation = {
        "call": route.call.source_code(),
        "settings": {key: _value_as_json(value) for key, value in route.call.as_dict().items()},
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


def format_number(value: float) -> str:
    """A number for people: integers in full, other numbers to about four digits."""
    size = abs(value)
    if size < 1e6 and value == int(value):
        return str(int(value))
    if 0.001 <= size < 1:
        return f"{round(value, 4):g}"
    return f"{value:.3g}" if size < 1 else f"{value:.4g}" if size < 1000 else f"{value:.6g}"


def _value_as_json(value: Any) -> Any:
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def _make_text_styler() -> TextStyler:
    """A function that adds a style to a text if standard output is a terminal with styles."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not is_terminal or os.environ.get("NO_COLOR"):
        return lambda text, style: text
    return lambda text, style: f"\x1b[{style}m{text}\x1b[0m" if style else text


def _format_grid_pairs(
    rows: list[tuple[LabelledArray, LabelledArray]], columns: int, style_text: TextStyler
) -> list[str]:
    """Rows of two grids with aligned cells. If a row is too wide, the grids are one below the other."""
    left, right = ([_format_cells(grid, side) for grid in side] for side in zip(*rows, strict=True))
    cell_widths = [max(len(cells[0][0]) for cells in side) for side in (left, right)]
    blocks = []
    for pair, cells in zip(rows, zip(left, right, strict=True), strict=True):
        blocks.append(
            [
                _grid_lines(*args, columns, style_text)
                for args in zip(pair, cells, cell_widths, strict=True)
            ]
        )
    max_lengths = [max(length for block in blocks for _, length in block[i]) for i in (0, 1)]
    if sum(max_lengths) + len(GRID_SEPARATOR) > columns:
        return ["\n".join(_join_side_by_side(side, [], 0)) for block in blocks for side in block]
    return ["\n".join(_join_side_by_side(block[0], block[1], max_lengths[0])) for block in blocks]


def _join_side_by_side(
    left: LinesWithLengths, right: LinesWithLengths, left_width: int
) -> list[str]:
    pairs = itertools.zip_longest(left, right, fillvalue=("", 0))
    texts = [
        a + " " * (left_width - length) + GRID_SEPARATOR + b if b else a
        for (a, length), (b, _) in pairs
    ]
    return [text.rstrip() for text in texts]


def _format_cells(
    grid: LabelledArray, grids_of_column: tuple[LabelledArray, ...]
) -> list[list[str]]:
    """The numbers of a grid at equal width. Selected numbers have a star; `grids_of_column` leave room for stars."""
    cells = [[format_number(value) for value in row] for row in grid.values.tolist()]
    if any(other_grid.selected_mask is not None for other_grid in grids_of_column):
        selected_mask = (
            np.zeros(grid.values.shape, bool) if grid.selected_mask is None else grid.selected_mask
        )
        stars = np.where(selected_mask, "*", " ").tolist()
        cells = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(cells, stars, strict=True)
        ]
    width = max(len(cell) for row in cells for cell in row)
    return [[cell.rjust(width) for cell in row] for row in cells]


def _grid_lines(
    grid: LabelledArray, cells: list[list[str]], width: int, columns: int, style_text: TextStyler
) -> LinesWithLengths:
    """The lines of a grid and their lengths without styles, in blocks if the grid is wider than `columns`."""
    block_size = max(1, (columns + 1) // (width + 1))
    lines = [(style_text(grid.title, BOLD), len(grid.title))]
    for start in range(0, len(cells[0]), block_size):
        block = [row[start : start + block_size] for row in cells]
        if len(cells[0]) > block_size:
            heading = f"columns {start} to {start + len(block[0]) - 1}"
            lines.append((heading, len(heading)))
        for r, row in enumerate(block):
            styled_cells = [
                style_text(cell.rjust(width), _cell_style(grid, (r, start + c)))
                for c, cell in enumerate(row)
            ]
            lines.append((" ".join(styled_cells), (width + 1) * len(row) - 1))
    return lines


def _cell_style(grid: LabelledArray, position: Position) -> str:
    if grid.selected_mask is not None:
        return SELECTED if grid.selected_mask[position] else PLAIN
    if grid.receives_cotangent_mask is not None:
        return RECEIVER if grid.receives_cotangent_mask[position] else DIM
    return PLAIN


def _route_summary_text(route: CotangentRoute) -> str:
    if route.call.returns_mask:
        return "y is 1 where it is True. A star marks these elements of x. A boolean result has no gradient."
    intro = "A cotangent says how much a loss changes when a number does. "
    if route.indices is not None:
        return (
            intro + "A star marks where a maximum was, and is put back. Every y gets the cotangent "
            "found there; one whose place a later one took gets 0."
        )
    unit = "window" if route.call.window is not None else "output"
    text = intro + (f"A star marks what some {unit} chose. " if route.call.selects_elements else "")
    text += f"dx adds up what the {unit}s of an input send it"
    if not (route.dy == 1).all():
        return text + ": its share of each one's dy."
    mean_note = f"; that of the mean is this over the number of {unit}s, {route.y.size}"
    return text + f". Each dy is 1, so dx is the gradient of the sum of y{mean_note}."


def _table_of_outputs(route: CotangentRoute, columns: int, style_text: TextStyler) -> str:
    """One line per output: its value, its window, and the elements that receive its cotangent."""
    is_unpool = route.indices is not None
    has_no_window = is_unpool or route.call.window is None
    rows = []
    for output in np.ndindex(route.y.shape):
        if route.input_masks[output].any():
            cells = (
                str(output),
                format_number(route.y[output].item()),
                "" if has_no_window else _window_ranges(route, output),
            )
            rows.append((*cells, _cotangent_receivers_text(route, output)))
    window_title = "" if has_no_window else "window"
    table = [("x at" if is_unpool else "y at", "value", window_title, "cotangent goes to"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = []
    for row in table:
        prefix = "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=False) if width
        )
        text = textwrap.fill(
            row[3], columns, initial_indent=prefix + "  ", subsequent_indent=" " * (len(prefix) + 2)
        )
        lines.append(style_text(text, BOLD) if row is table[0] else text)
    return "\n".join(lines)


def _window_ranges(route: CotangentRoute, output: Position) -> str:
    rows, columns = route.rows_and_columns_read_by(output)
    return f"rows {_format_range(rows)}, columns {_format_range(columns)}"


def _format_range(positions: list[int]) -> str:
    first, last = positions[0], positions[-1]
    if last - first + 1 != len(positions):
        return " ".join(map(str, positions))
    return f"{first}-{last}" if last > first else f"{first}"


def _cotangent_receivers_text(route: CotangentRoute, output: Position) -> str:
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
