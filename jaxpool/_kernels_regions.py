"""Padded windows over large arrays: the outputs that reach padding computed apart from those that do not.

Padding an array copies it, and padding each slice of it keeps the loops of XLA for CPU from
vectorising. Only the outputs along the border need padding: the rest read the array as it is, and
the pieces are put together in the output, the smaller of the two. That pays where channels are
last; where a padded axis is the minor one, a padded copy is faster. Backwards likewise: the inputs
that lie in as many windows as there can be read cotangents where they are.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array, lax

from jaxpool import _kernels as kernels
from jaxpool._kernels_phases import Term, assemble
from jaxpool._steps import Step, flat_step
from jaxpool._window import Axis, Window, is_int

# Bytes from which a copy costs more than the longer program. The axes of a vmap are not seen.
LARGE = 1 << 18

Kernel = Callable[[Any, Window], Any]  # (one array or a tuple of them, window) -> likewise


class _Way(NamedTuple):
    """A direction through a window: from the input to the output, or back."""

    reads: Callable[[Axis], int]
    writes: Callable[[Axis], int]
    # Of an axis: the first of the positions written that read no padding, and the first after them.
    inner: Callable[[Axis], tuple[int, int]]
    # Positions `first` to `stop` as an axis of their own, and where what they read begins.
    part: Callable[[Axis, int, int], tuple[int, Axis]]


def _inner_outputs(dim: Axis) -> tuple[int, int]:
    first = -(-dim.low // dim.stride)
    return first, min(dim.out, (dim.size + dim.low - dim.span) // dim.stride + 1)


def _of_outputs(dim: Axis, first: int, stop: int) -> tuple[int, Axis]:
    begin = first * dim.stride - dim.low
    end = (stop - 1) * dim.stride - dim.low + dim.span
    low, high = max(0, -begin), max(0, end - dim.size)
    size = min(end, dim.size) - max(begin, 0)
    own = dataclasses.replace(dim, size=size, low=low, high=high, out=stop - first)
    return max(begin, 0), own


def _inner_inputs(dim: Axis) -> tuple[int, int]:
    """Whole strides of positions that lie in as many windows as there can be."""
    first = max(0, (dim.span - 1 - dim.low) // dim.stride)
    stop = min(dim.out + -dim.low // dim.stride, dim.size // dim.stride)
    return first * dim.stride, stop * dim.stride


def _of_inputs(dim: Axis, first: int, stop: int) -> tuple[int, Axis]:
    begin = max(0, -(-(first + dim.low - dim.span + 1) // dim.stride))
    end = min(dim.out, (stop - 1 + dim.low) // dim.stride + 1)
    low = first + dim.low - begin * dim.stride
    return begin, dataclasses.replace(dim, size=stop - first, low=low, out=end - begin)


_FORWARD = _Way(lambda dim: dim.size, lambda dim: dim.out, _inner_outputs, _of_outputs)
_BACKWARD = _Way(lambda dim: dim.out, lambda dim: dim.size, _inner_inputs, _of_inputs)


def _regions(dim: Axis, way: _Way) -> list[tuple[int, int]]:
    """The positions before the inner ones, these, and those after them; none that is empty."""
    first, stop = way.inner(dim)
    cuts = [(0, first), (first, stop), (stop, way.writes(dim))]
    return [cut for cut in cuts if cut[0] < cut[1]]


def _static(x: Array) -> bool:
    return all(is_int(size) for size in x.shape)


def _worthwhile(x: Array, window: Window, way: _Way) -> bool:
    """Whether most positions of a large array need no padding, some do, and each part has something to read.

    Where few elements lie next to each other at a position of an axis to be split, a padded copy is
    faster.
    """
    if not _static(x) or x.size * x.dtype.itemsize < LARGE:
        return False
    split = [(dim, cuts) for dim in window.dims if len(cuts := _regions(dim, way)) > 1]
    inner = [max(0, stop - first) for first, stop in map(way.inner, window.dims)]
    return (
        bool(split)
        and 2 * math.prod(inner) > math.prod(map(way.writes, window.dims))
        and all(math.prod(x.shape[dim.axis + 1 :]) >= kernels.WIDE for dim, _ in split)
        and all(way.reads(way.part(dim, *cut)[1]) > 0 for dim, cuts in split for cut in cuts)
    )


def by_regions(kernel: Kernel, arrays: Any, window: Window) -> Any:
    """`kernel(arrays, window)`, of the output's shape, without a padded copy of large arrays."""
    if _worthwhile(jax.tree.leaves(arrays)[0], window, _FORWARD):
        return _split(kernel, arrays, window, _FORWARD, 0)
    return kernel(arrays, window)


def step_by_regions(
    kernel: Callable[..., Any], arrays: Sequence[Any], axes: Sequence[int], step: Step
) -> Any:
    """`kernel(step, *arrays)`, likewise."""
    dims = []
    for which, axis in enumerate(axes):
        low, tail = step.sides[which]
        span = max(shift[which] for shift in step.shifts) + 1
        size, out = step.sizes[which] - low - tail, step.outs[which]
        dims.append(Axis(axis, size, span, step.strides[which], 1, low, max(tail, 0), out))

    def part(arrays: Sequence[Any], own: Window) -> Any:
        sides = tuple((dim.low, dim.tail) for dim in own.dims)
        sizes = tuple(dim.needed for dim in own.dims)
        own_step = dataclasses.replace(step, sizes=sizes, outs=own.output_shape, sides=sides)
        return kernel(own_step, *arrays)

    return by_regions(part, arrays, Window(tuple(dims)))


def _split(kernel: Kernel, arrays: Any, window: Window, way: _Way, which: int) -> Any:
    """Splits pooled axes from `which` on: the border there is done, what is inside goes to the next axis."""
    if which == len(window.dims):
        return kernel(arrays, window)
    dim = window.dims[which]
    inner = way.inner(dim)
    parts = []
    for cut in _regions(dim, way):
        start, own = way.part(dim, *cut)
        region = Window((*window.dims[:which], own, *window.dims[which + 1 :]))
        read = functools.partial(
            lax.slice_in_dim, start_index=start, limit_index=start + way.reads(own), axis=dim.axis
        )
        own_arrays = jax.tree.map(read, arrays)
        if cut == inner:
            parts.append(_split(kernel, own_arrays, region, way, which + 1))
        else:
            parts.append(kernel(own_arrays, region))
    return jax.tree.map(lambda *leaves: lax.concatenate(leaves, dim.axis), *parts)


def collect(term: Term, arrays: tuple[Array, ...], window: Window, join: Term) -> Array:
    """The transpose of a pool in one step: `join` at each input position over what its windows send to it.

    `term(q, *arrays)` is what outputs send to their tap q. Large arrays are read where they are,
    but at the border; with strides, terms padded one by one are as fast.
    """

    def kernel(arrays: tuple[Array, ...], own: Window) -> Array:
        return assemble(term, arrays, own.axes, flat_step(own), join)

    strided = any(dim.stride > 1 for dim in window.dims)
    if not strided and _worthwhile(arrays[0], window, _BACKWARD):
        return _split(kernel, arrays, window, _BACKWARD, 0)
    return kernel(arrays, window)
