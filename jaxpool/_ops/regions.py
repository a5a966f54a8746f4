"""Averages over boxes of images (RoI align), by two matrix products per box or by gathers of pixels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._kernels import regions
from jaxpool._kernels.dtypes import DType, accumulator, float_dtype
from jaxpool._kernels.weighted import Weighted, read, send
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.op import Op
from jaxpool._plan import regions as plans
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along, linear_plan


@dataclasses.dataclass(frozen=True)
class Rows(Op):
    """Rows of x, each at most once, for their positions in x and the inverse of these positions."""

    linear_in_x = True
    is_pool = False

    def linear(self, platform: Platform, extra_args: tuple[Array, Array], x: Array) -> Array:
        return regions.rows(x, extra_args[0])

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, Array], dy: Array
    ) -> tuple[Array]:
        return (regions.rows(dy, extra_args[1]),)


BY_GROUPS = "some boxes of one image at a time"


def rows(x: Array, at: Array, back: Array) -> Array:
    """The rows of x at positions `at`, with zeros for positions out of bounds. `back` is the inverse of `at`."""
    return apply_with_extra_args(Rows(), x, at, back)[0]


def in_pixels(boxes: Array, scale: float) -> Array:
    """Boxes (K, 4) in pixels of the image, in the dtype of sums. A box with a NaN becomes 0."""
    dtype = accumulator(float_dtype(boxes.dtype))
    wide = jnp.where(are_numbers(boxes)[:, None], boxes.astype(dtype), 0)
    return regions.rounded(wide * np.asarray(scale, dtype))


def are_numbers(boxes: Array) -> Array:
    """Mask of the boxes (K, 4) without NaN."""
    return ~jnp.isnan(boxes).any(1)


def away_from_zero(x: Array) -> Array:
    """x rounded to integers, with halves away from 0."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


