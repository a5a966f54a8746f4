"""Means over boxes of images: weights of pixels, matrix products for groups of boxes, and gathers of single pixels.

Weights are separable: each box has weights for its rows and for its columns. The derivatives of matrix products are
matrix products again, so no derivative scatters. Gathers read the images of a batch as rows of pixels, (pixels, C). A
pyramid has one such array per level, and all pixels of a box are in one array. Their transpose scatters in order.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.compare import decode
from jaxpool._kernels.dtypes import DType, accumulator, has_16_bits

# Sample points considered per pixel if a cell has ceil(length) points. Their distance is more than half a pixel, so at
# most 4 are less than a pixel from the centre of the pixel. One more at each end allows for rounding.
REACH = 6
# XLA for CPU fuses the bitcast of a 16-bit image into at most 15 gathers; for more it stores a copy of the image.
# Alternating uint16 and int16 makes two arrays, with 8 gathers each for a cell of 16 pixels: neither is stored.
_BITS = (np.uint16, np.int16)


def _whole(count: int, dtype: DType, axis: int, rank: int) -> Array:
    shape = [1] * rank
    shape[axis] = count
    return lax.broadcasted_iota(dtype, shape, axis)


def _divided(length: Array, cells: int) -> Array:
    """`length / cells`, correctly rounded, because the last bit may decide which pixels are in a cell.

    XLA replaces a constant divisor by its rounded reciprocal. Adding `length * 0` makes the divisor non-constant.
    """
    return length / (lax.full_like(length, cells) + length * 0)


def rounded(product: Array) -> Array:
    """Round a product before it is added: XLA would contract product and sum to one operation with one rounding.

    XLA does not contract across a clamp, here to the finite numbers. There is no `jax.custom_jvp`, because jax 0.10
    loses its rule in second derivatives through `jax.lax.scan`.
    """
    most = np.asarray(jnp.finfo(product.dtype).max, product.dtype)
    return lax.clamp(-most, product, most)


def bilinear(start: Array, length: Array, cells: int, size: int, samples: int | None) -> Array:
    """Weight of each of `size` pixels in each of `cells` equal parts of spans of `length`: (K, cells, size).

    A cell is the mean of `samples` points, each interpolated between two pixels. None takes one point per pixel of
    its length, rounded up. A point more than a pixel outside counts as 0.
    """
    start, dtype = start[:, None, None, None], start.dtype
    length = _divided(length[:, None, None, None], cells)
    begin = start + rounded(_whole(cells, dtype, 1, 4) * length)
    pixel = _whole(size, dtype, 2, 4)
    if samples is not None:
        count = lax.full_like(length, samples)
        number = _whole(samples, dtype, 3, 4)
    else:
        count = lax.stop_gradient(jnp.ceil(length))
        first = jnp.floor((pixel - 1 - begin) * count / jnp.where(count > 0, length, 1) - 0.5)
        number = jnp.maximum(lax.stop_gradient(first), 0) + _whole(REACH, dtype, 3, 4)
    point = begin + rounded((number + 0.5) * (length / jnp.maximum(count, 1)))
    counts = (number >= 0) & (number < count) & ~((point < -1) | (point > size))
    # jnp.clip has half a derivative at its bounds; this has the derivative from the right.
    point = jnp.where(point >= size - 1, size - 1, jnp.where(point < 0, 0, point))
    low = lax.stop_gradient(jnp.floor(point))
    weight = jnp.where(pixel == low, 1 - (point - low), 0)
    weight = jnp.where(pixel == low + 1, point - low, weight)
    return jnp.where(counts, weight, 0).sum(-1) / jnp.maximum(count, 1)[..., 0]


def points(
    start: Array, length: Array, cells: int, size: int | Array, samples: int
) -> tuple[Array, Array]:
    """Pixels next to the sample points of each cell, and their weights: (K, cells, 2 * samples) each.

    `size` is the size of the axis, or an array with the size for each box.
    """
    if not isinstance(size, int):
        size = size.astype(start.dtype)[:, None, None]
    step = _divided(length[:, None, None], cells)
    begin = start[:, None, None] + rounded(_whole(cells, step.dtype, 1, 3) * step)
    point = begin + rounded((_whole(samples, step.dtype, 2, 3) + 0.5) * _divided(step, samples))
    counts = ~((point < -1) | (point > size))
    point = jnp.clip(point, 0, size - 1)
    low = jnp.floor(point)
    pixel = jnp.concatenate([low, jnp.minimum(low + 1, size - 1)], 2).astype(np.int32)
    weight = jnp.concatenate([1 - (point - low), point - low], 2) / samples
    return pixel, jnp.where(jnp.concatenate([counts, counts], 2), weight, 0)


def cell_bounds(start: Array, length: Array, cells: int, size: int) -> tuple[Array, Array]:
    """Start and exclusive end of each of `cells` cells in a span of whole pixels, within `size`: (K, cells) each.

    `start` and `length` hold whole numbers. Cells overlap if `cells` does not divide the length.
    """
    step = _divided(length, cells)[:, None]
    number, offset = _whole(cells, step.dtype, 1, 2), start[:, None]
    bounds = (jnp.floor(number * step) + offset, jnp.ceil((number + 1) * step) + offset)
    low, high = (jnp.clip(bound, 0, size).astype(np.int32) for bound in bounds)
    return low, high


def even(low: Array, high: Array, size: int, dtype: DType) -> Array:
    """Weights of a mean over the pixels `low : high`: (K, cells, size), zeros for an empty range."""
    pixel = _whole(size, np.int32, 2, 3)
    inside = (pixel >= low[..., None]) & (pixel < high[..., None])
    return inside.astype(dtype) / jnp.maximum(high - low, 1).astype(dtype)[..., None]


class Groups(NamedTuple):
    """Boxes in groups of one image: the image of each group, the box of each slot, the slot of each box.

    A free slot has the number of boxes as its box. A box without an image has the number of slots as its slot.
    """

    image: Array
    box: Array
    slot: Array


def group(images: Array, boxes: int, count: int, size: int) -> Groups:
    """Sort boxes into groups of at most `size`; box k is in image `images[k]` of `count`."""
    used = min(boxes, count)
    # At most: each of `used` images has one box more than its full groups.
    groups = (boxes - used) // size + used
    if count == 1:
        number = jnp.arange(groups * size)
        known = jnp.pad(images == 0, (0, groups * size - boxes))
        slot = jnp.where(known, number, groups * size)[:boxes]
        return Groups(jnp.zeros(groups, np.int32), jnp.where(known, number, boxes), slot)
    order = jnp.argsort(images, stable=True)
    first = jnp.searchsorted(images[order], jnp.arange(count + 1, dtype=images.dtype))
    groups_per_image = -(-jnp.diff(first) // size)
    last_group = jnp.cumsum(groups_per_image)
    image = jnp.searchsorted(last_group, jnp.arange(groups), side="right")
    image = jnp.minimum(image, count - 1).astype(np.int32)
    first_slot = size * (last_group - groups_per_image)
    number = jnp.arange(groups * size)
    of = jnp.repeat(image, size)
    rank = first[of] + number - first_slot[of]
    in_use = rank < first[of + 1]
    box = jnp.where(in_use, order[jnp.minimum(rank, boxes - 1)], boxes)
    known = (images >= 0) & (images < count)
    at = jnp.clip(images, 0, count - 1)
    slot = first_slot[at] + jnp.argsort(order) - first[at]
    return Groups(image, box, jnp.where(known, slot, groups * size))


def rows(x: Array, at: Array) -> Array:
    """Rows of x at `at`, zeros beyond the last row."""
    return jnp.take(x, at, axis=0, mode="fill", fill_value=0)


def products(x: Array, down: Array, across: Array, images: Array, *, own: bool) -> Array:
    """Weighted sums of each group of boxes over its image: (groups, boxes, cells, cells, C).

    `x` is (B, H, W, C), `down` (groups, boxes, cells, H), `across` (groups, boxes, cells, W). With `own`, each cell
    has separate channels, and the channels of x are (C, cells, cells). The derivative recomputes the intermediate
    product of a group, so memory does not grow with the boxes.
    """
    dot = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    if own:
        x = x.reshape(*x.shape[:3], -1, down.shape[2], across.shape[2])
    first, second = "nph,hwc->npwc", "npqw,npwc->npqc"
    if own:
        first, second = ("nph,hwcpq->npwcq", "npqw,npwcq->npqc")

    @jax.checkpoint
    def of_group(x: Array, down: Array, across: Array, image: Array) -> Array:
        one = lax.dynamic_index_in_dim(x, image, keepdims=False)
        # With a copy for each row of cells, XLA for CPU multiplies faster if there are many channels. See
        # "Weights of columns copied" in bench/NOTES.md.
        across = jnp.broadcast_to(across[:, None], (*down.shape[:2], *across.shape[1:]))
        return dot(second, across, dot(first, down, one))

    def step(_: None, group: tuple[Array, Array, Array]) -> tuple[None, Array]:
        return None, of_group(x, *group)

    return lax.scan(step, None, (down, across, images))[1]


class Weighted(NamedTuple):
    """Pixel numbers and weights of each cell of K boxes, down and across: (K, cells, n) each.

    The number of a pixel is the number of the first pixel in its row, from `down`, plus its column, from `across`.
    Entries of weight 0 are not pixels.
    """

    down: tuple[Array, Array]
    across: tuple[Array, Array]

    @property
    def pixels(self) -> tuple[int, int]:
        """Number of pixels per cell, down and across."""
        return self.down[0].shape[2], self.across[0].shape[2]

    def every(self) -> tuple[Array, Array]:
        """Numbers and weights of all pixels of every cell: (K, cells, cells, n, n) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        return at, down[:, :, None, :, None] * across[:, None, :, None, :]

    def one(self, u: int, v: int) -> tuple[Array, Array]:
        """Number and weight of pixel (u, v) of every cell: (K, cells, cells) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, u] + columns[:, None, :, v]
        return at, down[:, :, None, u] * across[:, None, :, v]

    def behind(self, others: Array) -> "Weighted":
        """Renumber the pixels for an array with `others`, (K,), further pixels in front."""
        (rows, down), across = self
        return Weighted((rows + others[:, None, None], down), across)


def _looked_up(flat: Array, at: Array, number: int) -> Array:
    """Gather rows of `flat` at `at`, and widen 16-bit floats to float32.

    16-bit floats are gathered as integers, because XLA for CPU casts a whole float array before the gather.
    """
    if not has_16_bits(flat.dtype):
        return jnp.take(flat, at, axis=0, mode="clip").astype(accumulator(flat.dtype))
    bits = lax.bitcast_convert_type(flat, _BITS[number % 2])
    rows = jnp.take(bits, at, axis=0, mode="clip")
    return decode(lax.bitcast_convert_type(rows, flat.dtype))


def _sums(flat: Array, of: Weighted) -> Array:
    """Weighted sums over the pixels of each cell, (K, cells, cells, C), in the accumulator dtype."""
    total = jnp.zeros((), accumulator(flat.dtype))
    for number, (u, v) in enumerate(np.ndindex(*of.pixels)):
        at, weight = of.one(u, v)
        weight = weight.astype(total.dtype)[..., None]
        # An infinity or a NaN times a weight of 0 is NaN.
        total = total + jnp.where(weight != 0, _looked_up(flat, at, number) * weight, 0)
    return total


def read(flats: Sequence[Array], which: Array, of: Weighted, *, joined: bool) -> Array:
    """Weighted sums over the pixels of each cell, (K, cells, cells, C). Box k reads `flats[which[k]]`.

    `joined` concatenates several arrays first. Otherwise a loop reads one box after another.
    """
    if len(flats) == 1:
        return _sums(flats[0], of)
    if joined:
        before = np.cumsum([0, *map(len, flats[:-1])], dtype=np.int32)
        return _sums(jnp.concatenate(flats), of.behind(jnp.asarray(before)[which]))
    cells = (of.down[0].shape[1], of.across[0].shape[1])

    def one_box(number: Array, y: Array) -> Array:
        readers = [lambda flats, box, n=n: _sums(flats[n], box) for n in range(len(flats))]
        sums = lax.switch(which[number], readers, list(flats), _box(of, number))
        return lax.dynamic_update_slice_in_dim(y, sums, number, 0)

    shape = (len(which), *cells, flats[0].shape[1])
    zeros = jnp.zeros(shape, accumulator(flats[0].dtype))
    return lax.fori_loop(0, len(which), one_box, match_varying_mesh_axes([zeros], *flats)[0])


def send(dy: Array, which: Array, of: Weighted, counts: Sequence[int], parts: int) -> list[Array]:
    """Transpose of `read`: cotangents of arrays with `counts` rows, from dy (K, cells, cells, C).

    A loop scatters one box after another, in `parts` groups of rows of cells; each scatter adds pixels in order.
    """
    channels = dy.shape[-1]
    which, across = jax.tree.map(lambda a: jnp.repeat(a, parts, 0), (which, of.across))
    dy, down = jax.tree.map(
        lambda a: a.reshape(len(which), a.shape[1] // parts, *a.shape[2:]), (dy, of.down)
    )
    of = Weighted(down, across)

    def one_box(number: Array, dxs: list[Array]) -> list[Array]:
        at, weight = _box(of, number).every()
        weight = weight.astype(dy.dtype)[..., None]
        share = _box(dy, number)[:, :, :, None, None]
        terms = jnp.where(weight != 0, share * weight, 0).reshape(-1, channels)
        rows = [jnp.where(which[number] == n, at, count) for n, count in enumerate(counts)]
        pairs = zip(dxs, rows, strict=True)
        return [dx.at[at.reshape(-1)].add(terms, mode="drop") for dx, at in pairs]

    zeros = [jnp.zeros((count, channels), dy.dtype) for count in counts]
    return lax.fori_loop(0, len(which), one_box, [*match_varying_mesh_axes(zeros, dy)])


def _box(arrays: Any, number: Array) -> Any:
    """Entries of one box, (1, ...), in arrays (K, ...)."""
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, number, 1), arrays)
