"""Draw how a 2x2 max pool scatters its cotangents: routing.svg (stride 2) and routing_stride_1.svg.

python docs/pictures/routing.py
"""

from pathlib import Path

import jax
import numpy as np

import jaxpool

HERE = Path(__file__).parent
X = "1 3 4 2 5 2; 4 2 5 6 8 3; 5 3 7 8 9 3; 8 4 3 6 0 2; 7 10 3 6 3 5; 4 7 2 4 7 8"
CELL = 38
INK, LINE, CHOSEN = "#1f2430", "#b8bfcc", ["#ffffff", "#ffd9a0", "#ffb454", "#ff9a1f", "#f27d00"]


def text(x, y, words, size=15, anchor="middle", weight="normal"):
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{INK}">{words}</text>'
    )


def grid(values, fills, left, top, title):
    """A grid of numbers. The colour of a cell shows how many windows selected it."""
    parts = [text(left, top - 14, title, 14, "start", "bold")]
    for (row, column), value in np.ndenumerate(values):
        x, y = left + column * CELL, top + row * CELL
        fill = CHOSEN[min(int(fills[row, column]), 4)]
        parts.append(
            f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="{LINE}"/>'
        )
        parts.append(text(x + CELL / 2, y + CELL / 2 + 5, f"{value:g}"))
    return parts


def windows(rows, columns, stride, left, top):
    """Outlines of all windows at stride 2, or of one window at stride 1."""
    places = [(r, c) for r in range(rows) for c in range(columns)] if stride == 2 else [(1, 3)]
    side = 2 * CELL
    return [
        f'<rect x="{left + c * stride * CELL}" y="{top + r * stride * CELL}" width="{side}" height="{side}" '
        f'fill="none" stroke="{INK}" stroke-width="2.5"/>'
        for r, c in places
    ]


def arrow(start, end):
    (x0, y0), (x1, y1) = start, end
    return (
        f'<path d="M{x0} {y0} H{x1 - 7}" stroke="{INK}" stroke-width="2" fill="none"/>'
        f'<path d="M{x1} {y1} l-9 -5 v10 z" fill="{INK}"/>'
    )


def picture(stride):
    x = np.array([row.split() for row in X.split(";")], np.float32)

    def pool(x):
        return jaxpool.max_pool(x, (2, 2), (stride, stride), axes=(0, 1))

    y, count = np.asarray(pool(x)), np.asarray(jax.grad(lambda x: pool(x).sum())(x))
    gap, top = 96, 62
    lefts = [24, 24 + 6 * CELL + gap, 24 + (6 + y.shape[1]) * CELL + 2 * gap]
    width, height = lefts[2] + 6 * CELL + 24, top + 6 * CELL + 44
    middle = top + 3 * CELL
    small = top + (6 - y.shape[0]) * CELL // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        f"<title>A 2x2 max pool with stride {stride}, and where its cotangent goes</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *grid(x, count, lefts[0], top, "input x"),
        *windows(*y.shape, stride, lefts[0], top),
        arrow((lefts[0] + 6 * CELL + 16, middle), (lefts[1] - 16, middle)),
        text(lefts[1] - gap / 2, middle - 12, "max_pool", 13),
        *grid(y, np.zeros_like(y), lefts[1], small, "output y"),
        arrow((lefts[1] + y.shape[1] * CELL + 16, middle), (lefts[2] - 16, middle)),
        text(lefts[2] - gap / 2, middle - 12, "backward", 13),
        *grid(count, count, lefts[2], top, "cotangent of x"),
        text(lefts[0], height - 16, "A cell is coloured where a window chose it.", 13, "start"),
        text(lefts[2], height - 16, "Each output sends 1.", 13, "start"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    (HERE / "routing.svg").write_text(picture(2))
    (HERE / "routing_stride_1.svg").write_text(picture(1))
