"""Loops over the taps of a window for the rare windows whose sums overflow or underflow.

The program is as long however many taps there are, and a tap is a slice with strides of the padded input: nothing is
laid out first, so a loop that does not run costs nothing. Loops that always run are `rolled.py`, which reads without
strides from planes that it lays out. Which tap lies in the array, `real_at`, is told here for both.

What belongs to windows is read by the elements as if each window were at its first tap.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices

T = TypeVar("T")  # an array, or some


def join_taps(window: Window, at_tap: Callable[[Any], T], join: Callable[[T, T], T]) -> T:
    """What `join` makes of `at_tap` of each flat tap, one after another."""
    first = at_tap(np.int32(0))
    if window.size == 1:
        return first

    def step(tap: Array, y: T) -> T:
        return join(y, at_tap(tap.astype(np.int32)))

    y: T = lax.fori_loop(1, window.size, step, first)
    return y


def added(ours: tuple[Array, ...], theirs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The sums of two tuples."""
    return tuple(map(lax.add, ours, theirs))


def along_axes(window: Window, flat: Any) -> list[Any]:
    """The tap along each axis of a flat row-major tap, which may be traced."""
    taps = []
    for dim in reversed(window.dims):
        size = np.int32(dim.window)
        taps.append(lax.rem(flat, size))
        flat = lax.div(flat, size)
    return taps[::-1]


def _cut(x: Array, window: Window, starts: list[Any], sizes: list[int]) -> Array:
    begin: list[Any] = [np.int32(0)] * x.ndim
    size = list(x.shape)
    for axis, start, length in zip(window.axes, starts, sizes, strict=True):
        begin[axis], size[axis] = start, length
    return lax.dynamic_slice(x, begin, size)


def element_at(padded: Array, window: Window, flat: Any) -> Array:
    """The element at the flat tap of each window, of an input that `slices.pad_input` gave."""
    dims = window.dims
    taps = along_axes(window, flat)
    starts = [tap * np.int32(dim.dilation) for tap, dim in zip(taps, dims, strict=True)]
    reach = [(dim.out - 1) * dim.stride + 1 for dim in dims]
    x = _cut(padded, window, starts, reach)
    if all(dim.stride == 1 for dim in dims):
        return x
    strides = [dim.stride for dim in dims]
    return slices.view(x, window.axes, [0] * len(dims), window.output_shape, strides)


def real_at(window: Window, flat: Any, ndim: int) -> Array:
    """Whether the flat tap of each window lies in the input: an array of `ndim` axes, of size 1 along others.

    The program computes it: of long axes a constant would be as long.
    """
    lines = []
    for dim, tap in zip(window.dims, along_axes(window, flat), strict=True):
        shape = [dim.out if axis == dim.axis else 1 for axis in range(ndim)]
        output = lax.broadcasted_iota(np.int32, shape, dim.axis)
        at = output * np.int32(dim.stride) + (tap * np.int32(dim.dilation) - np.int32(dim.low))
        lines.append(jnp.logical_and(at >= 0, at < dim.size))
    return functools.reduce(jnp.logical_and, lines)


def _around(dim: Axis) -> slices.Sides:
    """What stands around the windows of an axis where each is at the position of its first tap."""
    low = dim.span - 1 - dim.low
    return low, dim.size + dim.low - (dim.out - 1) * dim.stride - 1, dim.stride - 1


def pad_windows(y: Array, window: Window, fill: Any) -> Array:
    """What belongs to windows, where `window_at` reads it; `fill` where no window begins."""
    return slices.pad(y, window.axes, [*map(_around, window.dims)], fill)


def window_at(padded: Array, window: Window, flat: Any) -> Array:
    """What belongs to the window of which each element is the flat tap, of what `pad_windows` gave."""
    dims = window.dims
    taps = along_axes(window, flat)
    starts = [
        np.int32(dim.span - 1) - tap * np.int32(dim.dilation)
        for tap, dim in zip(taps, dims, strict=True)
    ]
    return _cut(padded, window, starts, [dim.size for dim in dims])
