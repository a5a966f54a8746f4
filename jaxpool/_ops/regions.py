"""Averages over boxes of images, as products with matrices that the boxes make."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import regions
from jaxpool._kernels.dtypes import DType, accumulator, is_float
from jaxpool._ops.op import Composite, Op, apply_given
from jaxpool._plan.problem import Platform

GROUP = 16  # boxes that are multiplied at once: enough rows for a matrix product, few to fill up


@dataclasses.dataclass(frozen=True)
class Rows(Op):
    """Rows of x, each at most once; given where each is, and where in the result each row of x is."""

    linear_in_x = True

    def linear(self, on: Platform, given: tuple[Array, Array], x: Array) -> Array:
        return regions.rows(x, given[0])

    def transpose(self, on: Platform, given: tuple[Array, Array], dy: Array) -> tuple[Array]:
        return (regions.rows(dy, given[1]),)


def rows(x: Array, at: Array, back: Array) -> Array:
    """The rows of x `at` places; zeros for a place beyond the last. `back` is the inverse of `at`."""
    return apply_given(Rows(), x, at, back)[0]


def mean_dtype(dtype: DType) -> DType:
    """The type of an average of elements of `dtype`."""
    return jnp.dtype(dtype) if is_float(dtype) else jnp.dtype(np.float32)


def in_pixels(boxes: Array, scale: float) -> Array:
    """Boxes (K, 4) in pixels of the image, in the type in which they are computed."""
    dtype = accumulator(mean_dtype(boxes.dtype))
    return boxes.astype(dtype) * np.asarray(scale, dtype)


def away_from_zero(x: Array) -> Array:
    """The nearest whole number; of two the one away from 0."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


@jax.custom_jvp
def _numbers(x: Array) -> Array:
    """x with 0 for infinities and NaNs, which a weight of 0 would not undo; its derivative is that of x."""
    return jnp.where(jnp.isfinite(x), x, 0)


@_numbers.defjvp
def _numbers_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _numbers(*primals), tangents[0]


@dataclasses.dataclass(frozen=True)
class BoxMean(Composite):
    """The mean of each cell of boxes (K, 4) of images (B, H, W, C), given the image of each box if there are several.

    Of `samples` points an axis, or of as many as a cell is pixels long (None), from `offset` before
    the box on, which is at least `least` long; or, `whole`, of the pixels that the cell covers. A box
    without area gives 0 if `empty_is_zero`. Cells may have channels of their `own`.
    """

    output_shape: tuple[int, ...]
    scale: float
    samples: int | None
    offset: float = 0.5
    least: float | None = None
    empty_is_zero: bool = True
    own: bool = False
    whole: bool = False

    def value(self, x: Array, boxes: Array, *images: Array) -> Array:
        dtype = accumulator(mean_dtype(x.dtype))
        wide = x.astype(dtype)
        finite = jnp.isfinite(wide)
        count, size = boxes.shape[0], min(GROUP, boxes.shape[0])
        groups = regions.group(images[0] if images else None, count, x.shape[0], size)
        down, across = self._weights(rows(boxes, groups.box, groups.slot), x.shape, dtype)

        def summed(x: Array, down: Array, across: Array) -> Array:
            down, across = (m.reshape(-1, size, *m.shape[1:]) for m in (down, across))
            y = regions.products(x, down, across, groups.image, own=self.own)
            return rows(y.reshape(-1, *y.shape[2:]), groups.slot, groups.box)

        def marked(y: Array) -> Array:
            """y with the infinities and NaNs that its samples touch: a NaN is both infinities."""
            matrices = lax.stop_gradient((down, across))
            for value in (np.inf, -np.inf):
                found = lax.stop_gradient(~finite & ~(wide == -value)).astype(dtype)
                y = y + jnp.where(summed(found, *matrices) > 0, jnp.asarray(value, dtype), 0)
            return y

        y = lax.cond(jnp.all(finite), lambda y: y, marked, summed(_numbers(wide), down, across))
        return y.astype(mean_dtype(x.dtype))

    def _weights(self, boxes: Array, shape: tuple[int, ...], dtype: DType) -> tuple[Array, Array]:
        """How much the rows and the columns of the images weigh in those of the cells."""
        scaled = in_pixels(boxes, self.scale)
        if self.whole:
            scaled = away_from_zero(scaled)
        ends = scaled.T - np.asarray(self.offset, scaled.dtype)
        matrices, lengths = [], []
        for start, end, cells, size in zip(
            ends[:2], ends[2:], self.output_shape, shape[1:3], strict=True
        ):
            length = end - start
            if self.least is not None:
                length = jnp.maximum(length, self.least)
            lengths.append(length)
            if self.whole:
                low, high = regions.cell_bounds(start, length, cells, size - 1)
                matrices.append(regions.even(low, high, size, dtype))
            else:
                weights = regions.bilinear(start, length, cells, size, self.samples)
                matrices.append(weights.astype(dtype))
        if self.empty_is_zero:
            full = (lengths[0] > 0) & (lengths[1] > 0)
            matrices[0] = jnp.where(full[:, None, None], matrices[0], 0)
        return matrices[0], matrices[1]
