"""Windows laid out side by side: each pooled axis gets every window's taps, one window after another.

What overlapped is repeated, so that every element belongs to one window: a choice may then differ
from window to window, and where windows begin may be traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool import _kernels as kernels
from jaxpool._window import Axis, Window


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


def lay_out(x: Array, window: Window, fill: Any) -> Array:
    """The windows of x side by side, `fill` in the padding; slices alone, and linear in x."""
    x = kernels.pad_input(x, window, fill)
    for dim in window.dims:
        if dim.stride == dim.window and dim.dilation == 1:
            continue
        starts = [tap * dim.dilation for tap in range(dim.window)]
        taps = [kernels.view(x, [dim.axis], [at], [dim.out], [dim.stride]) for at in starts]
        x = _side_by_side(jnp.stack(taps, axis=dim.axis + 1), dim.axis)
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
    """What `lay_out` made with the taps on axes of their own, and which axes these are."""
    shape: list[Any] = []
    taps = []
    widths = {dim.axis: dim.window for dim in tiles.dims}
    for axis, size in enumerate(tiled.shape):
        if axis in widths:
            shape += [size // widths[axis], widths[axis]]
            taps.append(len(shape) - 1)
        else:
            shape.append(size)
    return lax.reshape(tiled, shape), tuple(taps)
