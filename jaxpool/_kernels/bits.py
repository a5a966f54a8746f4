"""Booleans packed to one bit per element: bit b of a byte belongs to block b of eight blocks along an axis."""

import functools

import numpy as np
from jax import Array, lax

from jaxpool._kernels import slices

BITS_PER_BYTE = 8  # bits per word


def _block_bounds(axis_size: int) -> list[tuple[int, int]]:
    """Start and exclusive end of each block; the last blocks may be short or missing."""
    length = -(-axis_size // BITS_PER_BYTE)
    return [
        (start, min(start + length, axis_size)) for start in range(0, axis_size, max(length, 1))
    ]


def _combine_blocks(bits: Array, axis: int, first_bit: int, num_blocks: int) -> Array:
    """Combine `num_blocks` adjacent blocks of one length along `axis` into bytes, as the bits from `first_bit` on."""
    shape = (
        *bits.shape[:axis],
        num_blocks,
        bits.shape[axis] // num_blocks,
        *bits.shape[axis + 1 :],
    )
    blocks = lax.reshape(bits, shape) if num_blocks > 1 else lax.expand_dims(bits, [axis])
    values = slices.reshape_along_axis(
        (1 << np.arange(first_bit, first_bit + num_blocks)).astype(np.uint8), axis, len(shape)
    )
    words = lax.select(
        blocks, slices.broadcast_like(values, blocks), lax.full_like(blocks, 0, np.uint8)
    )
    # The words share no bit, so a sum equals a bitwise or, which has no all-reduce on CPU.
    return lax.reduce(words, np.uint8(0), lax.add, (axis,))


def pack_bits(bits: Array, axis: int) -> Array:
    """Pack booleans to bytes along `axis`.

    A reduction combines the blocks of one length. XLA fuses the computation of the bits into it, so no platform stores
    a byte per element. One operation per block takes XLA for CPU ten times as long. A sharded axis is not reshaped.
    """
    if not (size := bits.shape[axis]):
        return bits.astype(np.uint8)
    length = -(-size // BITS_PER_BYTE)
    whole = size // length
    counts = [1] * whole if slices.is_sharded(bits) else [whole]
    counts += [1] * (size > whole * length)
    words, first = [], 0
    for count in counts:
        end = min((first + count) * length, size)
        block = lax.slice_in_dim(bits, first * length, end, axis=axis)
        short = (first + count) * length - end
        word = _combine_blocks(block, axis, first, count)
        words.append(slices.pad(word, [axis], [(0, short, 0)], 0))
        first += count
    return functools.reduce(lax.bitwise_or, words)


def unpack_bits(packed_bytes: Array, size: int, axis: int) -> Array:
    """Undo `pack_bits` for `size` booleans along `axis`."""
    parts = []
    for bit, (first, end) in enumerate(_block_bounds(size)):
        block = lax.slice_in_dim(packed_bytes, 0, end - first, axis=axis)
        masked = lax.bitwise_and(block, lax.full_like(block, 1 << bit))
        parts.append(lax.ne(masked, lax.full_like(masked, 0)))
    return lax.concatenate(parts, axis) if parts else packed_bytes.astype(np.bool_)
