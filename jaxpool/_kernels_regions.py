"""Padded windows over large arrays: the outputs that reach padding computed apart from those that do not.

Padding an array copies it, and padding each slice of it keeps the loops of XLA for CPU from
vectorising. Only the outputs along the border need padding: the rest read the array as it is, and
the pieces are put together in the output, the smaller of the two. That pays where channels are
last; where a padded axis is the minor one, a padded copy is faster.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax

from jaxpool import _kernels as kernels
from jaxpool._kernels import Term
from jaxpool._steps import flat_step
from jaxpool._window import Axis, Window, is_int

# Bytes from which a copy costs more than the longer program. The axes of a vmap are not seen.
LARGE = 1 << 18

Kernel = Callable[[Any, Window], Any]  # (one array or a tuple of them, window) -> likewise


def _inner(dim: Axis) -> tuple[int, int]:
    """The first output whose window reaches no padding, and the first after it whose window does."""
    first = -(-dim.low // dim.stride)
    return first, min(dim.out, (dim.size + dim.low - dim.span) // dim.stride + 1)


def _part(dim: Axis, first: int, stop: int) -> tuple[int, Axis]:
    """Outputs `first` to `stop` as an axis of their own, and the input position where that begins."""
    begin = first * dim.stride - dim.low
    end = (stop - 1) * dim.stride - dim.low + dim.span
    low, high = max(0, -begin), max(0, end - dim.size)
    size = min(end, dim.size) - max(begin, 0)
    own = dataclasses.replace(dim, size=size, low=low, high=high, out=stop - first)
    return max(begin, 0), own


def _static(x: Array) -> bool:
    return all(is_int(size) for size in x.shape)


def _narrow(x: Array, window: Window) -> bool:
    """Whether fewer than `WIDE` elements lie next to each other at each position of a padded axis."""
    return any(
        dim.padded and math.prod(x.shape[dim.axis + 1 :]) < kernels.WIDE for dim in window.dims
    )


def _worthwhile(x: Array, window: Window) -> bool:
    """Whether most windows of a large array reach no padding, and every window something real."""
    reached = [max(0, stop - first) for first, stop in map(_inner, window.dims)]
    return (
        window.padded
        and x.size * x.dtype.itemsize >= LARGE
        and 2 * math.prod(reached) > math.prod(window.output_shape)
        and all(dim.real(output) for dim in window.dims for output in (0, dim.out - 1))
    )


def by_regions(kernel: Kernel, arrays: Any, window: Window) -> Any:
    """`kernel(arrays, window)`, of the output's shape, without a padded copy of large arrays."""
    x = jax.tree.leaves(arrays)[0]
    if _static(x) and _worthwhile(x, window) and not _narrow(x, window):
        return _split(kernel, arrays, window, 0)
    return kernel(arrays, window)


def _split(kernel: Kernel, arrays: Any, window: Window, which: int) -> Any:
    """Splits pooled axes from `which` on: what reaches padding there is done, the rest goes to the next axis."""
    if which == len(window.dims):
        return kernel(arrays, window)
    dim = window.dims[which]
    first, stop = _inner(dim)
    parts = []
    for begin, end in ((0, first), (first, stop), (stop, dim.out)):
        if begin == end:
            continue
        start, own = _part(dim, begin, end)
        region = Window((*window.dims[:which], own, *window.dims[which + 1 :]))
        cut = [
            lax.slice_in_dim(array, start, start + own.size, axis=dim.axis)
            for array in jax.tree.leaves(arrays)
        ]
        cut = jax.tree.unflatten(jax.tree.structure(arrays), cut)
        if begin == first:
            parts.append(_split(kernel, cut, region, which + 1))
        else:
            parts.append(kernel(cut, region))
    return jax.tree.map(lambda *leaves: lax.concatenate(leaves, dim.axis), *parts)


def mirrored(window: Window) -> Window | None:
    """For windows one apart: the window over the output that holds all outputs an input position belongs to.

    Its taps stand in reverse order.
    """
    if any(dim.stride > 1 or dim.low > dim.span - 1 for dim in window.dims):
        return None
    return Window(
        tuple(
            dataclasses.replace(
                dim,
                size=dim.out,
                out=dim.size,
                low=dim.span - 1 - dim.low,
                high=max(0, dim.size + dim.low - dim.out),
            )
            for dim in window.dims
        )
    )


def collect(term: Term, arrays: tuple[Array, ...], window: Window, join: Term) -> Array:
    """The transpose of a pool in one step: `join` at each input position over what its windows send to it.

    `term(q, *arrays)` is what outputs send to their tap q. Without strides, a large array is read
    where it is, region by region, and a narrow one from a padded copy; else as `kernels.assemble`
    does it.
    """
    over = mirrored(window)
    x = arrays[0]
    if over is None or not _static(x) or not (_narrow(x, over) or _worthwhile(x, over)):
        return kernels.assemble(term, arrays, window.axes, flat_step(window), join)

    def kernel(arrays: tuple[Array, ...], own: Window) -> Array:
        wide = [kernels.pad_input(array, own, 0) for array in arrays]
        ones = [1] * len(own.dims)

        def sent(q: int, tap: tuple[int, ...]) -> Array:
            starts = [
                (dim.window - 1 - t) * dim.dilation for dim, t in zip(own.dims, tap, strict=True)
            ]
            return term(
                q, *[kernels.view(a, own.axes, starts, own.output_shape, ones) for a in wide]
            )

        return functools.reduce(join, [sent(q, tap) for q, tap in enumerate(own.taps())])

    return by_regions(kernel, arrays, over)
