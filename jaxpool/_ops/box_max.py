"""Max pooling over the cells of boxes of images: the op of `roi_max_pool`.

Cells differ in size, so `_kernels/box_max.py` reads one pixel of every cell at a time.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.box_max import Cells, add_cells_to_pixels, fold_pixels_of_cells
from jaxpool._kernels.box_mean import cell_bounds
from jaxpool._kernels.compare import (
    Ties,
    comparison_dtype_identity,
    from_comparison_dtype,
    is_tied_with,
    to_comparison_dtype,
)
from jaxpool._kernels.dtypes import accumulator_dtype, index_dtype, is_float
from jaxpool._kernels.keys import has_sign_bit, set_sign_of_zeros
from jaxpool._kernels.positions import scatter_in_order
from jaxpool._ops.box_mean import are_numbers, away_from_zero, in_pixels
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.boxes import plan_cells
from jaxpool._plan.problem import Platform
from jaxpool._plan.scatter import puts_in_order


@dataclasses.dataclass(frozen=True)
class BoxMax(Op):
    """The largest pixel of each cell of boxes (K, 4) of images (B, H, W, C).

    Extra arguments: the boxes and the image index of each box. Residual: the extra arguments and
    the position of each selected pixel in its image, or with ties "split" x and y.
    """

    output_shape: tuple[int, ...]
    scale: float
    ties: Ties
    sizes: tuple[int, ...]  # B, H, W

    stores_inputs = True

    @property
    def stores_residual(self) -> bool:
        return self.ties == "split"

    def _cells(self, boxes: Array, image: Array) -> Cells:
        """The cells of the boxes. A box with a NaN or an invalid image index has empty cells."""
        scaled = away_from_zero(in_pixels(boxes, self.scale)).T
        is_valid = (image >= 0) & (image < self.sizes[0]) & are_numbers(boxes)
        bounds: list[Array] = []
        ends = zip(scaled[:2], scaled[2:], self.output_shape, self.sizes[1:], strict=True)
        for start, end, count, size in ends:
            low, high = cell_bounds(start, jnp.maximum(end - start + 1, 1), count, size)
            bounds += [low, jnp.where(is_valid[:, None], high, low)]
        return Cells(image, *bounds)

    def _walk(
        self, platform: Platform, join: Any, start: Any, xs: Any, extra_args: Any, *more: Array
    ) -> Array:
        group_size = min(plan_cells(platform, self.sizes).together, extra_args[0].shape[0])
        return fold_pixels_of_cells(join, start, xs, self._cells(*extra_args), group_size, *more)

    def value(self, platform: Platform, x: Array, *extra_args: Array) -> Array:
        def larger(best: Array, here: Array, at: Array, value: Array) -> Array:
            return jnp.where(here, lax.max(best, value), best)

        fill, cells = comparison_dtype_identity(x.dtype, "max"), self._cells(*extra_args)
        y = self._walk(platform, larger, fill, [to_comparison_dtype(x)], extra_args)
        is_nonempty = (cells.bottom > cells.top)[:, :, None] & (cells.right > cells.left)[
            :, None, :
        ]
        return from_comparison_dtype(
            jnp.where(is_nonempty[..., None], y, jnp.zeros((), y.dtype)), x.dtype
        )

    def primal(self, platform: Platform, x: Array, *extra_args: Array) -> tuple[Array, Any]:
        y = self.value(platform, x, *extra_args)
        if self.ties == "split":
            return y, (extra_args, x, y)
        none = np.asarray(self.sizes[1] * self.sizes[2])
        none = none.astype(index_dtype(int(none) + 1))

        def first_or_last(where: Array, here: Array, at: Array, value: Array, y: Array) -> Array:
            tied = here & is_tied_with(value, y)
            return jnp.where(tied if self.ties == "last" else tied & (where == none), at, where)

        residual = (
            extra_args,
            self._walk(
                platform,
                first_or_last,
                none,
                [to_comparison_dtype(x)],
                extra_args,
                to_comparison_dtype(y),
            ),
        )
        if is_float(x.dtype):
            y = set_sign_of_zeros(y, has_sign_bit(self.linear(platform, residual, x)))
        return y, residual

    def _collected(self, platform: Platform, residual: Any, *xs: Array) -> Array:
        """The sum of x, or without x the number, of the tied pixels of each cell."""
        extra_args, x, y = residual

        def add(total: Array, here: Array, at: Array, *values: Array) -> Array:
            *more, value, y = values
            term = more[0] if more else lax.full_like(total, 1)
            return total + jnp.where(here & is_tied_with(value, y), term, 0)

        dtype = xs[0].dtype if xs else accumulator_dtype(x.dtype)
        return self._walk(
            platform,
            add,
            np.zeros((), dtype),
            [*xs, to_comparison_dtype(x)],
            extra_args,
            to_comparison_dtype(y),
        )

    def _shared(self, platform: Platform, residual: Any, x: Array) -> Array:
        """Return x divided by the number of tied pixels of each cell."""
        return x / jnp.maximum(self._collected(platform, residual), 1).astype(x.dtype)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator_dtype(x_dot.dtype))
        if self.ties == "split":
            return self._shared(
                platform, residual, self._collected(platform, residual, wide)
            ).astype(x_dot.dtype)
        extra_args, where = residual
        image = self._cells(*extra_args).image_index
        flat = wide.reshape(self.sizes[0], math.prod(self.sizes[1:]), -1)
        at = image[:, None, None, None], where.astype(np.int32), jnp.arange(flat.shape[2])
        # An empty cell has a position out of bounds.
        selected = flat.at[at].get(mode="fill", fill_value=0)
        return selected.astype(x_dot.dtype)

    def _rows(self, where: Array, image: Array) -> Array:
        """The flat positions of the selected pixels in all images, out of bounds for an empty cell."""
        size, where = math.prod(self.sizes[1:]), where.astype(np.int32)
        first = image[:, None, None, None] * size
        return jnp.where(where < size, first + where, math.prod(self.sizes))

    def _in_order(self, platform: Platform, x: Any) -> bool:
        """True if one ordered scatter adds cotangents to the pixels. x has the channels of the images."""
        if self.ties == "split":
            return False
        problem = problem_of(Window(()), x, platform)
        return puts_in_order(platform, (math.prod(self.sizes), problem.shape[-1]), problem.sharded)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        share = dy.astype(accumulator_dtype(dy.dtype))
        extra_args, *more = residual
        if self._in_order(platform, dy):
            channels = dy.shape[-1]
            rows = self._rows(more[0], extra_args[1]).reshape(-1, channels)
            count = math.prod(self.sizes)
            dx = scatter_in_order(
                share.reshape(-1, channels), rows, (0,), (count,), accumulate=True
            )
            return (dx.reshape(*self.sizes, channels).astype(dy.dtype),)
        if self.ties == "split":
            field, marks = map(to_comparison_dtype, more)
            share = self._shared(platform, residual, share)
        else:
            (marks,) = more
            field = lax.iota(marks.dtype, math.prod(self.sizes[1:]))
            field = jnp.broadcast_to(field.reshape(*self.sizes[1:], 1), (*self.sizes, 1))
        tile = plan_cells(platform, self.sizes).tile
        dx = add_cells_to_pixels(share, marks, field, self._cells(*extra_args), tile, self.sizes)
        return (dx.astype(dy.dtype),)
