"""Boxes in images: sample points, the weights of pixels, and groups of boxes in the same image.

Weights are separable: each box has a matrix for its rows and a matrix for its columns. The derivatives of their
products are matrix products again, so no derivative scatters.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import DType

# Sample points considered per pixel if a cell has ceil(length) points. Their distance is more than half a pixel, so at
# most 4 are less than a pixel from the centre of the pixel. One more at each end allows for rounding.
REACH = 6


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


def group(images: Array | None, boxes: int, count: int, size: int) -> Groups:
    """Sort boxes into groups of `size`; box k is in image `images[k]` of `count`, or in image 0 if None."""
    if images is None:
        groups = -(-boxes // size)
        number = jnp.arange(groups * size)
        return Groups(jnp.zeros(groups, np.int32), jnp.minimum(number, boxes), jnp.arange(boxes))
    groups = min(boxes, -(-boxes // size) + count)
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
