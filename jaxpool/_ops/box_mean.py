"""Averages over boxes of images (RoI align), by two matrix products per box or by gathers of pixels."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import fits_int32, is_int
from jaxpool._kernels import box_mean as kernels
from jaxpool._kernels.box_mean import WeightedPixels
from jaxpool._kernels.dtypes import DType, accumulator_dtype, mean_dtype
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.op import Op
from jaxpool._plan import boxes as plans
from jaxpool._plan.problem import Platform


@dataclasses.dataclass(frozen=True)
class Rows(Op):
    """Rows of x, each at most once, for their positions in x and the inverse of these positions."""

    linear_in_x = True
    is_pool = False

    def linear(self, platform: Platform, extra_args: tuple[Array, Array], x: Array) -> Array:
        return kernels.take_rows_or_zeros(x, extra_args[0])

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, Array], dy: Array
    ) -> tuple[Array]:
        return (kernels.take_rows_or_zeros(dy, extra_args[1]),)


def rows(x: Array, at: Array, back: Array) -> Array:
    """The rows of x at positions `at`, with zeros for positions out of bounds. `back` is the inverse of `at`."""
    return apply_with_extra_args(Rows(), x, at, back)[0]


def in_pixels(boxes: Array, scale: float) -> Array:
    """Boxes (K, 4) in pixels of the image, in the dtype of sums. A box with a NaN becomes 0."""
    dtype = accumulator_dtype(mean_dtype(boxes.dtype))
    wide = jnp.where(are_numbers(boxes)[:, None], boxes.astype(dtype), 0)
    return kernels.round_before_adding(wide * np.asarray(scale, dtype))


def are_numbers(boxes: Array) -> Array:
    """Mask of the boxes (K, 4) without NaN."""
    return ~jnp.isnan(boxes).any(1)


def away_from_zero(x: Array) -> Array:
    """x rounded to integers, with halves away from 0."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


