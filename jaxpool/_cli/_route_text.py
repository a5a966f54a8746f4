"""A route as text, with grids side by side and in colour if the terminal supports it, or as JSON."""

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

StyleText = Callable[[str, str], str]
LinesWithLengths = list[tuple[str, int]]
BOLD, DIM, CHOSEN, LIT, PLAIN = "1", "2", "1;36", "1;33", ""  # SGR codes of a terminal
GRID_SEPARATOR = "    "  # between two grids in a row
MAX_TEXT_COLUMNS = 100  # columns of running text


def route_as_text(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as text for a terminal."""
    columns, paint = shutil.get_terminal_size().columns, _make_text_styler()
    fill = min(columns, MAX_TEXT_COLUMNS)
    parts = [paint(route.settings.source_code(route.array.shape), BOLD)]
    parts += [textwrap.fill(f"Note: {note}", fill) for note in notes]
    parts += _format_grid_pairs(route.labelled_arrays(), columns, paint)
    parts += [textwrap.fill(_route_summary_text(route), fill)]
    parts += [] if route.settings.returns_mask else [_table_of_outputs(route, fill, paint)]
    return "\n\n".join(parts)


def route_as_json(route: CotangentRoute, notes: list[str]) -> str:
    """The explanation as JSON; NaN and infinities are the strings "nan", "inf" and "-inf"."""
    grids = {"x": route.x, "y": route.y}
    if not route.settings.returns_mask:
        grids |= {"dy": route.dy, "dx": route.dx}
    if route.indices is not None:  # `max_unpool` names its input y and its output x
        grids = {"array": route.array, "y": route.x, "indices": route.indices}
        grids |= {"x": route.y, "dx": route.dy, "dy": route.dx}
    explanation = {
        "call": route.settings.source_code(route.array.shape),
        "settings": {key: _value_as_json(value) for key, value in route.settings.as_dict().items()},
        "notes": notes,
        **{
            name: [[_value_as_json(value) for value in row] for row in grid.tolist()]
            for name, grid in grids.items()
        },
        "shares": [
            {
                "output": list(output),
                "to": [
                    [*at, _value_as_json(share)]
                    for at, share in route.cotangent_receivers_of(output)
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


def _make_text_styler() -> StyleText:
    """A function that adds a style to a text if standard output is a terminal with styles."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not terminal or os.environ.get("NO_COLOR"):
        return lambda text, style: text
    return lambda text, style: f"\x1b[{style}m{text}\x1b[0m" if style else text


def _format_grid_pairs(
    rows: list[tuple[LabelledArray, LabelledArray]], columns: int, style_text: StyleText
) -> list[str]:
    """Rows of two grids with aligned cells. If a row is too wide, the grids are one below the other."""
    left, right = ([_format_cells(grid, side) for grid in side] for side in zip(*rows, strict=True))
    wide = [max(len(cells[0][0]) for cells in side) for side in (left, right)]
    blocks = []
    for pair, cells in zip(rows, zip(left, right, strict=True), strict=True):
        blocks.append(
            [
                _grid_lines(*each, columns, style_text)
                for each in zip(pair, cells, wide, strict=True)
            ]
        )
    most = [max(length for sides in blocks for _, length in sides[at]) for at in (0, 1)]
    if sum(most) + len(GRID_SEPARATOR) > columns:
        return ["\n".join(_join_side_by_side(side, [], 0)) for sides in blocks for side in sides]
    return ["\n".join(_join_side_by_side(sides[0], sides[1], most[0])) for sides in blocks]


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
    """The numbers of a grid at equal width; chosen numbers have a star, for which all grids of the side leave room."""
    cells = [[format_number(value) for value in row] for row in grid.values.tolist()]
    if any(each.selected_mask is not None for each in grids_of_column):
        chosen = (
            np.zeros(grid.values.shape, bool) if grid.selected_mask is None else grid.selected_mask
        )
        stars = np.where(chosen, "*", " ").tolist()
        cells = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(cells, stars, strict=True)
        ]
    width = max(len(cell) for row in cells for cell in row)
    return [[cell.rjust(width) for cell in row] for row in cells]


