"""Extremes over whole axes, and who attained them: an index or one bit an element.

All arrays keep their reduced axes, of size 1 in results. `mask` says which elements count.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_losing, encode, level
from jaxpool._kernels.dtypes import DType, Kind, index_dtype, is_float
from jaxpool._kernels.keep import keep
from jaxpool._kernels.keys import NaN, from_keys, to_keys

BYTE = 8  # bits of a word


def extreme(
    x: Array,
    axes: Sequence[int],
    kind: Kind,
    mask: Array | None = None,
    *,
    loses_nan: bool,
    ways: int = 1,
) -> Array:
    """The largest or smallest element; where none counts, the least or greatest value of the type.

    Where a platform's reduction `loses_nan`, a sum tells whether there is one, as sums do not lose it.
    With `ways` above 1 floats without a mask are folded instead.
    """
    if ways > 1 and mask is None:
        return _folded(x, axes, kind, ways)
    value = decode(x)
    fill = decoded_losing(x.dtype, kind)
    if mask is not None:
        value = lax.select(mask, value, lax.full_like(value, fill))

    def reduced(value: Array) -> Array:
        return lax.reduce(value, fill, lax.max if kind == "max" else lax.min, axes)

    def with_nan(value: Array) -> Array:
        y = reduced(value)
        found = lax.reduce(lax.ne(value, value), np.False_, lax.bitwise_or, axes)
        return lax.select(found, lax.full_like(y, np.nan), y)

    if loses_nan and is_float(value.dtype):
        total = lax.reduce(value, np.zeros((), value.dtype), lax.add, axes)
        y = lax.cond(jnp.any(lax.ne(total, total)), with_nan, reduced, value)
    else:
        y = reduced(value)
    return encode(lax.expand_dims(y, axes), x.dtype)


def _folded(x: Array, axes: Sequence[int], kind: Kind, ways: int) -> Array:
    """The extreme by keys: `ways` stretches of the longest axis are joined in one pass, and what is left is reduced.

    Reductions of XLA for CPU vectorise what lies in memory and not what they compute: the pass is kept apart.
    Stretches may overlap.
    """
    size, axis = max((x.shape[axis], axis) for axis in axes)
    length = -(-size // ways)
    firsts = sorted({min(first, size - length) for first in range(0, size, length)})
    nan: NaN = "greatest" if kind == "max" else "least"
    join = lax.max if kind == "max" else lax.min

    def joined(x: Array) -> Array:
        parts = [lax.slice_in_dim(x, first, first + length, axis=axis) for first in firsts]
        return functools.reduce(join, [to_keys(part, nan) for part in parts])

    keys = keep("conditional", joined, x)
    limits = np.iinfo(keys.dtype)
    fill = np.asarray(limits.min if kind == "max" else limits.max, keys.dtype)
    return from_keys(lax.expand_dims(lax.reduce(keys, fill, join, axes), axes), x.dtype)


def attained(x: Array, y: Array, mask: Array | None = None) -> Array:
    """Where an element that counts ties with the extreme y."""
    value, best = decode(x), decode(y)
    tied = level(value, jnp.broadcast_to(best, value.shape))
    return tied if mask is None else lax.bitwise_and(tied, mask)


# One index an output: the rank of the chosen element


def _ranks(like: Array, axes: Sequence[int], dtype: DType, last: bool) -> Array:
    """Row-major positions in the order of `axes`, counted from the end if `last`; sharded as `like`."""
    rank = lax.full_like(like, 0, dtype)
    for axis in axes:
        # 256 in a uint8 is 0, and so is what it scales.
        size = np.asarray(like.shape[axis]).astype(dtype)
        line = [1] * like.ndim
        line[axis] = like.shape[axis]
        step = lax.broadcasted_iota(dtype, line, axis)
        if last:
            step = lax.full_like(step, max(like.shape[axis] - 1, 0)) - step
        rank = rank * size + step
    return rank


def first_rank(tied: Array, axes: Sequence[int], last: bool, masked: bool) -> Array:
    """The least rank of a tied element; where no element is, the greatest value of the type."""
    sizes = tuple(tied.shape[axis] for axis in axes)
    count = math.prod(sizes) + masked
    if count > 2**32:
        rule = f"jaxpool: no uint32 holds the index of an extreme over axes of {sizes}"
        raise ValueError(f"{rule}. Reshape them and reduce twice, or pass ties='split'.")
    dtype = index_dtype(count)
    none = np.asarray(np.iinfo(dtype).max, dtype)
    rank = _ranks(tied, axes, dtype, last)
    chosen = lax.select(tied, rank, lax.full_like(rank, none))
    return lax.expand_dims(lax.reduce(chosen, none, lax.min, axes), axes)


def has_rank(rank: Array, shape: Sequence[int], axes: Sequence[int], last: bool) -> Array:
    """Where the element of that rank stands in an array of `shape`."""
    whole = jnp.broadcast_to(rank, shape)
    return lax.eq(_ranks(whole, axes, rank.dtype, last), whole)


# One bit an element: bit b of a byte belongs to block b of eight along an axis


def _blocks(size: int) -> list[tuple[int, int]]:
    """Where each block begins and ends; the last ones may be short or missing."""
    length = -(-size // BYTE)
    return [(first, min(first + length, size)) for first in range(0, size, max(length, 1))]


def _joined(bits: Array, axis: int, first: int, count: int) -> Array:
    """`count` blocks of one length side by side along `axis`, joined as bits from `first` on."""
    shape = (*bits.shape[:axis], count, bits.shape[axis] // count, *bits.shape[axis + 1 :])
    blocks = lax.reshape(bits, shape) if count > 1 else lax.expand_dims(bits, [axis])
    each = slices.along((1 << np.arange(first, first + count)).astype(np.uint8), axis, len(shape))
    words = lax.select(
        blocks, slices.broadcast_like(each, blocks), lax.full_like(blocks, 0, np.uint8)
    )
    return lax.reduce(words, np.uint8(0), lax.bitwise_or, (axis,))


def pack(bits: Array, axis: int) -> Array:
    """Booleans as bytes, an eighth as many along `axis`.

    Blocks of one length are joined by a reduction, in whose loop runs what makes the bits: a byte each, joined by one
    operation after another, takes XLA for CPU ten times as long. An axis that is sharded is not split.
    """
    if not (size := bits.shape[axis]):
        return bits.astype(np.uint8)
    length = -(-size // BYTE)
    whole = size // length
    counts = [1] * whole if slices.is_sharded(bits) else [whole]
    counts += [1] * (size > whole * length)
    words, first = [], 0
    for count in counts:
        end = min((first + count) * length, size)
        block = lax.slice_in_dim(bits, first * length, end, axis=axis)
        short = (first + count) * length - end
        word = _joined(block, axis, first, count)
        words.append(slices.pad(word, [axis], [(0, short, 0)], 0))
        first += count
    return functools.reduce(lax.bitwise_or, words)


def unpack(words: Array, size: int, axis: int) -> Array:
    """Undoes `pack` for `size` booleans along `axis`."""
    parts = []
    for bit, (first, end) in enumerate(_blocks(size)):
        block = lax.slice_in_dim(words, 0, end - first, axis=axis)
        found = lax.bitwise_and(block, lax.full_like(block, 1 << bit))
        parts.append(lax.ne(found, lax.full_like(found, 0)))
    return lax.concatenate(parts, axis) if parts else words.astype(np.bool_)
