"""A `CotangentRoute` as text, with grids side by side, or as JSON."""

from __future__ import annotations

import itertools
import json
import shutil
import textwrap
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
    grids = {"x": route.x, "y": route.y}
    if not route.call.returns_mask:
        grids |= {"dy": route.dy, "dx": route.dx}
    explanation = {
        "call": route.call.source_code(),
        "notes": notes,
        **{
            name: [[_value_as_json(value) for value in row] for row in grid.tolist()]
            for name, grid in grids.items()
        },
        "shares": [
            {
                "output": output,
                "to": [
                    [*position, _value_as_json(share)]
                    for position, share in route.cotangent_receivers_of(output)
                ],
                "tied": int(route.num_tied[output]),
            }
            for output in np.ndindex(route.y.shape)
        ],
    }
    return json.dumps(explanation, allow_nan=False)


def _value_as_json(value: Any) -> Any:
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def format_number(value: float) -> str:
    """A number for people: integers in full, other numbers to four digits."""
    is_short_integer = abs(value) < 1e6 and value == int(value)
    return str(int(value)) if is_short_integer else f"{value:.4g}"


def _format_grids(rows: list[tuple[LabelledArray, LabelledArray]], columns: int) -> list[str]:
    """Rows of two grids. If one row has more than `columns` characters, all grids are one below the other."""
    left, right = (_format_side(side) for side in zip(*rows, strict=True))
    width, right_width = (
        max(len(line) for block in side for line in block) for side in (left, right)
    )
    if width + len(GRID_SEPARATOR) + right_width > columns:
        return ["\n".join(block) for pair in zip(left, right, strict=True) for block in pair]
    return [
        "\n".join(
            f"{left_line:{width}}{GRID_SEPARATOR}{right_line}".rstrip()
            for left_line, right_line in itertools.zip_longest(*pair, fillvalue="")
        )
        for pair in zip(left, right, strict=True)
    ]


def _format_side(grids: tuple[LabelledArray, ...]) -> list[list[str]]:
    """The lines of grids below each other, with aligned columns. A selected number has a star."""
    texts = [
        np.array([[format_number(value) for value in row] for row in grid.values.tolist()], object)
        for grid in grids
    ]
    if grids[0].selected_mask is not None:
        texts[0] = texts[0] + np.where(grids[0].selected_mask, "*", " ").astype(object)
        texts[1:] = [text + " " for text in texts[1:]]
    width = max(len(cell) for text in texts for cell in text.flat)
    return [
        [grid.title, *(" ".join(cell.rjust(width) for cell in row).rstrip() for row in text)]
        for grid, text in zip(grids, texts, strict=True)
    ]


def tie_sentence(route: CotangentRoute) -> str:
    """A sentence about the outputs for which the tie rule decides, with a space at its end; "" if there are none."""
    num_outputs = np.count_nonzero(route.num_tied)
    if not num_outputs:
        return ""
    unit = "window" if route.call.window is not None else "output"
    tie = f"{_tied_things(route)} tie, and {_tie_rule(route, ' decides')}"
    return f"In {num_outputs} of {route.y.size} {unit}s {tie}. "


def _tied_things(route: CotangentRoute) -> str:
    """The plural noun for what ties: `roi_align` compares points between pixels."""
    return "points" if route.call.record.takes("boxes", "kind") else "elements"


def _tie_rule(route: CotangentRoute, verb: str = "") -> str:
    """The argument `ties` and a verb, or the rule of a function without this argument."""
    call = route.call
    if not call.record.takes("ties"):
        return "the first is chosen"
    return f"ties={call.arguments.get('ties', call.record.parameters['ties'].default)!r}{verb}"


def _summary_text(route: CotangentRoute) -> str:
    if route.call.returns_mask:
        text = "y is 1 where it is True. A star marks these elements of x. "
        return f"{text}{tie_sentence(route)}A boolean result has no gradient."
    unit = "window" if route.call.window is not None else "output"
    text = "A cotangent says how much a loss changes when a number does. "
    text += f"A star marks what some {unit} chose. " if route.call.selects_elements else ""
    text += f"{tie_sentence(route)}dx adds up what the {unit}s of an input send it"
    if not (route.dy == 1).all():
        return text + ": its share of each one's dy."
    mean_note = f"; that of the mean is this over the number of {unit}s, {route.y.size}"
    return text + f". Each dy is 1, so dx is the gradient of the sum of y{mean_note}."


def _table_of_outputs(route: CotangentRoute, columns: int) -> str:
    """One line per output: its value, its window, and the elements that receive its cotangent."""
    has_windows = route.call.window is not None
    rows = [("y at", "value", *["window"] * has_windows, "cotangent goes to")]
    for output in np.ndindex(route.y.shape):
        if route.input_masks[output].any() or route.num_tied[output]:
            window = [_window_ranges(route.input_masks[output])] if has_windows else []
            value = format_number(route.y[output].item())
            rows.append((str(output), value, *window, receivers_text(route, output)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = []
    for *cells, receivers in rows:
        prefix = "".join(f"{cell:{width}}  " for cell, width in zip(cells, widths, strict=True))
        indent = " " * len(prefix)
        wrapped = textwrap.fill(receivers, columns, initial_indent=prefix, subsequent_indent=indent)
        lines.append(wrapped)
    return "\n".join(lines)


def _window_ranges(window_mask: np.ndarray) -> str:
    rows, columns = (sorted(set(positions.tolist())) for positions in np.nonzero(window_mask))
    return f"rows {_format_range(rows)}, columns {_format_range(columns)}"


def _format_range(positions: list[int]) -> str:
    first, last = positions[0], positions[-1]
    if last - first + 1 != len(positions):
        return " ".join(map(str, positions))
    return f"{first}-{last}" if last > first else f"{first}"


def receivers_text(route: CotangentRoute, output: Position) -> str:
    """The inputs that receive the cotangent of an output, their shares, and the elements that tie."""
    receivers = route.cotangent_receivers_of(output)
    shares = {share for _, share in receivers}
    has_all = len(receivers) == route.input_masks[output].sum() > 1
    if route.call.window is not None and has_all and len(shares) == 1:
        text = f"all {len(receivers)}, {_format_share(shares.pop())} each"
    else:
        texts = [
            str(position) if share == 1 else f"{position} gets {_format_share(share)}"
            for position, share in receivers
        ]
        is_elementwise = route.call.record.topic == "elementwise"
        text = ", ".join(texts) or ("another array" if is_elementwise else "nobody")
    if not (num_tied := route.num_tied[output]):
        return text
    # Running maxima and `k_max_pool` have no rule "split", which would find all tied elements.
    or_more = "" if "split" in route.call.record.oracle_ties else " or more"
    tied = _tied_things(route)
    # Each tied point has shares for up to four pixels, so the number of points is not known.
    count = f"{num_tied}{or_more} " if tied == "elements" else ""
    return f"{text}; {count}{tied} tie, {_tie_rule(route)}"


def _format_share(share: float) -> str:
    """A share as a fraction such as 1/3, or as a number if it is no such fraction."""
    parts = round(1 / share) if abs(share) < 1 else 1
    return f"1/{parts}" if parts > 1 and abs(parts * share - 1) < 1e-6 else format_number(share)