def _grid_lines(
    grid: LabelledArray, cells: list[list[str]], width: int, columns: int, style_text: StyleText
) -> LinesWithLengths:
    """The lines of a grid and their lengths without styles, in blocks of columns if it is wider than `columns`."""
    fits = max(1, (columns + 1) // (width + 1))
    lines = [(style_text(grid.title, BOLD), len(grid.title))]
    for start in range(0, len(cells[0]), fits):
        part = [row[start : start + fits] for row in cells]
        if len(cells[0]) > fits:
            head = f"columns {start} to {start + len(part[0]) - 1}"
            lines.append((head, len(head)))
        for r, row in enumerate(part):
            painted = [
                style_text(cell.rjust(width), _cell_style(grid, (r, start + c)))
                for c, cell in enumerate(row)
            ]
            lines.append((" ".join(painted), (width + 1) * len(row) - 1))
    return lines


def _cell_style(grid: LabelledArray, position: Position) -> str:
    if grid.selected_mask is not None:
        return CHOSEN if grid.selected_mask[position] else PLAIN
    if grid.receives_cotangent_mask is not None:
        return LIT if grid.receives_cotangent_mask[position] else DIM
    return PLAIN


def _route_summary_text(route: CotangentRoute) -> str:
    op, ones = route.settings.op, bool((route.dy == 1).all())
    if route.settings.returns_mask:
        return "y is 1 where it is True. A star marks these elements of x. A boolean result has no gradient."
    what = "A cotangent says how much a loss changes when a number does. "
    if op == "unpool":
        return (
            what + "A star marks where a maximum was, and is put back. Every y gets the cotangent "
            "found there; one whose place a later one took gets 0."
        )
    one = "window" if route.settings.has_window else "output"
    text = what + (
        f"A star marks what some {one} chose. " if route.settings.selects_elements else ""
    )
    text += f"dx adds up what the {one}s of an input send it"
    if not ones:
        return text + ": its share of each one's dy."
    mean = f"; that of the mean is this over the number of {one}s, {route.y.size}"
    return text + f". Each dy is 1, so dx is the gradient of the sum of y{mean}."


def _table_of_outputs(route: CotangentRoute, columns: int, style_text: StyleText) -> str:
    """One line per output: its value, its window, and the elements that receive its cotangent."""
    unpool = route.settings.op == "unpool"
    windowless = unpool or not route.settings.has_window
    rows = []
    for output in np.ndindex(route.y.shape):
        if route.input_masks[output].any():
            cells = (
                str(output),
                format_number(route.y[output].item()),
                "" if windowless else _window_ranges(route, output),
            )
            rows.append((*cells, _cotangent_receivers_text(route, output)))
    window = "" if windowless else "window"
    table = [("x at" if unpool else "y at", "value", window, "cotangent goes to"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines = []
    for row in table:
        front = "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=False) if width
        )
        text = textwrap.fill(
            row[3], columns, initial_indent=front + "  ", subsequent_indent=" " * (len(front) + 2)
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
    sent = route.cotangent_receivers_of(output)
    if not sent:
        return "nobody"
    shares = {share for _, share in sent}
    even = not route.settings.selects_elements and len(shares) == 1
    if even and len(sent) == route.input_masks[output].sum() > 1:
        return f"all {len(sent)}, {_format_share(route, shares.pop())} each"
    return ", ".join(
        str(at) if share == 1 else f"{at} gets {_format_share(route, share)}" for at, share in sent
    )


def _format_share(route: CotangentRoute, share: float) -> str:
    """A share as a fraction such as 1/3, or as a number if it is not a simple fraction."""
    if not route.settings.prints_shares_as_fractions or not np.isfinite(share):
        return format_number(share)
    part = Fraction(share).limit_denominator(400)
    return str(part) if abs(float(part) - share) <= 1e-6 * abs(share) else format_number(share)
