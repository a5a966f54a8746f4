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

from jaxpool._cli._route import Grid, Position, Route

Paint = Callable[[str, str], str]
Lines = list[tuple[str, int]]
BOLD, DIM, CHOSEN, LIT, PLAIN = "1", "2", "1;36", "1;33", ""  # SGR codes of a terminal
GAP = "    "  # between two grids in a row
WIDEST = 100  # columns of running text


def as_text(route: Route, notes: list[str]) -> str:
    """The explanation as text for a terminal."""
    columns, paint = shutil.get_terminal_size().columns, _painter()
    fill = min(columns, WIDEST)
    parts = [paint(route.settings.call(route.array.shape), BOLD)]
    parts += [textwrap.fill(f"Note: {note}", fill) for note in notes]
    parts += _rows_of_grids(route.grids(), columns, paint)
    parts += [textwrap.fill(_summary(route), fill)]
    parts += [] if route.settings.marks else [_table(route, fill, paint)]
    return "\n\n".join(parts)


def as_json(route: Route, notes: list[str]) -> str:
    """The explanation as JSON; NaN and infinities are the strings "nan", "inf" and "-inf"."""
    grids = {"x": route.x, "y": route.y}
    if not route.settings.marks:
        grids |= {"dy": route.dy, "dx": route.dx}
    if route.indices is not None:  # `max_unpool` names its input y and its output x
        grids = {"array": route.array, "y": route.x, "indices": route.indices}
        grids |= {"x": route.y, "dx": route.dy, "dy": route.dx}
    explanation = {
        "call": route.settings.call(route.array.shape),
        "settings": {key: _plain(value) for key, value in route.settings.as_dict().items()},
        "notes": notes,
        **{
            name: [[_plain(value) for value in row] for row in grid.tolist()]
            for name, grid in grids.items()
        },
        "shares": [
            {
                "output": list(output),
                "to": [[*at, _plain(share)] for at, share in route.sent(output)],
            }
            for output in np.ndindex(route.y.shape)
        ],
    }
    return json.dumps(explanation, allow_nan=False)


def number(value: float) -> str:
    """A number for people: integers in full, other numbers to about four digits."""
    size = abs(value)
    if size < 1e6 and value == int(value):
        return str(int(value))
    if 0.001 <= size < 1:
        return f"{round(value, 4):g}"
    return f"{value:.3g}" if size < 1 else f"{value:.4g}" if size < 1000 else f"{value:.6g}"


