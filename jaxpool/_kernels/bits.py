"""Booleans as bits, one per element: bit b of a byte belongs to block b of eight along an axis."""

import functools

import numpy as np
from jax import Array, lax

from jaxpool._kernels import slices

BYTE = 8  # bits of a word


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
    # The words share no bit, so adding joins them as "or" would, which has no all-reduce on CPU.
    return lax.reduce(words, np.uint8(0), lax.add, (axis,))


def pack(bits: Array, axis: int) -> Array:
    """Booleans as bytes, an eighth as many along `axis`.

    Blocks of one length are joined by a reduction, in whose loop runs what makes the bits, so that no byte per element
    is held on any platform: joined by one operation after another they take XLA for CPU ten times as long. An axis
    that is sharded is not split.
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
