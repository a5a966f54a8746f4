"""Windows laid out side by side: each pooled axis gets every window's taps, one window after another.

What overlapped is repeated, so that every element belongs to one window: a choice may then differ
from window to window, and where windows begin may be traced.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices


def tiling(axes: Sequence[int], window_shape: Sequence[int], outs: Sequence[int]) -> Window:
    """`outs` windows of `window_shape` that lie side by side along `axes`."""
    return Window(
        tuple(
            Axis(axis, out * width, width, width, 1, 0, 0, out)
            for axis, width, out in zip(axes, window_shape, outs, strict=True)
        )
    )


def tiles_of(window: Window) -> Window:
    """The windows of `window`, side by side: what `lay_out` makes."""
    return tiling(window.axes, window.window_shape, window.output_shape)


def _side_by_side(taps: Array, axis: int) -> Array:
    """Windows along `axis` and their taps along the axis after it, as one axis."""
    shape = list(taps.shape)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return lax.reshape(taps, shape)


def _taps(x: Array, dim: Axis) -> Array:
    """The taps of each window along an axis of padded x, on a new axis after it."""
    starts = [tap * dim.dilation for tap in range(dim.window)]
    taps = [slices.view(x, [dim.axis], [start], [dim.out], [dim.stride]) for start in starts]
    return jnp.stack(taps, axis=dim.axis + 1)


def lay_out(x: Array, window: Window, fill: Any) -> Array:
    """The windows of x side by side, `fill` in the padding; slices alone, and linear in x."""
    x = slices.pad_input(x, window, fill)
    for dim in window.dims:
        if dim.dilation > 1 or (dim.stride != dim.window and dim.out > 1):
            x = _side_by_side(_taps(x, dim), dim.axis)
    return x


def lay_out_at(
    x: Array, axes: Sequence[int], window_shape: Sequence[int], starts: Sequence[Array]
) -> Array:
    """The windows of x that begin at `starts`, side by side.

    `starts[i]` is an int32 array of the rank of x that holds the windows along `axes[i]`, 1 along
    the other pooled axes, and the size of x along all others.
    """
    for axis, width, start in zip(axes, window_shape, starts, strict=True):
        within = lax.broadcasted_iota(np.int32, (*start.shape[: axis + 1], width), axis + 1)
        within = lax.expand_dims(within, range(axis + 2, x.ndim + 1))
        at = _side_by_side(lax.expand_dims(start, (axis + 1,)) + within, axis)
        x = jnp.take_along_axis(x, at, axis=axis, mode="promise_in_bounds")
    return x


def split_windows(tiled: Array, tiles: Window) -> tuple[Array, tuple[int, ...]]:
    """What `lay_out` made with the taps on axes of their own, and which axes these are, in the order of the window's.

    An axis at a time: of a type that says how it is sharded, jax splits no more at once.
    """
    taps = {}
    for before, dim in enumerate(sorted(tiles.dims, key=operator.attrgetter("axis"))):
        at = dim.axis + before
        sizes = (tiled.shape[at] // dim.window, dim.window)
        tiled = lax.reshape(tiled, (*tiled.shape[:at], *sizes, *tiled.shape[at + 1 :]))
        taps[dim.axis] = at + 1
    return tiled, tuple(taps[axis] for axis in tiles.axes)


def first_greatest(tiled: Array, tiles: Window, *, loses_nan: bool) -> Array:
    """The flat tap of the greatest element of each window, the first of equal ones, NaN above all.

    A reduction over the taps, so the program does not grow with the window.
    """
    split, taps = split_windows(tiled, tiles)
    y = reducing.extreme(split, taps, "max", loses_nan=loses_nan)
    return lax.squeeze(reducing.first_rank(reducing.attained(split, y), taps, False, False), taps)


def element_at(tiled: Array, index: Array, tiles: Window) -> Array:
    """The element of each window at the flat tap `index`: linear in `tiled`."""
    split, taps = split_windows(tiled, tiles)
    here = reducing.has_rank(lax.expand_dims(index, taps), split.shape, taps, False)
    found = lax.select(here, split, lax.full_like(split, 0))
    return jnp.sum(found, axis=taps, dtype=split.dtype)
