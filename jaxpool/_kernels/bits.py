"""Booleans packed to one bit per element: an axis is cut into eight blocks, and bit b of a byte is from block b."""

import functools

import numpy as np
from jax import Array, lax

from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import scalar_like
from jaxpool._plan.problem import split_shape

BITS_PER_BYTE = 8


def _bit_block_bounds(axis_size: int) -> list[tuple[int, int]]:
    """Start and exclusive end of each of the eight blocks of an axis; the last blocks may be short or missing."""
    length = -(-axis_size // BITS_PER_BYTE)
    return [
        (start, min(start + length, axis_size)) for start in range(0, axis_size, max(length, 1))
    ]


def _pack_blocks(bits: Array, axis: int, first_bit: int, num_blocks: int) -> Array:
    """Pack `num_blocks` adjacent blocks of equal length along `axis` into bytes, as the bits from `first_bit` on."""
    if num_blocks > 1:
        sizes = num_blocks, bits.shape[axis] // num_blocks
        blocks = lax.reshape(bits, split_shape(bits.shape, [axis], [sizes]))
    else:
        blocks = lax.expand_dims(bits, [axis])
    values = (1 << np.arange(first_bit, first_bit + num_blocks)).astype(np.uint8)
    values = slices.reshape_along_axis(values, axis, blocks.ndim)
    words = slices.where_or_zero(blocks, slices.broadcast_like(values, blocks))
    # Words have no set bit in common, so their sum equals their bitwise or. XLA for CPU has no all-reduce of "or".
    return lax.reduce(words, np.uint8(0), lax.add, (axis,))


def pack_bits(bits: Array, axis: int) -> Array:
    """Pack booleans to bytes along `axis`.

    One reduction packs all blocks of equal length. XLA fuses the computation of the booleans into this reduction, so
    they are never stored as bytes. One operation per block, which sharded arrays need, takes ten times as long on CPU.
    """
    if not (blocks := _bit_block_bounds(bits.shape[axis])):
        return bits.astype(np.uint8)
    length = blocks[0][1]
    num_whole = bits.shape[axis] // length
    groups = [blocks[:num_whole], blocks[num_whole:]]
    if slices.is_sharded(bits):
        groups = [[block] for block in blocks]
    words, first_bit = [], 0
    for group in filter(None, groups):
        block = lax.slice_in_dim(bits, group[0][0], group[-1][1], axis=axis)
        word = _pack_blocks(block, axis, first_bit, len(group))
        words.append(slices.pad(word, [axis], [(0, length - word.shape[axis], 0)], 0))
        first_bit += len(group)
    return functools.reduce(lax.bitwise_or, words)


def unpack_bits(packed_bytes: Array, size: int, axis: int) -> Array:
    """Unpack the `size` booleans along `axis` that `pack_bits` packed to bytes."""
    parts = []
    for bit, (start, end) in enumerate(_bit_block_bounds(size)):
        block = lax.slice_in_dim(packed_bytes, 0, end - start, axis=axis)
        masked_bytes = lax.bitwise_and(block, scalar_like(block, 1 << bit))
        parts.append(lax.ne(masked_bytes, scalar_like(masked_bytes, 0)))
    return lax.concatenate(parts, axis) if parts else packed_bytes.astype(np.bool_)
