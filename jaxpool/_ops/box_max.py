"""Max pooling over boxes of images, each divided into a grid of cells: the op of `roi_max_pool`.

Cells differ in size, so a loop in `_kernels/box_max.py` reads one pixel of every cell per step.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._kernels.box_max import Cells, add_cells_to_pixels, fold_pixels_of_cells
from jaxpool._kernels.box_mean import cell_bounds
from jaxpool._kernels.dtypes import (
    Ties,
    accumulator_dtype,
    comparison_dtype_identity,
    from_comparison_dtype,
    full_like,
    index_dtype,
    is_tied_with,
    to_comparison_dtype,
)
from jaxpool._kernels.positions import scatter_in_order
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.box_mean import boxes_in_pixels, has_no_nan
from jaxpool._ops.op import Op, Residual, array_problem
from jaxpool._plan.boxes import BoxMaxPlan, plan_box_max
from jaxpool._plan.problem import Platform
from jaxpool._plan.scatter import scatters_in_order


@dataclasses.dataclass(frozen=True)
class BoxMax(Op):
    """The largest pixel of each cell of boxes (K, 4) of images (B, H, W, C).

    Arguments after x: the boxes and the image index of each box. Residual: these arguments and the position of each
    selected pixel in its image, or with ties "split" these arguments, x and y.
    """

    output_shape: tuple[int, ...]
    scale: float
    ties: Ties
    sizes: tuple[int, ...]  # B, H, W

    materialises_inputs = True

    @property
    def materialises_residual(self) -> bool:
        return self.ties == "split"

    def _plan(self, platform: Platform, extra_args: Sequence[Array]) -> BoxMaxPlan:
        return plan_box_max(platform, self.sizes[1:], extra_args[0].shape[0])

    @functools.partial(jax.jit, static_argnums=0)
    def _box_cells(self, boxes: Array, image_index: Array) -> Cells:
        """Pixel bounds of the cells of all boxes. A box with a NaN or an invalid image index has empty cells."""
        corners = boxes_in_pixels(boxes, self.scale, rounds=True).T
        is_valid = (image_index >= 0) & (image_index < self.sizes[0]) & has_no_nan(boxes)
        bounds: list[Array] = []
        ends = zip(corners[:2], corners[2:], self.output_shape, self.sizes[1:], strict=True)
        for start, end, count, size in ends:
            low, high = cell_bounds(start, jnp.maximum(end - start + 1, 1), count, size)
            bounds += [low, jnp.where(is_valid[:, None], high, low)]
        return Cells(image_index, *bounds)

    def _fold_pixels(
        self,
        platform: Platform,
        join_pixel: Callable[..., Array],
        start: ArrayLike,
        xs: Sequence[Array],
        extra_args: Sequence[Array],
        *cell_arrays: Array,
    ) -> Array:
        cells, plan = self._box_cells(*extra_args), self._plan(platform, extra_args)
        return fold_pixels_of_cells(
            join_pixel, start, xs, cells, plan.boxes_per_group, *cell_arrays
        )

    def value(self, platform: Platform, x: Array, *extra_args: Array) -> Array:
        def keep_larger(best: Array, inside: Array, position: Array, value: Array) -> Array:
            return jnp.where(inside, lax.max(best, value), best)

        fill, cells = comparison_dtype_identity(x.dtype, "max"), self._box_cells(*extra_args)
        y = self._fold_pixels(platform, keep_larger, fill, [to_comparison_dtype(x)], extra_args)
        has_rows = (cells.bottom > cells.top)[:, :, None]
        has_columns = (cells.right > cells.left)[:, None, :]
        y = jnp.where((has_rows & has_columns)[..., None], y, jnp.zeros((), y.dtype))
        return from_comparison_dtype(y, x.dtype)

    def primal(self, platform: Platform, x: Array, *extra_args: Array) -> tuple[Array, Residual]:
        y = self.value(platform, x, *extra_args)
        if self.ties == "split":
            return y, (extra_args, x, y)
        num_pixels = math.prod(self.sizes[1:])
        sentinel = np.asarray(num_pixels, index_dtype(num_pixels + 1))

        def select_tied(
            state: Array, inside: Array, position: Array, value: Array, y: Array
        ) -> Array:
            tied = inside & is_tied_with(value, y)
            takes_over = tied if self.ties == "last" else tied & (state == sentinel)
            return jnp.where(takes_over, position, state)

        wide_x, wide_y = map(to_comparison_dtype, (x, y))
        index = self._fold_pixels(platform, select_tied, sentinel, [wide_x], extra_args, wide_y)
        return y, (extra_args, index)

    def _sum_tied_pixels(self, platform: Platform, residual: Residual, *xs: Array) -> Array:
        """The sum of the array in `xs` over the tied pixels of each cell, or their number if `xs` is empty."""
        extra_args, x, y = residual
        wide_x, wide_y = map(to_comparison_dtype, (x, y))

        def add(total: Array, inside: Array, position: Array, *values: Array) -> Array:
            *summands, value, y = values
            term = summands[0] if summands else full_like(total, 1)
            return total + jnp.where(inside & is_tied_with(value, y), term, 0)

        zero = np.zeros((), xs[0].dtype if xs else accumulator_dtype(x.dtype))
        return self._fold_pixels(platform, add, zero, [*xs, wide_x], extra_args, wide_y)

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        wide_dot = x_dot.astype(accumulator_dtype(x_dot.dtype))
        if self.ties == "split":
            total = self._sum_tied_pixels(platform, residual, wide_dot)
            num_tied = self._sum_tied_pixels(platform, residual)
            return divide_by_num_tied(total, num_tied).astype(x_dot.dtype)
        (_, image_index), position = residual
        flat = wide_dot.reshape(self.sizes[0], math.prod(self.sizes[1:]), -1)
        images, channels = image_index[:, None, None, None], jnp.arange(flat.shape[2])
        index = images, position.astype(np.int32), channels
        # An empty cell has a position out of bounds, which reads 0.
        return flat.at[index].get(mode="fill", fill_value=0).astype(x_dot.dtype)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        share = dy.astype(accumulator_dtype(dy.dtype))
        extra_args, *saved_arrays = residual
        num_pixels, count = math.prod(self.sizes[1:]), math.prod(self.sizes)
        if self.ties == "split":
            pixel_marks, cell_marks = map(to_comparison_dtype, saved_arrays)
            share = divide_by_num_tied(share, self._sum_tied_pixels(platform, residual))
        else:
            (cell_marks,) = saved_arrays
            problem = array_problem(dy, platform)
            channels = problem.shape[-1]
            if scatters_in_order(platform, (count, channels), problem.is_sharded):
                position = cell_marks.astype(np.int32)
                image_start = extra_args[1][:, None, None, None] * num_pixels
                # An empty cell has a position out of bounds, which is not written.
                position = jnp.where(position < num_pixels, image_start + position, count)
                positions, rows = (a.reshape(-1, channels) for a in (position, share))
                dx = scatter_in_order(rows, positions, (0,), (count,), accumulate=True)
                return (dx.reshape(*self.sizes, channels).astype(dy.dtype),)
            pixel_marks = lax.iota(cell_marks.dtype, num_pixels)
            pixel_marks = pixel_marks.reshape(*self.sizes[1:], 1)
            pixel_marks = jnp.broadcast_to(pixel_marks, (*self.sizes, 1))
        plan = self._plan(platform, extra_args)
        cells = self._box_cells(*extra_args)
        dx = add_cells_to_pixels(share, cell_marks, pixel_marks, cells, plan, self.sizes)
        return (dx.astype(dy.dtype),)