@dataclasses.dataclass(frozen=True)
class BoxMean(Op):
    """The mean of each cell of boxes (K, 4) in images (B, H, W, C), with optional image indices (K,)."""

    output_shape: tuple[int, ...]  # I, J: rows and columns of cells
    scale: float  # factor from box coordinates to pixels
    samples: int | None  # points per axis of a cell; None is ceil(length of the cell in pixels)
    offset: float = 0.5  # pixels subtracted from each corner
    least: float | None = None  # minimum length of a box in pixels
    empty_is_zero: bool = True  # whether a box without area has the output 0
    own: bool = False  # whether channel c of cell (i, j) reads channel (c * I + i) * J + j of x
    whole: bool = False  # whether corners are rounded and cells average whole pixels
    sizes: tuple[int, ...] = ()  # B, H, W

    linear_in_x = True
    differentiable_residual = True

    def plan(self, platform: Platform, x: Any, *extra_args: Any) -> OpPlan:
        if self.by_pixels(platform):
            count = self.pixels_of_a_cell
            sent = along((1, 2), "scattered", note=f"each cell to {count} pixels")
            return linear_plan(along((1, 2), "gathered", count), sent)
        ways = [along((axis,), "multiplied", x.shape[axis], BY_GROUPS) for axis in (1, 2)]
        return linear_plan((*ways[0], *ways[1]), (*ways[1], *ways[0]))

    def linear(self, platform: Platform, extra_args: tuple[Array, ...], x: Array) -> Array:
        y = (
            self._read(x, *extra_args)
            if self.by_pixels(platform)
            else self._multiplied(x, *extra_args)
        )
        return y.astype(x.dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array]:
        wide = dy.astype(accumulator(dy.dtype))
        if self.by_pixels(platform):
            return (self._sent(wide, *extra_args).astype(dy.dtype),)
        summed, matrices = self._products(wide.dtype, *extra_args)
        channels = dy.shape[-1] * (math.prod(self.output_shape) if self.own else 1)
        (like,) = match_varying_mesh_axes([jnp.zeros((*self.sizes, channels), wide.dtype)], wide)
        (dx,) = jax.linear_transpose(lambda x: summed(x, *matrices), like)(wide)
        return (dx.astype(dy.dtype),)

    def by_pixels(self, platform: Platform) -> bool:
        """Whether cells gather the few pixels that they need: far fewer products, if XLA vectorises it, as on CPU."""
        numbered = math.prod(self.sizes) < 2**31  # pixel indices are int32
        return (
            numbered and plans.reads_pixels(platform, self.samples) and not (self.own or self.whole)
        )

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

    def weighted(self, sizes: Sequence[Any], boxes: Array, *images: Array) -> Weighted:
        """The pixels of each cell and their weights. `sizes` are B, H, W, of all images or (K,) per box."""
        batch, height, width = sizes
        image = images[0] if images else jnp.zeros(boxes.shape[0], np.int32)
        spans = self._spans(boxes)
        full = self._full(boxes, spans) & (image >= 0) & (image < batch)
        lines = [
            regions.points(*span, count, size, self.samples or 1)
            for span, count, size in zip(spans, self.output_shape, (height, width), strict=True)
        ]
        (row, down), (column, across) = lines
        first = jnp.clip(image, 0, batch - 1) * (height * width)
        width = jnp.broadcast_to(jnp.asarray(width, np.int32), image.shape)
        row = first[:, None, None] + row * width[:, None, None]
        return Weighted((row, jnp.where(full[:, None, None], down, 0)), (column, across))

    def _read(self, x: Array, *extra_args: Array) -> Array:
        """The weighted sum over the pixels of each cell, gathered one by one."""
        return read(x.reshape(-1, x.shape[-1]), self.weighted(self.sizes, *extra_args))

    def _sent(self, dy: Array, boxes: Array, *images: Array) -> Array:
        """The transpose of `_read`."""
        of = self.weighted(self.sizes, boxes, *images)
        (dx,) = self.sent(dy, jnp.zeros(len(boxes), np.int32), of, [math.prod(self.sizes)])
        return dx.reshape(*self.sizes, dy.shape[-1])

    def sent(self, dy: Array, which: Array, of: Weighted, counts: Sequence[int]) -> list[Array]:
        """Scatter cotangents of cells to arrays of `counts` pixels. Box k belongs to array `which[k]`."""
        down, across = self.output_shape
        parts = plans.parts_of_a_box((down, across), self.pixels_of_a_cell, dy.shape[-1])
        return send(dy, which, of, counts, parts)

    def _multiplied(self, x: Array, boxes: Array, *images: Array) -> Array:
        """The averages by one product with the weights of the rows and one with the weights of the columns."""
        dtype = accumulator(x.dtype)
        wide = x.astype(dtype)
        finite = jnp.isfinite(wide)
        # Weights of 0 times infinity or NaN would be NaN.
        clean = jnp.where(finite, wide, 0)
        summed, matrices = self._products(dtype, boxes, *images)

        def marked(y: Array) -> Array:
            """y plus the infinities that its samples touch. A NaN counts as both infinities, whose sum is NaN."""
            constant = lax.stop_gradient(matrices)
            for value in (np.inf, -np.inf):
                sources = lax.stop_gradient(~finite & ~(wide == -value)).astype(dtype)
                y = y + jnp.where(summed(sources, *constant) > 0, jnp.asarray(value, dtype), 0)
            return y

        return lax.cond(jnp.all(finite), lambda y: y, marked, summed(clean, *matrices))

    def _products(
        self, dtype: DType, boxes: Array, *images: Array
    ) -> tuple[Callable[..., Array], tuple[Array, Array]]:
        """A function of x and two matrices, and these matrices, in groups of boxes of one image."""
        count, size = boxes.shape[0], plans.boxes_of_a_product(boxes.shape[0])
        groups = regions.group(images[0] if images else None, count, self.sizes[0], size)
        matrices = self._weights(rows(boxes, groups.box, groups.slot), dtype)

        def summed(x: Array, down: Array, across: Array) -> Array:
            down, across = (m.reshape(-1, size, *m.shape[1:]) for m in (down, across))
            y = regions.products(x, down, across, groups.image, own=self.own)
            return rows(y.reshape(-1, *y.shape[2:]), groups.slot, groups.box)

        return summed, matrices

    def _weights(self, boxes: Array, dtype: DType) -> tuple[Array, Array]:
        """The weights of image rows and columns in the rows and columns of cells."""
        spans, matrices = self._spans(boxes), []
        for (start, length), cells, size in zip(
            spans, self.output_shape, self.sizes[1:], strict=True
        ):
            if self.whole:
                low, high = regions.cell_bounds(start, length, cells, size - 1)
                matrices.append(regions.even(low, high, size, dtype))
            else:
                weights = regions.bilinear(start, length, cells, size, self.samples)
                matrices.append(weights.astype(dtype))
        matrices[0] = jnp.where(self._full(boxes, spans)[:, None, None], matrices[0], 0)
        return matrices[0], matrices[1]


def box_mean(op: BoxMean, x: Array, boxes: Array, *images: Array) -> Array:
    """Evaluate `op` on images x, with forward- and reverse-mode derivatives."""
    x = match_varying_mesh_axes([x.astype(float_dtype(x.dtype))], boxes, *images)[0]
    return apply_with_extra_args(dataclasses.replace(op, sizes=x.shape[:3]), x, boxes, *images)[0]


def boxes_at_once(op: BoxMean, channels: Any, samples: int) -> int | None:
    """Number of boxes whose points are in memory at a time, for `samples` per axis of a cell; None for all."""
    if plans.few_points(samples) or not is_int(channels):
        return None
    return plans.boxes_at_once(op.output_shape, channels)
