"""Scans for GPUs: reduce the blocks of an axis to totals, scan the totals, then scan each block from its earlier total.

    1 2 0 | 1 3 1 | 0 2 1      totals 2 3, scanned 2 3, results 1 2 2 | 2 3 3 | 3 3 3

The array is read twice and the result is written once. Each element joins the earlier elements of its block directly,
so no scanned block is stored. Blocks are short, because every join takes instructions. The last pass gathers at clamped
positions, as in `clamped.py`: slices that both passes read would be stored in between.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._kernels import slices
from jaxpool._kernels.clamped import gather_along_axis
from jaxpool._kernels.dtypes import full_like
from jaxpool._kernels.positions import IntArray, int32_iota
from jaxpool._kernels.slices import materialise
from jaxpool._plan.scan import ScanPlan


def reduce_then_scan(
    join: Callable[..., Any],
    fill: ArrayLike | None,
    arrays: Sequence[Any],
    axis: int,
    plan: ScanPlan,
    block_length: int,
    *,
    reverse: bool = False,
    spacing: int = 1,
) -> Any:
    """`Scan.run` in blocks. The first of `arrays` and the result of `join` may be tuples of arrays.

    `join` gets `fill` in place of elements outside a block. If `fill` is None, it gets the first element of the block
    again, which must not change the result.
    """
    size = jax.tree.leaves(arrays)[0].shape[axis]
    length = min(size, block_length)
    num_totals = (size - 1) // length  # no block follows the last one, so its total is unused
    reduced_size = num_totals * length
    reduced_start = size - reduced_size if reverse else 0

    def reduce_blocks(*arrays: Any) -> list[Any]:
        def element_of_blocks(index: int) -> Any:
            start, stop = reduced_start + index, reduced_start + reduced_size
            return jax.tree.map(lambda x: lax.slice_in_dim(x, start, stop, length, axis), arrays)

        last_to_first = range(length) if reverse else range(length - 1, -1, -1)
        last, *shifted = map(element_of_blocks, last_to_first)
        offsets = [spacing * offset for offset in range(1, length)]
        return [join(*last, shifted=shifted, offsets=offsets), *last[1:]]

    def scan_totals(*totals: Any) -> Any:
        distance = spacing * length
        scan = functools.partial(reduce_then_scan, join, fill, totals, axis, plan)
        return scan(plan.totals_block_length, reverse=reverse, spacing=distance)

    def read(arrays: Any, positions: Array) -> Any:
        return jax.tree.map(lambda x: gather_along_axis(x, axis, positions), arrays)

    def select(is_earlier: IntArray, others: Any, replacements: Any) -> Any:
        """`others` where `is_earlier`, else `replacements`."""

        def select_leaf(x: Array, replacement: Array) -> Array:
            mask = lax.broadcast_in_dim(jnp.asarray(is_earlier), x.shape, (axis,))
            return lax.select(mask, x, replacement)

        return jax.tree.map(select_leaf, others, replacements)

    positions = lax.iota(np.int32, size)
    positions_in_block = lax.rem(
        np.int32(size - 1) - positions if reverse else positions, np.int32(length)
    )
    steps = int32_iota(size)[:: -1 if reverse else 1]  # masks are constants, as in `clamped.py`
    steps_in_block = steps % np.int32(length)
    filled = [] if fill is None else [full_like(arrays[0], fill), *arrays[1:]]
    shifted: list[Any] = []
    offsets: list[int | IntArray] = []
    for offset in range(1, length):
        if fill is None:
            distances = lax.min(positions_in_block, np.int32(offset))
            others = read(list(arrays), positions + distances if reverse else positions - distances)
        else:
            earlier = positions + np.int32(offset if reverse else -offset)
            others = read(list(arrays), lax.clamp(np.int32(0), earlier, np.int32(size - 1)))
            others = select(steps_in_block >= offset, others, filled)
        shifted.append(others)
        offsets.append(spacing * offset)
    if num_totals:
        x_totals, *extra_totals = materialise(plan.barrier, reduce_blocks, *arrays)
        x_totals = materialise(plan.barrier, scan_totals, x_totals, *extra_totals)
        to_earlier_block = np.int32(length - reduced_start if reverse else -length)
        blocks = lax.div(positions + to_earlier_block, np.int32(length))
        blocks = lax.clamp(np.int32(0), blocks, np.int32(num_totals - 1))
        earlier_totals = read([x_totals, *extra_totals], blocks)
        replacements = shifted[-1] if fill is None else filled
        shifted.append(select(steps >= length, earlier_totals, replacements))
        distances = np.int32(spacing) * (steps_in_block + np.int32(1))
        ndim = jax.tree.leaves(arrays)[0].ndim
        offsets.append(slices.reshape_along_axis(distances, axis, ndim))
    return join(*arrays, shifted=shifted, offsets=offsets)
