"""Loops over the pixels of each grid cell of boxes, and the transpose of these loops without a scatter."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
    """For each box and pixel, the first cell with the pixel and the number of such cells: ([tiles,] K, pixels)."""

    first_cell: Array
    num_cells: Array

    def of_tile(self, tile_index: Array) -> "_CoveringCells":
        """The cells that contain the pixels of one tile."""
        return _CoveringCells(self.first_cell[tile_index], self.num_cells[tile_index])


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

    A mark is the number of the selected pixel, or a value if ties share the cotangent. dy and `cell_marks` are (K,
    cells, cells, C), and `pixel_marks` is (B, H, W, C) or (B, H, W, 1). The cells of a box that contain a pixel are a
    rectangle. Each round adds one block of this rectangle, for one box after another, to all pixels of a tile. For
    example, 5 cells along an axis of 2 pixels, in blocks of 2 cells:

        pixel 0    is in cells 0 1 2    round 0 adds cells 0 1    round 1 adds cell 2
        pixel 1    is in cells 2 3 4    round 0 adds cells 2 3    round 1 adds cell 4
    """
    batch, height, width = batch_height_width
    (tile_h, tile_w), block = plan.tile_shape, plan.cells_per_step
    tiles_y, tiles_x = -(-height // tile_h), -(-width // tile_w)
    num_tiles = batch * tiles_y * tiles_x
    rows = _covering_cells(cells.top, cells.bottom, tiles_y, tile_h)
    columns = _covering_cells(cells.left, cells.right, tiles_x, tile_w)
    _, num_rows, num_columns, channels = dy.shape
    flat_dy, flat_marks = dy.reshape(-1, channels), cell_marks.reshape(-1, channels)
    padding = ((0, 0), (0, tiles_y * tile_h - height), (0, tiles_x * tile_w - width), (0, 0))
    marks = jnp.pad(pixel_marks, padding).reshape(batch, tiles_y, tile_h, tiles_x, tile_w, -1)
    marks = jnp.swapaxes(marks, 2, 3).reshape(num_tiles, tile_h, tile_w, -1)

    def add_cells_to_tile(tile_args: tuple[Array, Array]) -> Array:
        tile, pixel_marks = tile_args
        image, tile_index = tile // (tiles_y * tiles_x), tile % (tiles_y * tiles_x)
        down, across = rows.of_tile(tile_index // tiles_x), columns.of_tile(tile_index % tiles_x)
        blocks_down, blocks_across = (-(-jnp.max(c.num_cells, 1) // block) for c in (down, across))
        rounds = jnp.where(cells.image_index == image, blocks_down * blocks_across, 0)
        order = jnp.argsort(-rounds, stable=True).astype(np.int32)

        def add_block(round_index: Array, box_rank: Array, dx: Array) -> Array:
            box = order[box_rank]
            block_row, block_column = jnp.divmod(round_index, blocks_across[box])
            for u, v in np.ndindex(block, block):
                p, q = block_row * block + u, block_column * block + v
                exists = (p < down.num_cells[box])[:, None] & (q < across.num_cells[box])[None, :]
                cell_row, cell_column = down.first_cell[box] + p, across.first_cell[box] + q
                cell = ((box * num_rows + cell_row) * num_columns)[:, None] + cell_column[None, :]
                value, mark = (jnp.take(a, cell, 0, mode="clip") for a in (flat_dy, flat_marks))
                is_tied = exists[..., None] & is_tied_with(mark, pixel_marks)
                dx = dx + jnp.where(is_tied, value, 0)
            return dx

        def add_round(round_index: Array, dx: Array) -> Array:
            num_boxes = jnp.sum(rounds > round_index, dtype=np.int32)
            return lax.fori_loop(0, num_boxes, functools.partial(add_block, round_index), dx)

        zeros = jnp.zeros((tile_h, tile_w, channels), dy.dtype)
        (zeros,) = match_varying_mesh_axes([zeros], dy, pixel_marks)
        return lax.fori_loop(0, jnp.max(rounds), add_round, zeros)

    tiles = lax.map(add_cells_to_tile, (jnp.arange(num_tiles, dtype=np.int32), marks))
    tiles = tiles.reshape(batch, tiles_y, tiles_x, tile_h, tile_w, channels)
    dx = jnp.swapaxes(tiles, 2, 3).reshape(batch, tiles_y * tile_h, tiles_x * tile_w, channels)
    return dx[:, :height, :width]