def _plain(value: Any) -> Any:
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def _painter() -> Paint:
    """A function that adds a style to a text if standard output is a terminal with styles."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not terminal or os.environ.get("NO_COLOR"):
        return lambda text, style: text
    return lambda text, style: f"\x1b[{style}m{text}\x1b[0m" if style else text


def _rows_of_grids(rows: list[tuple[Grid, Grid]], columns: int, paint: Paint) -> list[str]:
    """Rows of two grids with aligned cells. If a row is too wide, the grids are one below the other."""
    left, right = ([_cells(grid, side) for grid in side] for side in zip(*rows, strict=True))
    wide = [max(len(cells[0][0]) for cells in side) for side in (left, right)]
    blocks = []
    for pair, cells in zip(rows, zip(left, right, strict=True), strict=True):
        blocks.append(
            [_lines(*each, columns, paint) for each in zip(pair, cells, wide, strict=True)]
        )
    most = [max(length for sides in blocks for _, length in sides[at]) for at in (0, 1)]
    if sum(most) + len(GAP) > columns:
        return ["\n".join(_joined(side, [], 0)) for sides in blocks for side in sides]
    return ["\n".join(_joined(sides[0], sides[1], most[0])) for sides in blocks]


def _joined(left: Lines, right: Lines, wide: int) -> list[str]:
    pairs = itertools.zip_longest(left, right, fillvalue=("", 0))
    texts = [a + " " * (wide - length) + GAP + b if b else a for (a, length), (b, _) in pairs]
    return [text.rstrip() for text in texts]


def _cells(grid: Grid, side: tuple[Grid, ...]) -> list[list[str]]:
    """The numbers of a grid at equal width; chosen numbers have a star, for which all grids of the side leave room."""
    cells = [[number(value) for value in row] for row in grid.values.tolist()]
    if any(each.chosen is not None for each in side):
        chosen = np.zeros(grid.values.shape, bool) if grid.chosen is None else grid.chosen
        stars = np.where(chosen, "*", " ").tolist()
        cells = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(cells, stars, strict=True)
        ]
    width = max(len(cell) for row in cells for cell in row)
    return [[cell.rjust(width) for cell in row] for row in cells]


def _lines(grid: Grid, cells: list[list[str]], width: int, columns: int, paint: Paint) -> Lines:
    """The lines of a grid and their lengths without styles, in blocks of columns if it is wider than `columns`."""
    fits = max(1, (columns + 1) // (width + 1))
    lines = [(paint(grid.title, BOLD), len(grid.title))]
    for start in range(0, len(cells[0]), fits):
        part = [row[start : start + fits] for row in cells]
        if len(cells[0]) > fits:
            head = f"columns {start} to {start + len(part[0]) - 1}"
            lines.append((head, len(head)))
        for r, row in enumerate(part):
            painted = [
                paint(cell.rjust(width), _style(grid, (r, start + c))) for c, cell in enumerate(row)
            ]
            lines.append((" ".join(painted), (width + 1) * len(row) - 1))
    return lines


def _style(grid: Grid, at: Position) -> str:
    if grid.chosen is not None:
        return CHOSEN if grid.chosen[at] else PLAIN
    if grid.lit is not None:
        return LIT if grid.lit[at] else DIM
    return PLAIN


def _summary(route: Route) -> str:
    op, ones = route.settings.op, bool((route.dy == 1).all())
    if route.settings.marks:
        return "y is 1 where it is True. A star marks these elements of x. A boolean result has no gradient."
    what = "A cotangent says how much a loss changes when a number does. "
    if op == "unpool":
        return (
            what + "A star marks where a maximum was, and is put back. Every y gets the cotangent "
            "found there; one whose place a later one took gets 0."
        )
    one = "window" if route.settings.windowed else "output"
    text = what + (f"A star marks what some {one} chose. " if route.settings.selects else "")
    text += f"dx adds up what the {one}s of an input send it"
    if not ones:
        return text + ": its share of each one's dy."
    mean = f"; that of the mean is this over the number of {one}s, {route.y.size}"
    return text + f". Each dy is 1, so dx is the gradient of the sum of y{mean}."


def _table(route: Route, columns: int, paint: Paint) -> str:
    """One line per output: its value, its window, and the elements that receive its cotangent."""
    unpool = route.settings.op == "unpool"
    windowless = unpool or not route.settings.windowed
    rows = []
    for output in np.ndindex(route.y.shape):
        if route.members[output].any():
            cells = (
                str(output),
                number(route.y[output].item()),
                "" if windowless else _ranges(route, output),
            )
            rows.append((*cells, _receivers(route, output)))
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
        lines.append(paint(text, BOLD) if row is table[0] else text)
    return "\n".join(lines)


def _ranges(route: Route, output: Position) -> str:
    rows, columns = route.looked_at(output)
    return f"rows {_range(rows)}, columns {_range(columns)}"


def _range(positions: list[int]) -> str:
    first, last = positions[0], positions[-1]
    if last - first + 1 != len(positions):
        return " ".join(map(str, positions))
    return f"{first}-{last}" if last > first else f"{first}"


def _receivers(route: Route, output: Position) -> str:
    sent = route.sent(output)
    if not sent:
        return "nobody"
    shares = {share for _, share in sent}
    even = not route.settings.selects and len(shares) == 1
    if even and len(sent) == route.members[output].sum() > 1:
        return f"all {len(sent)}, {_share(route, shares.pop())} each"
    return ", ".join(
        str(at) if share == 1 else f"{at} gets {_share(route, share)}" for at, share in sent
    )


def _share(route: Route, share: float) -> str:
    """A share as a fraction such as 1/3, or as a number if it is not a simple fraction."""
    if not route.settings.in_parts or not np.isfinite(share):
        return number(share)
    part = Fraction(share).limit_denominator(400)
    return str(part) if abs(float(part) - share) <= 1e-6 * abs(share) else number(share)
