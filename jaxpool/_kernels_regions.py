"""Padded windows over large arrays: the outputs that reach padding computed apart from those that do not.

Padding an array copies it, and padding each slice of it keeps the loops of XLA for CPU from
vectorising. Only the outputs along the border need padding: the rest read the array as it is, and
the pieces are put together in the output, the smaller of the two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax

from jaxpool._window import Axis, Window, is_int

LARGE = 1 << 20  # bytes from which a copy costs more than the longer program


def inner(dim: Axis) -> tuple[int, int]:
    """The first output whose window reaches no padding, and the first after it whose window does."""
    first = -(-dim.low // dim.stride)
    return first, min(dim.out, (dim.size + dim.low - dim.span) // dim.stride + 1)


def part(dim: Axis, first: int, stop: int) -> tuple[int, Axis]:
    """Outputs `first` to `stop` as an axis of their own, and the input position where that begins."""
    begin = first * dim.stride - dim.low
    end = (stop - 1) * dim.stride - dim.low + dim.span
    low, high = max(0, -begin), max(0, end - dim.size)
    size = min(end, dim.size) - max(begin, 0)
    own = dataclasses.replace(dim, size=size, low=low, high=high, out=stop - first)
    return max(begin, 0), own


def _worthwhile(x: Array, window: Window) -> bool:
    """Whether most windows of a large array reach no padding, and every window something real."""
    if not window.padded or not all(is_int(size) for size in x.shape):
        return False
    reached = [max(0, stop - first) for first, stop in map(inner, window.dims)]
    return (
        x.size * x.dtype.itemsize >= LARGE
        and 2 * math.prod(reached) > math.prod(window.output_shape)
        and all(dim.real(output) for dim in window.dims for output in (0, dim.out - 1))
    )


def by_regions(kernel: Callable[[Array, Window], Any], x: Array, window: Window) -> Any:
    """`kernel(x, window)`, an array or a tuple of arrays of the output's shape, without a padded copy of a large x."""
    return _split(kernel, x, window, 0) if _worthwhile(x, window) else kernel(x, window)


def _split(kernel: Callable[[Array, Window], Any], x: Array, window: Window, which: int) -> Any:
    """Splits pooled axes from `which` on: what reaches padding there is done, the rest goes to the next axis."""
    if which == len(window.dims):
        return kernel(x, window)
    dim = window.dims[which]
    first, stop = inner(dim)
    parts = []
    for begin, end in ((0, first), (first, stop), (stop, dim.out)):
        if begin == end:
            continue
        start, own = part(dim, begin, end)
        dims = (*window.dims[:which], own, *window.dims[which + 1 :])
        piece = lax.slice_in_dim(x, start, start + own.size, axis=dim.axis)
        if begin == first:
            parts.append(_split(kernel, piece, Window(dims), which + 1))
        else:
            parts.append(kernel(piece, Window(dims)))
    return jax.tree.map(lambda *leaves: lax.concatenate(leaves, dim.axis), *parts)
