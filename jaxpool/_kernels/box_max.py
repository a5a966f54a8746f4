"""Loops over the pixels in each cell of boxes, and the transpose without a scatter.

Cell (i, j) of a box has the rows `top[i] : bottom[i]` and the columns `left[j] : right[j]`. `fold_pixels_of_cells`
reads one pixel of every cell at a time. `add_cells_to_pixels` cuts the image into tiles. Each pixel of a tile adds up
the cotangents of the cells that contain it, one box after another.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.compare import is_tied_with
from jaxpool._kernels.dtypes import index_dtype

# Cells per axis that a round of `add_cells_to_pixels` adds to each pixel. No pixel is in more cells of a `roi_max_pool`
# box that has at least one pixel per cell. See "roi_max_pool: a walk over boxes of about one size" in bench/NOTES.md.
CELLS_PER_ROUND = 2


class Cells(NamedTuple):
    """`image_index` of each of K boxes, (K,), and the start and exclusive end of its cells, (K, cells) each."""

    image_index: Array
    top: Array
    bottom: Array
    left: Array
    right: Array


def fold_pixels_of_cells(
    join_pixel: Callable[..., Array],
    initial_value: Any,
    xs: Sequence[Array],
    cells: Cells,
    boxes_per_group: int,
    *extra_args: Array,
) -> Array:
    """Fold `join_pixel` from `initial_value` over the pixels of each cell: (K, cells, cells, C).

    `join_pixel(state, inside, position, *values, *extra_args)` gets a mask of the pixels that are in their cell,
    row-major positions, the values in xs (B, H, W, C) and the entries of `extra_args` for the box. Boxes are sorted by
    the size of their largest cell and processed in groups of `boxes_per_group`. A group runs one step per pixel of its
    largest cell.
    """
    batch, height, width, channels = xs[0].shape
    flat = [x.reshape(batch, height * width, -1) for x in xs]
    across = jnp.maximum(jnp.max(cells.right - cells.left, 1), 1)
    steps = across * jnp.max(cells.bottom - cells.top, 1)
    order = jnp.argsort(steps)
    count = steps.shape[0]
    groups = -(-count // boxes_per_group)
    slots = order[jnp.minimum(jnp.arange(groups * boxes_per_group), count - 1)]
    arrays = (steps, across, *cells, *extra_args)

    def fold_one_group(group_arrays: tuple[Array, ...]) -> Array:
        steps, across, image, top, bottom, left, right, *extra_args = group_arrays

        def join_next_pixel(pixel_number: Array, state: Array) -> Array:
            row, column = (
                top + (pixel_number // across)[:, None],
                left + (pixel_number % across)[:, None],
            )
            here = (row < bottom)[:, :, None] & (column < right)[:, None, :]
            at = row[:, :, None] * width + column[:, None, :]
            image_and_position = image[:, None, None], at
            values = [
                x.at[image_and_position].get(mode="clip", wrap_negative_indices=False) for x in flat
            ]
            position = at.astype(index_dtype(height * width + 1))
            return join_pixel(state, here[..., None], position[..., None], *values, *extra_args)

        begin = jnp.full((boxes_per_group, top.shape[1], left.shape[1], channels), initial_value)
        begin = match_varying_mesh_axes([begin], *xs, *group_arrays)[0]
        return lax.fori_loop(0, jnp.max(steps), join_next_pixel, begin)

    grouped = tuple(a[slots].reshape(groups, boxes_per_group, *a.shape[1:]) for a in arrays)
    results = lax.map(fold_one_group, grouped)
    return results.reshape(groups * boxes_per_group, *results.shape[2:])[jnp.argsort(order)]


class _CellsAtPositions(NamedTuple):
    """Cells of each box that contain each position of an axis: the number of the first cell and `num_cells`.

    Both arrays have the shape (tiles, boxes, positions of a tile). The cells that contain a position are adjacent.
    """

    first_cell: Array
    num_cells: Array

    @property
    def num_rounds(self) -> Array:
        """Number of rounds of `CELLS_PER_ROUND` cells that add a box to a tile, (tiles, K)."""
        return -(-jnp.max(self.num_cells, 2) // CELLS_PER_ROUND)


def _cells_at_positions(
    cell_start: Array, cell_end: Array, num_tiles: int, tile_size: int
) -> _CellsAtPositions:
    at = jnp.arange(num_tiles * tile_size, dtype=np.int32)[None, :, None]
    holding = (at >= cell_start[:, None, :]) & (at < cell_end[:, None, :])
    pair = jnp.argmax(holding, 2).astype(np.int32), jnp.sum(holding, 2, dtype=np.int32)
    return _CellsAtPositions(
        *[jnp.swapaxes(a.reshape(-1, num_tiles, tile_size), 0, 1) for a in pair]
    )


def add_cells_to_pixels(
    dy: Array,
    cell_marks: Array,
    pixel_marks: Array,
    cells: Cells,
    tile_shape: Sequence[int],
    batch_height_width: Sequence[int],
) -> Array:
    """Cotangent of x, (B, H, W, C): each pixel adds dy of all cells that contain it and whose mark ties with its mark.

    dy and `cell_marks` are (K, cells, cells, C). The marks of pixels, `pixel_marks`, are (B, H, W, C) or have
    one channel. Each tile of `tile_shape` pixels adds one box after another, in an order that depends on the boxes
    alone, so sums have the same bits on every run.
    """
    batch, height, width = batch_height_width
    high, wide = tile_shape
    down, across = -(-height // high), -(-width // wide)
    rows = _cells_at_positions(cells.top, cells.bottom, down, high)
    columns = _cells_at_positions(cells.left, cells.right, across, wide)
    per_row, channels = dy.shape[2:]
    size = dy.shape[1] * per_row
    sent, cell_marks = dy.reshape(-1, channels), cell_marks.reshape(-1, channels)
    ends = ((0, 0), (0, down * high - height), (0, across * wide - width), (0, 0))
    fields = jnp.pad(pixel_marks, ends).reshape(batch, down, high, across, wide, -1)
    fields = jnp.swapaxes(fields, 2, 3).reshape(batch * down * across, high, wide, -1)

    def add_cells_to_tile(tile_args: tuple[Array, Array]) -> Array:
        number, pixel_marks = tile_args
        image, i, j = number // (down * across), number // across % down, number % across
        row, column = (jax.tree.map(lambda a, k=k: a[k], b) for b, k in ((rows, i), (columns, j)))
        rounds_across = columns.num_rounds[j]
        rounds = jnp.where(cells.image_index == image, rows.num_rounds[i] * rounds_across, 0)
        order = jnp.argsort(-rounds, stable=True).astype(np.int32)

        def add_one_round(round_number: Array, dx: Array) -> Array:
            def add_one_box(box_rank: Array, dx: Array) -> Array:
                box = order[box_rank]
                skip = (
                    round_number // rounds_across[box] * CELLS_PER_ROUND,
                    round_number % rounds_across[box] * CELLS_PER_ROUND,
                )
                for u, v in np.ndindex(CELLS_PER_ROUND, CELLS_PER_ROUND):
                    p, q = skip[0] + u, skip[1] + v
                    here = (p < row.num_cells[box])[:, None] & (q < column.num_cells[box])[None, :]
                    first = row.first_cell[box] + p, column.first_cell[box] + q
                    at = box * size + first[0][:, None] * per_row + first[1][None]
                    value, mark = (jnp.take(x, at, axis=0, mode="clip") for x in (sent, cell_marks))
                    chosen = here[..., None] & is_tied_with(mark, pixel_marks)
                    dx = dx + jnp.where(chosen, value, 0)
                return dx

            return lax.fori_loop(0, jnp.sum(rounds > round_number, dtype=np.int32), add_one_box, dx)

        zeros = match_varying_mesh_axes(
            [jnp.zeros((high, wide, channels), dy.dtype)], dy, pixel_marks
        )[0]
        return lax.fori_loop(0, jnp.max(rounds), add_one_round, zeros)

    numbers = jnp.arange(batch * down * across, dtype=np.int32)
    tiles = lax.map(add_cells_to_tile, (numbers, fields)).reshape(
        batch, down, across, high, wide, channels
    )
    dx = jnp.swapaxes(tiles, 2, 3).reshape(batch, down * high, across * wide, channels)
    return dx[:, :height, :width]
