"""Averages over boxes of images (RoI align), by two matrix products per box or by gathers of pixels."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import fits_int32, is_int
from jaxpool._kernels import box_mean as kernels
from jaxpool._kernels.box_mean import WeightedPixels
from jaxpool._kernels.dtypes import (
    DType,
    accumulator_dtype,
    all_true_across_vmap,
    float_constant,
    mean_dtype,
)
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Arrays, Op, array_problem
from jaxpool._ops.ranged import T, amend_unless
from jaxpool._plan import boxes as plans
from jaxpool._plan.problem import Platform


@dataclasses.dataclass(frozen=True)
class TakeRows(Op):
    """The rows of x at given positions, each at most once, with zeros for positions out of bounds.

    Arguments after x: the positions, and the position in the result of each row of x, out of bounds for other rows.
    """

    linear_in_x = True
    is_pool = False

    def linear(self, platform: Platform, extra_args: Arrays, x: Array) -> Array:
        return jnp.take(x, extra_args[0], axis=0, mode="fill", fill_value=0)

    def transpose(self, platform: Platform, extra_args: Arrays, dy: Array) -> tuple[Array]:
        return (jnp.take(dy, extra_args[1], axis=0, mode="fill", fill_value=0),)


def boxes_in_pixels(boxes: Array, scale: float, *, rounds: bool) -> Array:
    """Boxes (K, 4) times `scale`, in pixels and in the accumulator dtype. The corners of a box with a NaN become 0.

    With `rounds`, the corners are integers; halves are rounded away from 0.
    """
    dtype = accumulator_dtype(mean_dtype(boxes.dtype))
    wide_boxes = jnp.where(has_no_nan(boxes)[:, None], boxes.astype(dtype), 0)
    scaled_boxes = kernels.round_before_adding(wide_boxes * float_constant(scale, dtype))
    return lax.round(scaled_boxes, lax.RoundingMethod.AWAY_FROM_ZERO) if rounds else scaled_boxes


def has_no_nan(boxes: Array) -> Array:
    """Mask (K,) of the boxes (K, 4) without NaN."""
    return ~jnp.isnan(boxes).any(1)


Matrices = Sequence[tuple[Array, Array]]  # of each level: weights of rows and of columns


@dataclasses.dataclass(frozen=True)
class BoxMean(Op):
    """Mean of each cell of boxes (K, 4) in images (B, H, W, C), or in an image pyramid with one such array per level.

    After the levels come the boxes, in pixels of their level divided by `scale`, the image index of each box, and for
    several levels the level of each box. A box whose image or level does not exist gives 0.
    """

    output_shape: tuple[int, ...]  # I, J: rows and columns of cells
    scale: float  # factor from box coordinates to pixels
    samples: int | None  # points per axis of a cell; None: one per pixel, rounded up
    offset: float = 0.5  # pixels subtracted from each corner of a box
    min_length: float | None = None  # minimum length of a box in pixels
    empty_is_zero: bool = True  # whether a box without area has the output 0
    # whether channel c of cell (i, j) reads channel (c * I + i) * J + j of x
    uses_own_channels: bool = False
    uses_whole_pixels: bool = False  # whether corners are rounded and cells average whole pixels
    levels: tuple[tuple[int, int, int], ...] = ()  # B, H, W of each level

    linear_in_x = True
    has_differentiable_residual = True

    @property
    def num_inputs(self) -> int:
        return len(self.levels)

    def linear(self, platform: Platform, extra_args: Arrays, *xs: Array | None) -> Array:
        x_of_level = {level: x for level, x in enumerate(xs) if x is not None}
        arrays = [*x_of_level.values()]
        if self.by_pixels(platform):
            flat_xs = [x.reshape(-1, x.shape[-1]) for x in arrays]
            level_index, pixels = self._weighted_pixels(tuple(x_of_level), *extra_args)
            sizes = [x.size if is_int(x.size) else None for x in arrays]
            concatenates = plans.concatenates_levels(
                platform, sizes, arrays[0].dtype.itemsize, extra_args[0].shape[0]
            )
            y = kernels.weighted_sums_by_gather(
                flat_xs, level_index, pixels, concatenates_arrays=concatenates
            )
        else:
            dtype = accumulator_dtype(arrays[0].dtype)
            sum_fn, matrices = self._sum_fn_and_weights(x_of_level, dtype, extra_args)
            wide_xs = [x.astype(dtype) for x in arrays]
            y = _sum_with_infinities(platform, sum_fn, wide_xs, matrices)
        return y.astype(arrays[0].dtype)

    def transpose(self, platform: Platform, extra_args: Arrays, dy: Array) -> tuple[Array, ...]:
        wide_dy = dy.astype(accumulator_dtype(dy.dtype))
        form: plans.CotangentForm = "grouped products"
        if self.by_pixels(platform):
            shape = array_problem(dy, platform).shape
            form = plans.choose_cotangent_form(platform, shape, self.levels)
        if form == "grouped products":
            dxs = self._matrix_transpose(platform, wide_dy, extra_args)
        else:
            level_index, pixels = self._weighted_pixels(tuple(range(self.num_inputs)), *extra_args)
            args = wide_dy, level_index, pixels
            if form == "product":
                dxs = kernels.multiply_weighted_cotangents(*args, self.levels)
            else:
                # Each sample point interpolates between two pixels per axis.
                pixels_per_cell = (2 * (self.samples or 1)) ** 2
                rows, columns = self.output_shape
                num_parts = plans.num_box_parts((rows, columns), pixels_per_cell, dy.shape[-1])
                counts = [*map(math.prod, self.levels)]
                dxs = kernels.scatter_weighted_cotangents(*args, counts, num_parts)
        pairs = zip(dxs, self.levels, strict=True)
        return tuple(dx.reshape(*sizes, dx.shape[-1]).astype(dy.dtype) for dx, sizes in pairs)

    def by_pixels(self, platform: Platform) -> bool:
        """True if cells gather their few pixels instead of multiplying matrices; fast if XLA vectorises gathers."""
        is_small = fits_int32(sum(map(math.prod, self.levels)))
        is_plain = not (self.uses_own_channels or self.uses_whole_pixels)
        return is_small and is_plain and plans.gathers_pixels(platform, self.samples)

    def _box_spans(self, boxes: Array) -> list[tuple[Array, Array]]:
        """Start and length in pixels of each box, along rows and columns. Lengths that are not finite become 0."""
        ends = boxes_in_pixels(boxes, self.scale, rounds=self.uses_whole_pixels).T
        offset, spans = np.asarray(self.offset, ends.dtype), []
        for start, end in zip(ends[:2] - offset, ends[2:], strict=True):
            length = end - offset - start
            if self.min_length is not None:
                # `jnp.maximum` would halve the derivative where length equals `min_length`; `jnp.where` does not.
                length = jnp.where(length < self.min_length, self.min_length, length)
            spans.append((start, jnp.where(jnp.isfinite(length), length, 0)))
        return spans

    def _is_valid_box(self, boxes: Array, spans: list[tuple[Array, Array]]) -> Array:
        """Mask of the boxes without NaN, and if `empty_is_zero` with positive area."""
        has_area = (spans[0][1] > 0) & (spans[1][1] > 0)
        is_number = has_no_nan(boxes)
        return is_number & has_area if self.empty_is_zero else is_number

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def _weighted_pixels(
        self, level_ids: tuple[int, ...], boxes: Array, image_index: Array, *box_levels: Array
    ) -> tuple[Array, WeightedPixels]:
        """The level of each box as an index into `level_ids`, and the pixels of its cells with their weights.

        Pixels have weight 0 if the level of the box is not in `level_ids`, or if its image does not exist.
        """
        level_index = jnp.zeros(boxes.shape[0], np.int32)
        sizes: Sequence[Any] = [np.int32(size) for size in self.levels[0]]
        if box_levels:
            matches = box_levels[0][:, None] == np.asarray(level_ids, np.int32)[None]
            level_index = jnp.argmax(matches, 1).astype(np.int32)
            sizes = tuple(jnp.asarray([self.levels[n] for n in level_ids], np.int32)[level_index].T)
            image_index = jnp.where(matches.any(1), image_index, np.int32(-1))
        batch, height, width = sizes
        spans = self._box_spans(boxes)
        is_valid = self._is_valid_box(boxes, spans) & (image_index >= 0) & (image_index < batch)
        (row, row_weights), columns = [
            kernels.pixels_and_weights_of_points(*span, count, size, self.samples or 1)
            for span, count, size in zip(spans, self.output_shape, (height, width), strict=True)
        ]
        image_start = jnp.clip(image_index, 0, batch - 1) * (height * width)
        row = image_start[:, None, None] + row * lax.expand_dims(width, range(width.ndim, 3))
        row_weights = jnp.where(is_valid[:, None, None], row_weights, 0)
        return level_index, WeightedPixels((row, row_weights), columns)

    def _matrix_transpose(self, platform: Platform, dy: Array, extra_args: Arrays) -> list[Array]:
        """Cotangents of all levels, by products with matrices."""
        sum_fn, matrices = self._sum_fn_and_weights(range(self.num_inputs), dy.dtype, extra_args)
        channels = dy.shape[-1] * (math.prod(self.output_shape) if self.uses_own_channels else 1)
        zeros = [jnp.zeros((*sizes, channels), dy.dtype) for sizes in self.levels]
        like = match_varying_mesh_axes(zeros, dy)

        def transpose(dy: Array, matrices: Matrices) -> list[Array]:
            (dxs,) = jax.linear_transpose(lambda xs: sum_fn(xs, matrices), like)(dy)
            return dxs

        return _sum_with_infinities(platform, transpose, dy, matrices)

    def _sum_fn_and_weights(
        self, level_ids: Iterable[int], dtype: DType, extra_args: Arrays
    ) -> tuple[Callable[..., Array], Matrices]:
        """A function `sum_fn(xs, matrices)` that sums the pixels of each cell over levels, and the weight matrices."""
        levels = [self._level_sum_fn_and_weights(n, dtype, *extra_args) for n in level_ids]
        level_sum_fns, matrices = zip(*levels, strict=True)

        def sum_fn(xs: Sequence[Array], matrices: Matrices) -> Array:
            calls = zip(level_sum_fns, xs, matrices, strict=True)
            return functools.reduce(lax.add, [level_fn(x, *pair) for level_fn, x, pair in calls])

        return sum_fn, matrices

    def _level_sum_fn_and_weights(
        self, level_id: int, dtype: DType, boxes: Array, image_index: Array, *box_levels: Array
    ) -> tuple[Callable[..., Array], tuple[Array, Array]]:
        """A function `sum_fn(x, row_weights, column_weights)` of one level, and the weight matrices.

        Sums of boxes in other levels are 0.
        """
        if box_levels:
            image_index = jnp.where(box_levels[0] == level_id, image_index, np.int32(-1))
        count = boxes.shape[0]
        size = plans.matmul_group_size(count)
        batch, *sizes = self.levels[level_id]
        groups = kernels.group_boxes_by_image(image_index, count, batch, size)
        boxes_of_slots = apply(TakeRows(), boxes, groups.box_of_slot, groups.slot_of_box)
        matrices = self._weights(boxes_of_slots, sizes, dtype)

        def sum_fn(x: Array, *matrices: Array) -> Array:
            rows, columns = (m.reshape(-1, size, *m.shape[1:]) for m in matrices)
            y = kernels.weighted_sums_by_matmul(
                x, rows, columns, groups.image_of_group, separate_channels=self.uses_own_channels
            )
            y = y.reshape(-1, *y.shape[2:])
            return apply(TakeRows(), y, groups.slot_of_box, groups.box_of_slot)

        return sum_fn, matrices

    def _weights(self, boxes: Array, sizes: Sequence[int], dtype: DType) -> tuple[Array, Array]:
        """Weights of the `sizes[0]` image rows in each row of cells, and of the `sizes[1]` columns in each column."""
        spans, matrices = self._box_spans(boxes), []
        for (start, length), cells, size in zip(spans, self.output_shape, sizes, strict=True):
            if self.uses_whole_pixels:
                low, high = kernels.cell_bounds(start, length, cells, size - 1)
                matrices.append(kernels.uniform_pixel_weights(low, high, size, dtype))
            else:
                weights = kernels.bilinear_pixel_weights(start, length, cells, size, self.samples)
                matrices.append(weights.astype(dtype))
        matrices[0] = jnp.where(self._is_valid_box(boxes, spans)[:, None, None], matrices[0], 0)
        return matrices[0], matrices[1]


def _sum_with_infinities(
    platform: Platform, sum_fn: Callable[..., T], xs: Array | Sequence[Array], matrices: Matrices
) -> T:
    """`sum_fn(xs, matrices)`, weighted sums of xs with weights of at least 0, for any xs.

    Infinities and NaN of weight 0 add nothing. Infinities and NaN have no derivatives with respect to the matrices.
    """
    dtype = matrices[0][0].dtype
    finite_xs = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), xs)
    is_finite = [all_true_across_vmap(jnp.isfinite(x)) for x in jax.tree.leaves(xs)]

    def add_infinity(i: Array, y: T) -> T:
        """Add the infinity of one sign. A NaN counts as both infinities, whose sum is NaN."""
        infinity = jnp.asarray([np.inf, -np.inf], dtype)[i]
        masks = jax.tree.map(lambda x: ~jnp.isfinite(x) & (x != -infinity), xs)
        ones = jax.tree.map(lambda mask: mask.astype(dtype), masks)
        counts = sum_fn(ones, lax.stop_gradient(matrices))
        return jax.tree.map(lambda y, n: y + jnp.where(n > 0, infinity, 0), y, counts)

    return amend_unless(
        platform,
        functools.reduce(jnp.logical_and, is_finite),
        lambda y: lax.fori_loop(0, 2, add_infinity, y),
        sum_fn(finite_xs, matrices),  # a weight of 0 times infinity or NaN would be NaN
    )


def apply_box_mean(op: BoxMean, xs: Sequence[Array], *extra_args: Array) -> Array:
    """Evaluate `op` on the levels `xs`, with forward- and reverse-mode derivatives."""
    dtype = mean_dtype(xs[0].dtype)
    levels: Any = tuple(x.shape[:3] for x in xs)
    op = dataclasses.replace(op, levels=levels)
    return apply(op, *[x.astype(dtype) for x in xs], *extra_args)