@dataclasses.dataclass(frozen=True)
class BoxMean(Op):
    """The mean of each cell of boxes (K, 4) in images (B, H, W, C), or in a pyramid with one such array per level.

    The arguments after the levels are the boxes, in pixels of their level divided by `scale`, the image of each box,
    and for several levels the level of each box. A box whose image or level does not exist gives 0.
    """

    output_shape: tuple[int, ...]  # I, J: rows and columns of cells
    scale: float  # factor from box coordinates to pixels
    samples: int | None  # points per axis of a cell; None is ceil(length of the cell in pixels)
    offset: float = 0.5  # pixels subtracted from each corner
    least: float | None = None  # minimum length of a box in pixels
    empty_is_zero: bool = True  # whether a box without area has the output 0
    own: bool = False  # whether channel c of cell (i, j) reads channel (c * I + i) * J + j of x
    whole: bool = False  # whether corners are rounded and cells average whole pixels
    levels: tuple[tuple[int, int, int], ...] = ()  # B, H, W of each level

    linear_in_x = True
    differentiable_residual = True

    @property
    def inputs(self) -> int:
        return len(self.levels)

    def linear(self, platform: Platform, extra_args: tuple[Array, ...], *xs: Array | None) -> Array:
        known = {number: x for number, x in enumerate(xs) if x is not None}
        arrays = [*known.values()]
        if self.by_pixels(platform):
            flats = [x.reshape(-1, x.shape[-1]) for x in arrays]
            which, of = self._weighted([*known], *extra_args)
            joined = self._joined(platform, arrays, extra_args[0])
            y = kernels.weighted_sums_by_gather(flats, which, of, concatenates_arrays=joined)
        else:
            means = [self._multiplied(number, x, *extra_args) for number, x in known.items()]
            y = functools.reduce(lax.add, means)
        return y.astype(arrays[0].dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array, ...]:
        wide = dy.astype(accumulator_dtype(dy.dtype))
        if self.by_pixels(platform):
            which, of = self._weighted(range(self.inputs), *extra_args)
            counts = [*map(math.prod, self.levels)]
            down, across = self.output_shape
            parts = plans.parts_of_a_box((down, across), self.pixels_of_a_cell, dy.shape[-1])
            dxs = kernels.scatter_weighted_cotangents(wide, which, of, counts, parts)
        else:
            dxs = [self._sent(number, wide, *extra_args) for number in range(self.inputs)]
        pairs = zip(dxs, self.levels, strict=True)
        return tuple(dx.reshape(*sizes, dx.shape[-1]).astype(dy.dtype) for dx, sizes in pairs)

    def by_pixels(self, platform: Platform) -> bool:
        """Whether cells gather the few pixels that they need: far fewer products, if XLA vectorises it, as on CPU."""
        numbered = fits_int32(sum(map(math.prod, self.levels)))
        return (
            numbered and plans.reads_pixels(platform, self.samples) and not (self.own or self.whole)
        )

    def _joined(self, platform: Platform, xs: Sequence[Any], boxes: Any) -> bool:
        """Whether boxes (K, 4) read from one concatenation of the levels `xs`."""
        sizes = [x.size if is_int(x.size) else None for x in xs]
        return plans.joins_levels(platform, sizes, xs[0].dtype.itemsize, boxes.shape[0])

    def _spans(self, boxes: Array) -> list[tuple[Array, Array]]:
        """Start and length of each box, along rows and columns. Infinite lengths become 0."""
        scaled = in_pixels(boxes, self.scale)
        ends = (away_from_zero(scaled) if self.whole else scaled).T
        spans = []
        for start, end in zip(
            ends[:2] - np.asarray(self.offset, ends.dtype), ends[2:], strict=True
        ):
            length = end - np.asarray(self.offset, ends.dtype) - start
            if self.least is not None:
                # jnp.maximum would have half the derivative at a tie, `jnp.where` has the one-sided derivative.
                length = jnp.where(length < self.least, self.least, length)
            length = jnp.where(jnp.isfinite(length), length, 0)
            spans.append((start, length))
        return spans

    def _full(self, boxes: Array, spans: list[tuple[Array, Array]]) -> Array:
        """Mask of the boxes without NaN, and with area if `empty_is_zero`."""
        full = (spans[0][1] > 0) & (spans[1][1] > 0)
        known = are_numbers(boxes)
        return known & full if self.empty_is_zero else known

    @property
    def pixels_of_a_cell(self) -> int:
        """Number of pixels that a cell reads: each point interpolates between two pixels per axis."""
        return (2 * (self.samples or 1)) ** 2

    def _weighted(
        self, numbers: Sequence[int], boxes: Array, image: Array, *level: Array
    ) -> tuple[Array, WeightedPixels]:
        """The index in `numbers` of the level of each box, and the pixels of its cells.

        Pixels have weight 0 if the level is not in `numbers`, or if the image does not exist.
        """
        which = jnp.zeros(boxes.shape[0], np.int32)
        sizes: tuple[Any, ...] = self.levels[0]
        if level:
            matches = level[0][:, None] == np.asarray(numbers, np.int32)[None]
            which = jnp.argmax(matches, 1).astype(np.int32)
            sizes = tuple(jnp.asarray([self.levels[n] for n in numbers], np.int32)[which].T)
            image = jnp.where(matches.any(1), image, np.int32(-1))
        batch, height, width = sizes
        spans = self._spans(boxes)
        full = self._full(boxes, spans) & (image >= 0) & (image < batch)
        lines = [
            kernels.pixels_and_weights_of_points(*span, count, size, self.samples or 1)
            for span, count, size in zip(spans, self.output_shape, (height, width), strict=True)
        ]
        (row, down), (column, across) = lines
        first = jnp.clip(image, 0, batch - 1) * (height * width)
        width = jnp.broadcast_to(jnp.asarray(width, np.int32), image.shape)
        row = first[:, None, None] + row * width[:, None, None]
        return which, WeightedPixels(
            (row, jnp.where(full[:, None, None], down, 0)), (column, across)
        )

    def _multiplied(self, number: int, x: Array, *extra_args: Array) -> Array:
        """The means of boxes in level `number` by products with the weights of rows and columns; 0 for other boxes."""
        dtype = accumulator_dtype(x.dtype)
        wide = x.astype(dtype)
        finite = jnp.isfinite(wide)
        # Weights of 0 times infinity or NaN would be NaN.
        clean = jnp.where(finite, wide, 0)
        summed, matrices = self._products(number, dtype, *extra_args)

        def marked(y: Array) -> Array:
            """y plus the infinities that its samples touch. A NaN counts as both infinities, whose sum is NaN."""
            constant = lax.stop_gradient(matrices)
            for value in (np.inf, -np.inf):
                sources = lax.stop_gradient(~finite & ~(wide == -value)).astype(dtype)
                y = y + jnp.where(summed(sources, *constant) > 0, jnp.asarray(value, dtype), 0)
            return y

        return lax.cond(jnp.all(finite), lambda y: y, marked, summed(clean, *matrices))

    def _sent(self, number: int, dy: Array, *extra_args: Array) -> Array:
        """The transpose of `_multiplied`."""
        summed, matrices = self._products(number, dy.dtype, *extra_args)
        channels = dy.shape[-1] * (math.prod(self.output_shape) if self.own else 1)
        (like,) = match_varying_mesh_axes(
            [jnp.zeros((*self.levels[number], channels), dy.dtype)], dy
        )
        (dx,) = jax.linear_transpose(lambda x: summed(x, *matrices), like)(dy)
        return dx

    def _products(
        self, number: int, dtype: DType, boxes: Array, image: Array, *level: Array
    ) -> tuple[Callable[..., Array], tuple[Array, Array]]:
        """A function of x and two matrices, and these matrices, in groups of boxes of one image of level `number`."""
        if level:
            image = jnp.where(level[0] == number, image, np.int32(-1))
        count, size = boxes.shape[0], plans.boxes_of_a_product(boxes.shape[0])
        batch, *sizes = self.levels[number]
        groups = kernels.group_boxes_by_image(image, count, batch, size)
        matrices = self._weights(rows(boxes, groups.box_of_slot, groups.slot_of_box), sizes, dtype)

        def summed(x: Array, down: Array, across: Array) -> Array:
            down, across = (m.reshape(-1, size, *m.shape[1:]) for m in (down, across))
            y = kernels.weighted_sums_by_matmul(
                x, down, across, groups.image_of_group, separate_channels=self.own
            )
            return rows(y.reshape(-1, *y.shape[2:]), groups.slot_of_box, groups.box_of_slot)

        return summed, matrices

    def _weights(self, boxes: Array, sizes: Sequence[int], dtype: DType) -> tuple[Array, Array]:
        """The weights of image rows and columns, of which there are `sizes`, in the rows and columns of cells."""
        spans, matrices = self._spans(boxes), []
        for (start, length), cells, size in zip(spans, self.output_shape, sizes, strict=True):
            if self.whole:
                low, high = kernels.cell_bounds(start, length, cells, size - 1)
                matrices.append(kernels.uniform_pixel_weights(low, high, size, dtype))
            else:
                weights = kernels.bilinear_pixel_weights(start, length, cells, size, self.samples)
                matrices.append(weights.astype(dtype))
        matrices[0] = jnp.where(self._full(boxes, spans)[:, None, None], matrices[0], 0)
        return matrices[0], matrices[1]


def box_mean(op: BoxMean, xs: Sequence[Array], *extra_args: Array) -> Array:
    """Evaluate `op` on the levels `xs`, with forward- and reverse-mode derivatives."""
    dtype = mean_dtype(xs[0].dtype)
    xs = match_varying_mesh_axes([x.astype(dtype) for x in xs], *extra_args)
    levels: Any = tuple(x.shape[:3] for x in xs)
    return apply_with_extra_args(dataclasses.replace(op, levels=levels), *xs, *extra_args)[0]
