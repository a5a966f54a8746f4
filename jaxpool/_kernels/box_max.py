"""Loops over the pixels in each cell of boxes, and the transpose without a scatter.

Cell (i, j) of a box has the rows `top[i] : bottom[i]` and the columns `left[j] : right[j]`. `walk` reads one pixel of
every cell at a time. `spread` cuts the image into tiles. Each pixel of a tile adds up the cotangents of the cells that
contain it, one box after another.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.compare import ties_with
from jaxpool._kernels.dtypes import index_dtype

# Cells per axis that a round of `spread` adds to each pixel. No pixel is in more cells of a `roi_max_pool` box that has
# at least one pixel per cell. See "roi_max_pool: a walk over boxes of about one size" in bench/NOTES.md.
SHARED = 2


class Cells(NamedTuple):
    """Image index of each of K boxes, (K,), and the start and exclusive end of its cells, (K, cells) each."""

    image: Array
    top: Array
    bottom: Array
    left: Array
    right: Array


def walk(
    join: Callable[..., Array],
    start: Any,
    xs: Sequence[Array],
    cells: Cells,
    together: int,
    *extra_args: Array,
) -> Array:
    """Fold `join` from `start` over the pixels of each cell: (K, cells, cells, C).

    `join(state, inside, position, *values, *extra_args)` gets a mask of the pixels that are in their cell, row-major
    positions, the values in xs (B, H, W, C) and the entries of `extra_args` for the box. Boxes are sorted by the size
    of their largest cell and processed in groups of `together`. A group runs one step per pixel of its largest cell.
    """
    batch, height, width, channels = xs[0].shape
    flat = [x.reshape(batch, height * width, -1) for x in xs]
    across = jnp.maximum(jnp.max(cells.right - cells.left, 1), 1)
    steps = across * jnp.max(cells.bottom - cells.top, 1)
    order = jnp.argsort(steps)
    count = steps.shape[0]
    groups = -(-count // together)
    slots = order[jnp.minimum(jnp.arange(groups * together), count - 1)]
    arrays = (steps, across, *cells, *extra_args)

    def of_group(group: tuple[Array, ...]) -> Array:
        steps, across, image, top, bottom, left, right, *extra_args = group

        def step(t: Array, state: Array) -> Array:
            row, column = top + (t // across)[:, None], left + (t % across)[:, None]
            here = (row < bottom)[:, :, None] & (column < right)[:, None, :]
            at = row[:, :, None] * width + column[:, None, :]
            here_of_x = image[:, None, None], at
            values = [x.at[here_of_x].get(mode="clip", wrap_negative_indices=False) for x in flat]
            position = at.astype(index_dtype(height * width + 1))
            return join(state, here[..., None], position[..., None], *values, *extra_args)

        begin = jnp.full((together, top.shape[1], left.shape[1], channels), start)
        begin = match_varying_mesh_axes([begin], *xs, *group)[0]
        return lax.fori_loop(0, jnp.max(steps), step, begin)

    grouped = tuple(a[slots].reshape(groups, together, *a.shape[1:]) for a in arrays)
    results = lax.map(of_group, grouped)
    return results.reshape(groups * together, *results.shape[2:])[jnp.argsort(order)]


class _Line(NamedTuple):
    """Cells of each box that contain each position of an axis: the `first` cell and their number `held`.

    Both arrays have the shape (tiles, boxes, positions of a tile). The cells that contain a position are adjacent.
    """

    first: Array
    held: Array

    @property
    def rounds(self) -> Array:
        """Number of rounds of `SHARED` cells that add a box to a tile, (tiles, K)."""
        return -(-jnp.max(self.held, 2) // SHARED)


def _line(low: Array, high: Array, tiles: int, length: int) -> _Line:
    at = jnp.arange(tiles * length, dtype=np.int32)[None, :, None]
    holding = (at >= low[:, None, :]) & (at < high[:, None, :])
    pair = jnp.argmax(holding, 2).astype(np.int32), jnp.sum(holding, 2, dtype=np.int32)
    return _Line(*[jnp.swapaxes(a.reshape(-1, tiles, length), 0, 1) for a in pair])


def spread(
    dy: Array,
    marks: Array,
    field: Array,
    cells: Cells,
    tile: Sequence[int],
    sizes: Sequence[int],
) -> Array:
    """Cotangent of x, (B, H, W, C): each pixel adds dy of all cells that contain it and whose mark ties with its mark.

    dy and `marks` are (K, cells, cells, C). The marks of pixels, `field`, are (B, H, W, C) or have one channel. Each
    tile of `tile` pixels adds one box after another, in an order that depends on the boxes alone, so sums have the
    same bits on every run.
    """
    batch, height, width = sizes
    high, wide = tile
    down, across = -(-height // high), -(-width // wide)
    rows = _line(cells.top, cells.bottom, down, high)
    columns = _line(cells.left, cells.right, across, wide)
    per_row, channels = dy.shape[2:]
    size = dy.shape[1] * per_row
    sent, marks = dy.reshape(-1, channels), marks.reshape(-1, channels)
    ends = ((0, 0), (0, down * high - height), (0, across * wide - width), (0, 0))
    fields = jnp.pad(field, ends).reshape(batch, down, high, across, wide, -1)
    fields = jnp.swapaxes(fields, 2, 3).reshape(batch * down * across, high, wide, -1)

    def of_tile(args: tuple[Array, Array]) -> Array:
        number, field = args
        image, i, j = number // (down * across), number // across % down, number % across
        row, column = (jax.tree.map(lambda a, k=k: a[k], b) for b, k in ((rows, i), (columns, j)))
        rounds_across = columns.rounds[j]
        rounds = jnp.where(cells.image == image, rows.rounds[i] * rounds_across, 0)
        order = jnp.argsort(-rounds, stable=True).astype(np.int32)

        def one_round(turn: Array, dx: Array) -> Array:
            def one_box(n: Array, dx: Array) -> Array:
                box = order[n]
                skip = turn // rounds_across[box] * SHARED, turn % rounds_across[box] * SHARED
                for u, v in np.ndindex(SHARED, SHARED):
                    p, q = skip[0] + u, skip[1] + v
                    here = (p < row.held[box])[:, None] & (q < column.held[box])[None, :]
                    first = row.first[box] + p, column.first[box] + q
                    at = box * size + first[0][:, None] * per_row + first[1][None]
                    value, mark = (jnp.take(x, at, axis=0, mode="clip") for x in (sent, marks))
                    chosen = here[..., None] & ties_with(mark, field)
                    dx = dx + jnp.where(chosen, value, 0)
                return dx

            return lax.fori_loop(0, jnp.sum(rounds > turn, dtype=np.int32), one_box, dx)

        zeros = match_varying_mesh_axes([jnp.zeros((high, wide, channels), dy.dtype)], dy, field)[0]
        return lax.fori_loop(0, jnp.max(rounds), one_round, zeros)

    numbers = jnp.arange(batch * down * across, dtype=np.int32)
    tiles = lax.map(of_tile, (numbers, fields)).reshape(batch, down, across, high, wide, channels)
    dx = jnp.swapaxes(tiles, 2, 3).reshape(batch, down * high, across * wide, channels)
    return dx[:, :height, :width]
