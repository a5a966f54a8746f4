"""Means over boxes of images: weights of pixels, matrix products for groups of boxes, and gathers of single pixels.

A pixel's weight in a box is the product of a row weight and a column weight. Gathers read pixel arrays, (pixels, C),
which hold all images of a batch; a feature pyramid has one pixel array per level, and a box reads one of them.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.clamped import T
from jaxpool._kernels.dtypes import DType, accumulator_dtype, is_16_bit_float, to_comparison_dtype
from jaxpool._kernels.slices import add_terms

# Sample points of a cell that may read one pixel, if a cell has ceil(length) points. Points are more than half a pixel
# apart, so at most 4 are within a pixel of a pixel's centre. Two more points allow for rounding.
SAMPLE_POINTS_PER_PIXEL = 6
# XLA for CPU stores the bitcast of a 16-bit image if more than 15 gathers read it. Gathers alternate between these
# dtypes, so a cell of 16 pixels has 8 gathers per bitcast.
_GATHER_DTYPES = (np.uint16, np.int16)


def _axis_iota(size: int, dtype: DType, axis: int, ndim: int) -> Array:
    shape = [1] * ndim
    shape[axis] = size
    return lax.broadcasted_iota(dtype, shape, axis)


def _divide_correctly_rounded(length: Array, num_cells: int) -> Array:
    """`length / num_cells`, correctly rounded, because the last bit may decide which pixels are in a cell.

    XLA replaces a division by a constant by a product with its rounded reciprocal, and a division on a GPU may be off
    by one in the last bit. So the result is `q + r / num_cells` for such a quotient q and its remainder
    `r = length - num_cells * q`. The two halves of q times at most 2048 cells are exact, and so is r. With more cells
    the last bit may be wrong. For an infinite length, q is not corrected.
    """
    step = length * np.asarray(1 / num_cells, length.dtype)
    info = jnp.finfo(length.dtype)
    high = lax.reduce_precision(step, info.nexp, info.nmant // 2)
    remainder = length - num_cells * high - num_cells * (step - high)
    correction = lax.stop_gradient(remainder / num_cells)
    return step + jnp.where(jnp.isfinite(correction), correction, 0)


def round_before_adding(product: Array) -> Array:
    """Round a product before an addition, by a clamp to finite numbers that keeps XLA from fusing multiply and add.

    jax 0.10 would lose the rule of a `jax.custom_jvp` in second derivatives through `jax.lax.scan`.
    """
    max_value = np.asarray(jnp.finfo(product.dtype).max, product.dtype)
    return lax.clamp(-max_value, product, max_value)


def bilinear_pixel_weights(
    span_start: Array, span_length: Array, num_cells: int, axis_size: int, num_samples: int | None
) -> Array:
    """Weight of each pixel along an axis in each of the `num_cells` equal cells of a span: (K, cells, axis_size).

    A cell is the mean of `num_samples` points, each interpolated between two pixels. `num_samples=None` takes one point
    per pixel of cell length, rounded up. A sample point more than one pixel outside the axis counts as 0.
    """
    span_start, dtype = span_start[:, None, None, None], span_start.dtype
    span_length = _divide_correctly_rounded(span_length[:, None, None, None], num_cells)
    begin = span_start + round_before_adding(_axis_iota(num_cells, dtype, 1, 4) * span_length)
    pixel = _axis_iota(axis_size, dtype, 2, 4)
    if num_samples is not None:
        count = lax.full_like(span_length, num_samples)
        point_index = _axis_iota(num_samples, dtype, 3, 4)
    else:
        count = lax.stop_gradient(jnp.ceil(span_length))
        first = jnp.floor((pixel - 1 - begin) * count / jnp.where(count > 0, span_length, 1) - 0.5)
        first_index = jnp.maximum(lax.stop_gradient(first), 0)
        point_index = first_index + _axis_iota(SAMPLE_POINTS_PER_PIXEL, dtype, 3, 4)
    point = begin + round_before_adding((point_index + 0.5) * (span_length / jnp.maximum(count, 1)))
    is_counted = (point_index >= 0) & (point_index < count) & ~((point < -1) | (point > axis_size))
    # `jnp.clip` has the derivative 1/2 at its bounds; the `jnp.where` calls have the derivative from the right.
    point = jnp.where(point >= axis_size - 1, axis_size - 1, jnp.where(point < 0, 0, point))
    floor = lax.stop_gradient(jnp.floor(point))
    weight = jnp.where(pixel == floor, 1 - (point - floor), 0)
    weight = jnp.where(pixel == floor + 1, point - floor, weight)
    return jnp.where(is_counted, weight, 0).sum(-1) / jnp.maximum(count, 1)[..., 0]


@functools.partial(jax.jit, static_argnums=(2, 4))
def pixels_and_weights_of_points(
    span_start: Array, span_length: Array, num_cells: int, axis_size: Array, num_samples: int
) -> tuple[Array, Array]:
    """Pixels on both sides of each sample point of each cell, and the pixels' weights: (K, cells, 2 * samples) each.

    `axis_size` is the number of pixels along the axis, or one number per box.
    """
    axis_size = lax.expand_dims(axis_size.astype(span_start.dtype), range(axis_size.ndim, 3))
    step = _divide_correctly_rounded(span_length[:, None, None], num_cells)
    start = span_start[:, None, None]
    begin = start + round_before_adding(_axis_iota(num_cells, step.dtype, 1, 3) * step)
    sample_number = _axis_iota(num_samples, step.dtype, 2, 3) + 0.5
    point_step = _divide_correctly_rounded(step, num_samples)
    point = begin + round_before_adding(sample_number * point_step)
    is_counted = ~((point < -1) | (point > axis_size))
    point = jnp.clip(point, 0, axis_size - 1)
    floor = jnp.floor(point)
    pixel = jnp.concatenate([floor, jnp.minimum(floor + 1, axis_size - 1)], 2).astype(np.int32)
    weight = jnp.concatenate([1 - (point - floor), point - floor], 2) / num_samples
    return pixel, jnp.where(jnp.concatenate([is_counted, is_counted], 2), weight, 0)


@functools.partial(jax.jit, static_argnums=2)
def cell_bounds(
    span_start: Array, span_length: Array, num_cells: int, axis_size: int
) -> tuple[Array, Array]:
    """Start and exclusive end of each cell of a span of whole pixels, clipped to the axis: (K, cells) each."""
    step = _divide_correctly_rounded(span_length, num_cells)[:, None]
    cell_index, offset = _axis_iota(num_cells, step.dtype, 1, 2), span_start[:, None]
    bounds = (jnp.floor(cell_index * step) + offset, jnp.ceil((cell_index + 1) * step) + offset)
    low, high = (jnp.clip(bound, 0, axis_size).astype(np.int32) for bound in bounds)
    return low, high


def uniform_pixel_weights(starts: Array, ends: Array, axis_size: int, dtype: DType) -> Array:
    """Weights of a mean over the pixels `starts : ends` of a cell: (K, cells, axis_size), zeros for an empty range."""
    pixel = _axis_iota(axis_size, np.int32, 2, 3)
    inside = (pixel >= starts[..., None]) & (pixel < ends[..., None])
    return inside.astype(dtype) / jnp.maximum(ends - starts, 1).astype(dtype)[..., None]


class BoxGroups(NamedTuple):
    """Boxes sorted into slots, in groups of one image: image of each group, box of each slot, and slot of each box.

    For a free slot, `box_of_slot` holds the number of boxes. For a box without image, `slot_of_box` holds the number of
    slots.
    """

    image_of_group: Array
    box_of_slot: Array
    slot_of_box: Array


def group_boxes_by_image(
    image_of_box: Array, num_boxes: int, num_images: int, group_size: int
) -> BoxGroups:
    """Sort boxes into groups of at most `group_size` boxes of one image; box k is in image `image_of_box[k]`.

    The rank of a box is its position in the order of images. The slot of a box is its position in the groups:

    images 2, 0, 2, 2 in groups of 2     boxes 1 - | 0 2 | 3 -     slots 0 - | 2 3 | 4 -     ranks 0 - | 1 2 | 3 -
    """
    max_images = min(num_boxes, num_images)
    # Upper bound, reached if `max_images` images have boxes and the last group of each has a single box.
    num_groups = (num_boxes - max_images) // group_size + max_images
    num_slots = num_groups * group_size
    slots = jnp.arange(num_slots, dtype=np.int32)
    if num_images == 1:
        valid = jnp.pad(image_of_box == 0, (0, num_slots - num_boxes))
        slot = jnp.where(valid, slots, num_slots)[:num_boxes]
        return BoxGroups(jnp.zeros(num_groups, np.int32), jnp.where(valid, slots, num_boxes), slot)
    _, order = lax.sort_key_val(image_of_box, slots[:num_boxes])
    image_numbers = jnp.arange(num_images, dtype=image_of_box.dtype)
    # In a shard_map over some axes of a mesh, jnp.searchsorted raises (jax 0.10).
    first_rank = jnp.sum(image_of_box < image_numbers[:, None], axis=1, dtype=np.int32)
    end_rank = jnp.sum(image_of_box <= image_numbers[:, None], axis=1, dtype=np.int32)
    groups_per_image = -((first_rank - end_rank) // group_size)
    group_ends = jnp.cumsum(groups_per_image)
    shift = (
        group_size * (group_ends - groups_per_image) - first_rank
    )  # per image, from the rank of a box to its slot
    group_numbers = jnp.arange(num_groups, dtype=np.int32)
    group_image = jnp.sum(group_ends <= group_numbers[:, None], axis=1, dtype=np.int32)
    group_image = jnp.minimum(group_image, num_images - 1)
    image_of_slot = jnp.repeat(group_image, group_size)
    rank = slots - shift[image_of_slot]
    in_use = rank < end_rank[image_of_slot]
    box = jnp.where(in_use, order[jnp.minimum(rank, num_boxes - 1)], num_boxes)
    valid = (image_of_box >= 0) & (image_of_box < num_images)
    slot = jnp.argsort(order).astype(np.int32) + shift[jnp.clip(image_of_box, 0, num_images - 1)]
    return BoxGroups(group_image, box, jnp.where(valid, slot, num_slots))


def weighted_sums_by_matmul(
    x: Array,
    row_weights: Array,
    column_weights: Array,
    image_of_group: Array,
    *,
    separate_channels: bool,
) -> Array:
    """Weighted pixel sums of each cell, for the boxes of each group: (groups, boxes, cells, cells, C).

    `x` is (B, H, W, C), `row_weights` (groups, boxes, cells, H), `column_weights` (groups, boxes, cells, W). With
    `separate_channels`, each cell reads its own channels, and x has C * cells * cells channels.
    """
    einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    row_spec, column_spec = "nph,hwc->npwc", "npqw,npwc->npqc"
    if separate_channels:
        x = x.reshape(*x.shape[:3], -1, row_weights.shape[2], column_weights.shape[2])
        row_spec, column_spec = "nph,hwcpq->npwcq", "npqw,npwcq->npqc"

    @jax.checkpoint  # memory does not grow with the number of groups
    def sum_one_group(x: Array, group: tuple[Array, Array, Array]) -> Array:
        row_weights, column_weights, image_number = group
        image = lax.dynamic_index_in_dim(x, image_number, keepdims=False)
        # Faster on CPU with many channels: see "Weights of columns copied" in bench/NOTES.md.
        column_weights = jnp.broadcast_to(
            column_weights[:, None], (*row_weights.shape[:2], *column_weights.shape[1:])
        )
        return einsum(column_spec, column_weights, einsum(row_spec, row_weights, image))

    groups = row_weights, column_weights, image_of_group
    return lax.map(functools.partial(sum_one_group, x), groups)


class WeightedPixels(NamedTuple):
    """Numbers and weights of the pixel rows and pixel columns of each cell of K boxes: (K, cells, n) each.

    A pixel's number is that of the first pixel of its row plus its column. Entries with weight 0 are padding.
    """

    rows: tuple[Array, Array]
    columns: tuple[Array, Array]

    def all_pixels(self) -> tuple[Array, Array]:
        """Numbers and weights of all pixels of every cell: (K, cells, cells, n, n) each."""
        (rows, row_weights), (columns, column_weights) = self.rows, self.columns
        pixels = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        return pixels, row_weights[:, :, None, :, None] * column_weights[:, None, :, None, :]


@functools.partial(jax.jit, static_argnums=2)
def _weighted_pixel(pixel_rows: Array, pixel: WeightedPixels, bits_dtype: DType) -> Array:
    """One weighted pixel of each cell, (K, cells, cells, C), in the accumulator dtype.

    16-bit floats are gathered as integers, because XLA for CPU would widen the whole float array before the gather.
    """
    dtype = pixel_rows.dtype
    numbers, weights = (lax.squeeze(a, (3, 4)) for a in pixel.all_pixels())
    weights = weights.astype(accumulator_dtype(dtype))[..., None]
    if is_16_bit_float(dtype):
        bits = lax.bitcast_convert_type(pixel_rows, bits_dtype)
        pixels = jnp.take(bits, numbers, axis=0, mode="clip")
        pixels = to_comparison_dtype(lax.bitcast_convert_type(pixels, dtype))
    else:
        pixels = jnp.take(pixel_rows, numbers, axis=0, mode="clip").astype(weights.dtype)
    # The product of an infinite or NaN pixel and a weight of 0 would be NaN.
    return jnp.where(weights != 0, pixels * weights, 0)


def _weighted_sums(pixel_rows: Array, weighted_pixels: WeightedPixels) -> Array:
    """Weighted sums over the pixels of each cell, (K, cells, cells, C), in the accumulator dtype."""
    pairs = itertools.product(*map(_split_last_axis, weighted_pixels))
    return add_terms(
        [
            _weighted_pixel(pixel_rows, WeightedPixels(*pair), _GATHER_DTYPES[n % 2])
            for n, pair in enumerate(pairs)
        ]
    )


def _split_last_axis(arrays: tuple[Array, Array]) -> list[tuple[Array, Array]]:
    """Split arrays (K, cells, n) into n arrays (K, cells, 1) each."""
    return [*zip(*(jnp.split(a, a.shape[2], 2) for a in arrays), strict=True)]


def weighted_sums_by_gather(
    pixel_arrays: Sequence[Array],
    array_of_box: Array,
    weighted_pixels: WeightedPixels,
    *,
    concatenates_arrays: bool,
) -> Array:
    """Weighted pixel sums of each cell, (K, cells, cells, C). Box k reads `pixel_arrays[array_of_box[k]]`.

    With `concatenates_arrays`, `pixel_arrays` are concatenated first; otherwise a loop processes one box after another.
    """
    if len(pixel_arrays) == 1:
        return _weighted_sums(pixel_arrays[0], weighted_pixels)
    if concatenates_arrays:
        all_pixels = jnp.concatenate(pixel_arrays)
        array_starts = np.cumsum([0, *map(len, pixel_arrays[:-1])], dtype=np.int32)
        num_preceding = jnp.asarray(array_starts)[array_of_box]
        (rows, row_weights), columns = weighted_pixels
        shifted = WeightedPixels((rows + num_preceding[:, None, None], row_weights), columns)
        return _weighted_sums(all_pixels, shifted)

    def read_one_box(box_number: Array, y: Array) -> Array:
        readers = [lambda xs, b, n=n: _weighted_sums(xs[n], b) for n in range(len(pixel_arrays))]
        box = _slice_box(weighted_pixels, box_number)
        sums = lax.switch(array_of_box[box_number], readers, list(pixel_arrays), box)
        return lax.dynamic_update_slice_in_dim(y, sums, box_number, 0)

    cells_shape = (weighted_pixels.rows[0].shape[1], weighted_pixels.columns[0].shape[1])
    shape = (len(array_of_box), *cells_shape, pixel_arrays[0].shape[1])
    zeros = jnp.zeros(shape, accumulator_dtype(pixel_arrays[0].dtype))
    (zeros,) = match_varying_mesh_axes([zeros], *pixel_arrays)
    return lax.fori_loop(0, len(array_of_box), read_one_box, zeros)


def scatter_weighted_cotangents(
    dy: Array,
    array_of_box: Array,
    weighted_pixels: WeightedPixels,
    rows_per_array: Sequence[int],
    num_parts: int,
) -> list[Array]:
    """Transpose of `weighted_sums_by_gather`: cotangents of the arrays, from dy (K, cells, cells, C).

    A loop scatters one box after another, with its rows of cells split into `num_parts` scatters.
    """
    channels = dy.shape[-1]
    num_boxes = len(array_of_box) * num_parts

    def split_rows(a: Array) -> Array:
        return a.reshape(num_boxes, a.shape[1] // num_parts, *a.shape[2:])

    array_of_box, columns = jax.tree.map(
        lambda a: jnp.repeat(a, num_parts, 0), (array_of_box, weighted_pixels.columns)
    )
    dy, rows = jax.tree.map(split_rows, (dy, weighted_pixels.rows))
    weighted_pixels = WeightedPixels(rows, columns)

    def scatter_one_box(box_number: Array, dxs: list[Array]) -> list[Array]:
        pixel, weight = _slice_box(weighted_pixels, box_number).all_pixels()
        weight = weight.astype(dy.dtype)[..., None]
        box_dy = _slice_box(dy, box_number)[:, :, :, None, None]
        terms = jnp.where(weight != 0, box_dy * weight, 0).reshape(-1, channels)
        positions = [
            jnp.where(array_of_box[box_number] == n, pixel, count)
            for n, count in enumerate(rows_per_array)
        ]
        pairs = zip(dxs, positions, strict=True)
        return [dx.at[pixel.reshape(-1)].add(terms, mode="drop") for dx, pixel in pairs]

    zeros = [jnp.zeros((count, channels), dy.dtype) for count in rows_per_array]
    return lax.fori_loop(0, num_boxes, scatter_one_box, [*match_varying_mesh_axes(zeros, dy)])


def multiply_weighted_cotangents(
    dy: Array,
    array_of_box: Array,
    weighted_pixels: WeightedPixels,
    image_shapes: Sequence[tuple[int, int, int]],
) -> list[Array]:
    """`scatter_weighted_cotangents` by products with the weights of all boxes, for arrays of images (B, H, W).

    In a product, infinities and NaN of weight 0 would be NaN. So they are scattered: sums of zeros, infinities and NaN
    do not depend on the order in which a scatter adds.
    """
    einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    (rows, row_weights), columns = weighted_pixels
    is_finite = jnp.isfinite(dy)
    finite_dy = jnp.where(is_finite, dy, 0)
    pixels, weights = weighted_pixels.all_pixels()
    is_added = (weights != 0) & ~is_finite.all(-1)[..., None, None]
    terms = jnp.broadcast_to(dy[:, :, :, None, None], (*pixels.shape, dy.shape[-1]))
    terms = jnp.where(jnp.isfinite(terms), 0, terms).reshape(-1, dy.shape[-1])
    dxs = []
    for n, (batch, height, width) in enumerate(image_shapes):
        is_here = (array_of_box == n)[:, None, None]
        level_rows = rows, jnp.where(is_here, row_weights, 0)
        down = _weight_matrix(*level_rows, batch * height, width).astype(dy.dtype)
        across = _weight_matrix(*columns, width, 1).astype(dy.dtype)
        rows_dy = (across[:, None, :, :, None] * finite_dy[:, :, :, None]).sum(2)
        dx = einsum("kih,kiwc->hwc", down, rows_dy).reshape(-1, dy.shape[-1])
        positions = jnp.where(is_added & is_here[..., None, None], pixels, len(dx))
        # Each thread of the scatter would compute its position again, for each channel.
        positions = lax.optimization_barrier(positions)
        dxs.append(dx.at[positions.reshape(-1)].add(terms, mode="drop"))
    return dxs


def _weight_matrix(numbers: Array, weights: Array, size: int, unit: int) -> Array:
    """Sums (K, cells, size): entry p adds the `weights` (K, cells, n) whose `numbers` equal `unit * p`."""
    position = _axis_iota(size, np.int32, 2, 3) * np.int32(unit)
    pairs = _split_last_axis((numbers, weights))
    terms = [jnp.where(number == position, weight, 0) for number, weight in pairs]
    return functools.reduce(lax.add, terms)


def _slice_box(arrays: T, box_number: Array) -> T:
    """Slice the entries of one box, (1, ...), out of arrays (K, ...)."""
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, box_number, 1), arrays)
