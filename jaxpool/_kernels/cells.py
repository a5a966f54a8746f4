"""The largest pixel of each cell of boxes: which one it is, and where its cotangent goes, without a scatter.

Bounds are (low, high) of rows and of columns, (N, cells) each, of N boxes of one image (H, W, C).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._kernels.compare import Order, decode, decoded_losing, encode, level, wins
from jaxpool._kernels.dtypes import index_dtype
from jaxpool._kernels.keep import keep
from jaxpool._plan.problem import Keep

Bounds = Sequence[Array]  # rows from and to, columns from and to


def largest(x: Array, bounds: Bounds, ties: Order) -> tuple[Array, Array]:
    """The largest pixel of each cell (N, cells, cells, C) and its row-major position; of none 0 and H * W.

    Step t looks at pixel t of every cell, as many steps as the largest cell has pixels.
    """
    top, bottom, left, right = bounds
    height, width, _ = x.shape
    pixels = decode(x).reshape(height * width, -1)
    fill = decoded_losing(x.dtype, "max")
    across = jnp.maximum(jnp.max(right - left), 1)
    steps = jnp.maximum(jnp.max(bottom - top), 1) * across

    def seen(t: Array) -> tuple[Array, Array, Array]:
        row, column = (top + t // across)[:, :, None], (left + t % across)[:, None, :]
        here = ((row < bottom[:, :, None]) & (column < right[:, None, :]))[..., None]
        at = row * width + column
        taken = jnp.take(pixels, at, axis=0, mode="clip")
        return jnp.broadcast_to(here, taken.shape), taken, at[..., None]

    def step(t: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        best, where = state
        here, value, at = seen(t)
        unset = where == height * width
        won = here & (unset | wins(value, best, "max", ties))
        return jnp.where(won, value, best), jnp.where(won, at, where)

    here, value, at = seen(jnp.asarray(0))
    state = (jnp.where(here, value, fill), jnp.where(here, at, height * width))
    begin = vary_together(state, x, *bounds)
    best, where = lax.fori_loop(1, steps, step, (begin[0], begin[1]))
    empty = where == height * width
    y = jnp.where(empty, jnp.zeros((), best.dtype), best)
    return encode(y, x.dtype), where.astype(index_dtype(height * width + 1))


class Tests(NamedTuple):
    """Who is chosen, in two steps: rows (N, cells, H, cells, C), columns (N, H, cells, C) at a column W."""

    row: Callable[[int], Array]  # of cell row p: the rows of the image it is in, (N, H, cells, C)
    column: Callable[[int, int], Array]  # of box n, cell column q: the columns, (H, W, C)


def at_positions(where: Array, height: int, width: int, by: Keep) -> Tests:
    """One pixel a cell, at its position.

    Two cells of one column of cells that chose one row chose the same pixel of it.
    """
    where = where.astype(np.int32)
    row, column = where // width, where % width
    line = lax.broadcasted_iota(np.int32, (1, height, 1, 1), 1)

    def rows(p: int) -> Array:
        return row[:, p, None] == line

    none = jnp.full((), -1, np.int32)

    def columns(column: Array) -> Array:
        chosen = [jnp.where(rows(p), column[:, p, None], none) for p in range(where.shape[1])]
        return functools.reduce(jnp.maximum, chosen)

    at = keep(by, columns, column)
    place = lax.broadcasted_iota(np.int32, (1, width, 1), 1)
    return Tests(rows, lambda n, q: at[n, :, None, q] == place)


def at_ties(x: Array, y: Array, bounds: Bounds) -> Tests:
    """Every pixel of a cell that ties with its largest: its row reaches it, and it reaches that of its row."""
    top, bottom, left, right = bounds
    height, width, _ = x.shape
    value, best = decode(x), decode(y)
    fill = jnp.asarray(decoded_losing(x.dtype, "max"))
    place = jnp.arange(width)
    inside = (place >= left[..., None]) & (place < right[..., None])  # (N, cells, W)
    masked = jnp.where(inside[:, None, :, :, None], value[None, :, None], fill)
    of_row = jnp.max(masked, axis=3)
    line = jnp.arange(height)

    def rows(p: int) -> Array:
        within = (line >= top[:, p, None]) & (line < bottom[:, p, None])
        there = (right > left)[:, None, :, None]
        return within[:, :, None, None] & there & level(of_row, best[:, p, None])

    def columns(n: int, q: int) -> Array:
        return inside[n, q][None, :, None] & level(value, of_row[n, :, None, q])

    return Tests(rows, columns)


def _sum(terms: Sequence[Array]) -> Array:
    return functools.reduce(lax.add, terms)


def spread(dy: Array, tests: Tests, by: Keep) -> Array:
    """The sum (H, W, C) over boxes and cells of what each cell sends to each pixel that it chose."""

    def of_rows(dy: Array) -> Array:
        return _sum([jnp.where(tests.row(p), dy[:, p, None], 0) for p in range(dy.shape[1])])

    rows = keep(by, of_rows, dy)
    both = [(n, q) for n in range(dy.shape[0]) for q in range(dy.shape[2])]
    return _sum([jnp.where(tests.column(n, q), rows[n, :, None, q], 0) for n, q in both])


def collect(x: Array, tests: Tests, cells: tuple[int, ...]) -> Array:
    """The transpose of `spread`: for each of `cells` (N, rows, columns) the sum of x over what it chose."""
    boxes, down, across = cells

    def of_rows(n: int) -> Array:
        kept = [jnp.where(tests.column(n, q), x, 0).sum(1) for q in range(across)]
        return jnp.stack(kept, 1)

    rows = jnp.stack([of_rows(n) for n in range(boxes)])
    return jnp.stack([jnp.where(tests.row(p), rows, 0).sum(1) for p in range(down)], 1)
