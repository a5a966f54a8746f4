"""Scans for GPUs: reduce the blocks of an axis to totals, scan the totals, then scan each block from its earlier total.

    1 2 0 | 1 3 1 | 0 2 1      totals 2 3 2, scanned 2 3 3, joined 1 2 2 | 2 3 3 | 3 3 3

The array is read twice and the result is written once. Each element joins the earlier elements of its block directly,
so that no scanned block is stored. Blocks are short, because every join takes instructions. All reads are gathers at
computed positions, as in `clamped.py`.
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
from jaxpool._kernels.positions import IntArray, int32_iota
from jaxpool._kernels.slices import materialise
from jaxpool._plan.scan import ScanPlan


def reduce_then_scan(
    join: Callable[..., Any],
    fill: ArrayLike | None,
    arrays: Sequence[Any],
    axis: int,
    plan: ScanPlan,
    *,
    reverse: bool = False,
    spacing: int = 1,
) -> Any:
    """`Scan.run` in blocks. The first of `arrays` and the result of `join` may be tuples of arrays.

    An element joins as many others as every element: elements outside its block are replaced by `fill`, or if `fill` is
    None, by the element itself, which must not change the result.
    """
    size = jax.tree.leaves(arrays)[0].shape[axis]
    length = plan.unrolled_length(size, spacing)
    num_totals = (size - 1) // length  # the last block needs no total
    first_reduced = size - num_totals * length if reverse else 0

    def read(x: Any, positions: Array, max_position: int) -> Any:
        """Elements at these positions, clamped to the axis."""
        positions = lax.clamp(np.int32(0), positions, np.int32(max_position))
        return jax.tree.map(lambda x: gather_along_axis(x, axis, positions), x)

    def reduce_blocks(*arrays: Any) -> list[Any]:
        def element_of_blocks(index: int) -> Any:
            start = first_reduced + index
            stop = first_reduced + num_totals * length
            return jax.tree.map(lambda x: lax.slice_in_dim(x, start, stop, length, axis), arrays)

        order = range(length) if reverse else range(length - 1, -1, -1)
        last, *shifted = [element_of_blocks(index) for index in order]
        offsets = [spacing * offset for offset in range(1, length)]
        return [join(*last, shifted=shifted, offsets=offsets), *last[1:]]

    def scan_totals(*totals: Any) -> Any:
        return reduce_then_scan(
            join, fill, totals, axis, plan, reverse=reverse, spacing=spacing * length
        )

    def replace_unless(is_earlier: IntArray, others: Sequence[Any]) -> list[Any]:
        """`others` where they precede the elements of `arrays`."""

        def select(x: Array, other: Array, fill: ArrayLike | None = None) -> Array:
            unchanged = x if fill is None else lax.full_like(x, fill)
            mask = lax.broadcast_in_dim(jnp.asarray(is_earlier), x.shape, (axis,))
            return lax.select(mask, other, unchanged)

        first = jax.tree.map(functools.partial(select, fill=fill), arrays[0], others[0])
        return [first, *map(select, arrays[1:], others[1:])]

    steps = int32_iota(size)[:: -1 if reverse else 1]
    steps_in_block = steps % np.int32(length)
    positions = lax.iota(np.int32, size)
    shifted: list[Any] = []
    offsets: list[Any] = []
    for offset in range(1, length):
        others = read(arrays, positions + np.int32(offset if reverse else -offset), size - 1)
        shifted.append(replace_unless(steps_in_block >= offset, others))
        offsets.append(spacing * offset)
    if num_totals:
        x_totals, *extra_totals = materialise(plan.barrier, reduce_blocks, *arrays)
        x_totals = materialise(plan.barrier, scan_totals, x_totals, *extra_totals)
        first = positions + np.int32(length - first_reduced if reverse else -length)
        previous = lax.div(first, np.int32(length))
        totals = read([x_totals, *extra_totals], previous, num_totals - 1)
        shifted.append(replace_unless(steps >= length, totals))
        ndim = jax.tree.leaves(arrays)[0].ndim
        distances = spacing * (steps_in_block + np.int32(1))
        offsets.append(slices.reshape_along_axis(distances, axis, ndim))
    return join(*arrays, shifted=shifted, offsets=offsets)
