"""Regions of images: where samples lie, how much each pixel weighs, and boxes in groups of one image.

Everything is separable: a box has a matrix for its rows and one for its columns. What jax makes of
their products in either direction is products again, so no derivative of them scatters.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import DType

# Points that are looked at for each pixel where a cell has ceil(length) of them, which are more than half
# a pixel apart: 4 may lie less than a pixel from its centre, and one at each end is for rounding.
REACH = 6


def _whole(count: int, dtype: DType, axis: int, rank: int) -> Array:
    shape = [1] * rank
    shape[axis] = count
    return lax.broadcasted_iota(dtype, shape, axis)


def _divided(length: Array, cells: int) -> Array:
    """`length / cells`, correctly rounded: the last bit may decide which pixels are in a cell.

    XLA multiplies with the rounded reciprocal of a constant. `length * 0` makes the divisor none.
    """
    return length / (lax.full_like(length, cells) + length * 0)


def rounded(product: Array) -> Array:
    """A product in its own type: XLA would join it to a sum that follows, into one rounding of both.

    A sum cannot be joined across a clamp, here to all finite numbers. Its derivative is jax's own: of a
    `jax.custom_jvp` jax 0.10 loses the rule in a gradient of a gradient through `jax.lax.scan`.
    """
    most = np.asarray(jnp.finfo(product.dtype).max, product.dtype)
    return lax.clamp(-most, product, most)


def bilinear(start: Array, length: Array, cells: int, size: int, samples: int | None) -> Array:
    """How much each of `size` pixels weighs in each of `cells` of spans of `length`: (K, cells, size).

    A cell is the mean of `samples` points, each between two pixels; of as many as it is pixels long
    if None. A point more than a pixel outside counts as 0.
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
    # jnp.clip has half a derivative at its bounds, this the one from the right.
    point = jnp.where(point >= size - 1, size - 1, jnp.where(point < 0, 0, point))
    low = lax.stop_gradient(jnp.floor(point))
    weight = jnp.where(pixel == low, 1 - (point - low), 0)
    weight = jnp.where(pixel == low + 1, point - low, weight)
    return jnp.where(counts, weight, 0).sum(-1) / jnp.maximum(count, 1)[..., 0]


def points(
    start: Array, length: Array, cells: int, size: int | Array, samples: int
) -> tuple[Array, Array]:
    """The pixels between which the points of each cell lie, and how much they weigh: (K, cells, 2 * samples) each.

    `size` is that of the axis, or of the axis in which each box lies.
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
    """Where each of `cells` of a span of whole pixels begins and ends, within `size`: (K, cells) each.

    `start` and `length` hold whole numbers; cells overlap where the length does not divide.
    """
    step = _divided(length, cells)[:, None]
    number, offset = _whole(cells, step.dtype, 1, 2), start[:, None]
    bounds = (jnp.floor(number * step) + offset, jnp.ceil((number + 1) * step) + offset)
    low, high = (jnp.clip(bound, 0, size).astype(np.int32) for bound in bounds)
    return low, high


def even(low: Array, high: Array, size: int, dtype: DType) -> Array:
    """The weights of a mean over the pixels from `low` to `high`: (K, cells, size); of none, zeros."""
    pixel = _whole(size, np.int32, 2, 3)
    inside = (pixel >= low[..., None]) & (pixel < high[..., None])
    return inside.astype(dtype) / jnp.maximum(high - low, 1).astype(dtype)[..., None]


class Groups(NamedTuple):
    """Boxes in groups of one image each: the image of a group, the box of each slot, the slot of each box.

    The number of boxes stands for a slot that is free, the number of slots for a box whose image
    does not exist.
    """

    image: Array
    box: Array
    slot: Array


def group(images: Array | None, boxes: int, count: int, size: int) -> Groups:
    """`boxes`, of which box k lies in image `images[k]` of `count`, in groups of `size`."""
    if images is None:
        groups = -(-boxes // size)
        number = jnp.arange(groups * size)
        return Groups(jnp.zeros(groups, np.int32), jnp.minimum(number, boxes), jnp.arange(boxes))
    groups = min(boxes, -(-boxes // size) + count)
    order = jnp.argsort(images, stable=True)
    first = jnp.searchsorted(images[order], jnp.arange(count + 1, dtype=images.dtype))
    groups_of = -(-jnp.diff(first) // size)  # how many groups each image has
    last_group = jnp.cumsum(groups_of)
    image = jnp.searchsorted(last_group, jnp.arange(groups), side="right")
    image = jnp.minimum(image, count - 1).astype(np.int32)
    first_slot = size * (last_group - groups_of)
    number = jnp.arange(groups * size)
    of = jnp.repeat(image, size)
    rank = first[of] + number - first_slot[of]
    taken = rank < first[of + 1]
    box = jnp.where(taken, order[jnp.minimum(rank, boxes - 1)], boxes)
    known = (images >= 0) & (images < count)
    at = jnp.clip(images, 0, count - 1)
    slot = first_slot[at] + jnp.argsort(order) - first[at]
    return Groups(image, box, jnp.where(known, slot, groups * size))


def rows(x: Array, at: Array) -> Array:
    """The rows of x at `at`; zeros for one beyond the last."""
    return jnp.take(x, at, axis=0, mode="fill", fill_value=0)


def products(x: Array, down: Array, across: Array, images: Array, *, own: bool) -> Array:
    """The weighted sums of each group of boxes over its image: (groups, boxes, cells, cells, C).

    `x` (B, H, W, C), `down` (groups, boxes, cells, H), `across` (groups, boxes, cells, W). If each
    cell has channels of its `own`, those of x are (C, cells, cells). What lies between the two
    products of a group is computed again by the derivative, so memory does not grow with the boxes.
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
        # A copy for each row of cells, which XLA for CPU multiplies faster where channels are many:
        # "Weights of columns copied" in bench/NOTES.md.
        across = jnp.broadcast_to(across[:, None], (*down.shape[:2], *across.shape[1:]))
        return dot(second, across, dot(first, down, one))

    def step(_: None, group: tuple[Array, Array, Array]) -> tuple[None, Array]:
        return None, of_group(x, *group)

    return lax.scan(step, None, (down, across, images))[1]
