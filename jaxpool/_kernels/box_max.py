"""Loops over the pixels of each grid cell of boxes, and the transpose of these loops without a scatter."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.dtypes import index_dtype, is_tied_with
from jaxpool._plan.boxes import BoxMaxPlan


class Cells(NamedTuple):
    """Cells of K boxes: image index of each box, (K,), and first and exclusive last pixel of each cell, (K, cells)."""

    image_index: Array
    top: Array
    bottom: Array
    left: Array
    right: Array


def fold_pixels_of_cells(
    join_pixel: Callable[..., Array],
    initial_value: ArrayLike,
    xs: Sequence[Array],
    cells: Cells,
    boxes_per_group: int,
    *extra_args: Array,
) -> Array:
    """Fold `join_pixel` over the pixels of each cell, from `initial_value`; the result is (K, cells, cells, C).

    `join_pixel(state, inside, position, *values, *extra_args)` gets one pixel per cell: `inside` is True if the pixel
    is in the cell, `position` is the pixel's row-major index, `values` are its values in xs (B, H, W, C), and
    `extra_args` are sliced to the boxes of a group. Boxes are sorted by the size of their largest cell, because a group
    of `boxes_per_group` boxes runs one loop step per pixel of its largest cell.
    """
    batch, height, width, channels = xs[0].shape
    flat_xs = [x.reshape(batch, height * width, -1) for x in xs]
    num_columns = jnp.maximum(jnp.max(cells.right - cells.left, 1), 1)
    num_steps = num_columns * jnp.max(cells.bottom - cells.top, 1)
    order = jnp.argsort(num_steps)
    num_boxes = num_steps.shape[0]
    num_groups = -(-num_boxes // boxes_per_group)
    boxes = order[jnp.minimum(jnp.arange(num_groups * boxes_per_group), num_boxes - 1)]
    arrays = (num_steps, num_columns, *cells, *extra_args)

    def fold_one_group(group_arrays: tuple[Array, ...]) -> Array:
        num_steps, num_columns, image_index, top, bottom, left, right, *extra_args = group_arrays

        def join_next_pixel(pixel_number: Array, state: Array) -> Array:
            row = top + (pixel_number // num_columns)[:, None]
            column = left + (pixel_number % num_columns)[:, None]
            inside = (row < bottom)[:, :, None] & (column < right)[:, None, :]
            flat_pixel = row[:, :, None] * width + column[:, None, :]
            index = image_index[:, None, None], flat_pixel
            values = [x.at[index].get(mode="clip", wrap_negative_indices=False) for x in flat_xs]
            position = flat_pixel.astype(index_dtype(height * width + 1))
            return join_pixel(state, inside[..., None], position[..., None], *values, *extra_args)

        state = jnp.full((boxes_per_group, top.shape[1], left.shape[1], channels), initial_value)
        (state,) = match_varying_mesh_axes([state], *xs, *group_arrays)
        return lax.fori_loop(0, jnp.max(num_steps), join_next_pixel, state)

    grouped = tuple(a[boxes].reshape(num_groups, boxes_per_group, *a.shape[1:]) for a in arrays)
    results = lax.map(fold_one_group, grouped)
    return results.reshape(num_groups * boxes_per_group, *results.shape[2:])[jnp.argsort(order)]


class _CoveringCells(NamedTuple):
    """First and number of the adjacent cells of each box that contain each pixel: (tiles, boxes, pixels of a tile)."""

    first_cell: Array
    num_cells: Array

    def num_rounds(self, cells_per_round: int) -> Array:
        """Number of rounds that add the cells of a box to a tile, (tiles, K)."""
        return -(-jnp.max(self.num_cells, 2) // cells_per_round)


def _covering_cells(starts: Array, ends: Array, num_tiles: int, tile_size: int) -> _CoveringCells:
    position = jnp.arange(num_tiles * tile_size, dtype=np.int32)[None, :, None]
    is_inside = (position >= starts[:, None, :]) & (position < ends[:, None, :])
    pair = jnp.argmax(is_inside, 2).astype(np.int32), jnp.sum(is_inside, 2, dtype=np.int32)
    return _CoveringCells(*[jnp.swapaxes(a.reshape(-1, num_tiles, tile_size), 0, 1) for a in pair])


def add_cells_to_pixels(
    dy: Array,
    cell_marks: Array,
    pixel_marks: Array,
    cells: Cells,
    plan: BoxMaxPlan,
    batch_height_width: Sequence[int],
) -> Array:
    """Cotangent of images (B, H, W, C): a pixel adds dy of each cell that contains the pixel if their marks tie.

    dy and `cell_marks` are (K, cells, cells, C), and `pixel_marks` is (B, H, W, C) or (B, H, W, 1). Each tile
    adds one box after another, in an order that depends only on the boxes, in rounds (loop steps) of a few cells.
    """
    batch, height, width = batch_height_width
    (tile_h, tile_w), per_round = plan.tile_shape, plan.cells_per_step
    tiles_y, tiles_x = -(-height // tile_h), -(-width // tile_w)
    num_tiles = batch * tiles_y * tiles_x
    rows = _covering_cells(cells.top, cells.bottom, tiles_y, tile_h)
    columns = _covering_cells(cells.left, cells.right, tiles_x, tile_w)
    cells_per_row, channels = dy.shape[2:]
    cells_per_box = dy.shape[1] * cells_per_row
    flat_dy, cell_marks = dy.reshape(-1, channels), cell_marks.reshape(-1, channels)
    padding = ((0, 0), (0, tiles_y * tile_h - height), (0, tiles_x * tile_w - width), (0, 0))
    marks = jnp.pad(pixel_marks, padding).reshape(batch, tiles_y, tile_h, tiles_x, tile_w, -1)
    marks = jnp.swapaxes(marks, 2, 3).reshape(num_tiles, tile_h, tile_w, -1)

    def add_cells_to_tile(tile_args: tuple[Array, Array]) -> Array:
        tile, pixel_marks = tile_args
        image, i, j = tile // (tiles_y * tiles_x), tile // tiles_x % tiles_y, tile % tiles_x
        row, column = (jax.tree.map(lambda a, k=k: a[k], b) for b, k in ((rows, i), (columns, j)))
        rounds_across = columns.num_rounds(per_round)[j]
        rounds = jnp.where(
            cells.image_index == image, rows.num_rounds(per_round)[i] * rounds_across, 0
        )
        order = jnp.argsort(-rounds, stable=True).astype(np.int32)

        def add_one_round(round_index: Array, dx: Array) -> Array:
            def add_one_box(box_rank: Array, dx: Array) -> Array:
                box = order[box_rank]
                first_p = round_index // rounds_across[box] * per_round
                first_q = round_index % rounds_across[box] * per_round
                for u, v in np.ndindex(per_round, per_round):
                    p, q = first_p + u, first_q + v
                    mask = (p < row.num_cells[box])[:, None] & (q < column.num_cells[box])[None, :]
                    i, j = row.first_cell[box] + p, column.first_cell[box] + q
                    cell = box * cells_per_box + i[:, None] * cells_per_row + j[None]
                    value = jnp.take(flat_dy, cell, axis=0, mode="clip")
                    mark = jnp.take(cell_marks, cell, axis=0, mode="clip")
                    is_tied = mask[..., None] & is_tied_with(mark, pixel_marks)
                    dx = dx + jnp.where(is_tied, value, 0)
                return dx

            return lax.fori_loop(0, jnp.sum(rounds > round_index, dtype=np.int32), add_one_box, dx)

        zeros = jnp.zeros((tile_h, tile_w, channels), dy.dtype)
        (zeros,) = match_varying_mesh_axes([zeros], dy, pixel_marks)
        return lax.fori_loop(0, jnp.max(rounds), add_one_round, zeros)

    tiles = lax.map(add_cells_to_tile, (jnp.arange(num_tiles, dtype=np.int32), marks))
    tiles = tiles.reshape(batch, tiles_y, tiles_x, tile_h, tile_w, channels)
    dx = jnp.swapaxes(tiles, 2, 3).reshape(batch, tiles_y * tile_h, tiles_x * tile_w, channels)
    return dx[:, :height, :width]
