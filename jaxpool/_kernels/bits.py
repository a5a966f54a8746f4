"""Booleans packed to one bit per element: bit b of a byte belongs to block b of eight blocks along an axis."""

import functools

import numpy as np
from jax import Array, lax

from jaxpool._kernels import slices

BYTE = 8  # bits per word


def _blocks(size: int) -> list[tuple[int, int]]:
    """Start and exclusive end of each block; the last blocks may be short or missing."""
    length = -(-size // BYTE)
    return [(first, min(first + length, size)) for first in range(0, size, max(length, 1))]


def _joined(bits: Array, axis: int, first: int, count: int) -> Array:
    """Combine `count` adjacent blocks of one length along `axis` to words, as the bits from `first` on."""
    shape = (*bits.shape[:axis], count, bits.shape[axis] // count, *bits.shape[axis + 1 :])
    blocks = lax.reshape(bits, shape) if count > 1 else lax.expand_dims(bits, [axis])
    values = slices.along((1 << np.arange(first, first + count)).astype(np.uint8), axis, len(shape))
    words = lax.select(
        blocks, slices.broadcast_like(values, blocks), lax.full_like(blocks, 0, np.uint8)
    )
    # The words share no bit, so a sum equals a bitwise or, which has no all-reduce on CPU.
    return lax.reduce(words, np.uint8(0), lax.add, (axis,))


def pack(bits: Array, axis: int) -> Array:
    """Pack booleans to bytes along `axis`.

    A reduction combines the blocks of one length. XLA fuses the computation of the bits into it, so no platform stores
    a byte per element. One operation per block takes XLA for CPU ten times as long. A sharded axis is not reshaped.
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
    """Undo `pack` for `size` booleans along `axis`."""
    parts = []
    for bit, (first, end) in enumerate(_blocks(size)):
        block = lax.slice_in_dim(words, 0, end - first, axis=axis)
        masked = lax.bitwise_and(block, lax.full_like(block, 1 << bit))
        parts.append(lax.ne(masked, lax.full_like(masked, 0)))
    return lax.concatenate(parts, axis) if parts else words.astype(np.bool_)
