"""Windows of unequal length, pooled on a grid where they lie side by side, all of one length.

    axis            0 1 2 3 4          3 windows: [0 1] [1 2 3] [3 4]
    grid            0 1 .  1 2 3  3 4 .

The grid of an array has its ragged axes in front, in their order, for that is how gathers are
written fastest; what comes of it goes back to its place with `from_front`. Which position lies
where on the grid is known before anything runs: both ways are gathers, neither scatters. On the
grid every window is a block of taps, which is reduced.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order
from jaxpool._kernels.dtypes import DType, is_float
from jaxpool._kernels.patches import split_windows
from jaxpool._kernels.positions import flat_position
from jaxpool._plan.adaptive_pool import one_by_one


def _ragged(window: Window) -> list[RaggedAxis]:
    return [dim for dim in window.dims if isinstance(dim, RaggedAxis)]


def _front(window: Window, ndim: int) -> list[int]:
    """The axes of an array, ragged ones first."""
    first = [dim.axis for dim in _ragged(window)]
    return first + [axis for axis in range(ndim) if axis not in first]


def to_front(x: Array, window: Window) -> Array:
    """x with its ragged axes in front."""
    return lax.transpose(x, _front(window, x.ndim))


def from_front(x: Array, window: Window) -> Array:
    """Undoes `to_front`."""
    return lax.transpose(x, [int(axis) for axis in np.argsort(_front(window, x.ndim))])


def grid_window(window: Window, ndim: int) -> Window:
    """The windows as they lie on the grid of an array of rank `ndim`."""
    front = _front(window, ndim)
    dims = [dataclasses.replace(dim, axis=front.index(dim.axis)) for dim in window.dims]
    return Window(tuple(dims))


def to_grid(x: Array, window: Window, fill: Any) -> Array:
    """x laid out on the grid; `fill` where a window is short."""
    value: Any = np.asarray(fill, x.dtype)[()]
    grid = to_front(x, window)
    for axis, dim in reversed(list(enumerate(_ragged(window)))):
        grid = jnp.take(grid, dim.sources, axis, mode="fill", fill_value=value)
    return grid


def from_grid(grid: Array, window: Window) -> Array:
    """The transpose of `to_grid`: what lies on the grid several times is added up."""
    for axis, dim in enumerate(_ragged(window)):

        def read(grid: Array, places: np.ndarray, axis: int = axis) -> Array:
            return jnp.take(grid, places, axis, mode="fill", unique_indices=True, fill_value=0)

        count = len(dim.places)
        if one_by_one(count):
            grid = functools.reduce(lax.add, [read(grid, places) for places in dim.places])
        else:
            grid = read(grid, dim.places.T.reshape(-1))
            shape = (*grid.shape[:axis], dim.length, count, *grid.shape[axis + 1 :])
            grid = jnp.sum(lax.reshape(grid, shape), axis=axis + 1, dtype=grid.dtype)
    return from_front(grid, window)


# Below, `window` is what `grid_window` gave.


def block_sum(grid: Array, window: Window) -> Array:
    """The sum over each window, in the type of the grid."""
    parted, taps = split_windows(grid, window)
    return jnp.sum(parted, axis=tuple(taps), dtype=grid.dtype)


def spread(y: Array, window: Window) -> Array:
    """The transpose of `block_sum`: each element of y at all taps of its window."""
    for dim in window.dims:
        y = slices.repeat(y, dim.axis, dim.window)
    return y


def _taps(window: Window, shape: Sequence[Any], dtype: DType) -> Array:
    """The flat row-major tap of its window at each place of a grid of `shape`."""
    total = jnp.zeros(shape, dtype)
    for i, dim in enumerate(window.dims):
        unit = math.prod(window.window_shape[i + 1 :])
        taps = np.tile(np.arange(dim.window) * unit, dim.out).astype(dtype)
        total = total + jnp.broadcast_to(slices.along(taps, dim.axis, len(shape)), shape)
    return total


def stands_at(tap: Array, window: Window) -> Array:
    """Where on the grid the chosen tap of each window is."""
    at = spread(tap, window)
    return lax.eq(at, slices.broadcast_like(_taps(window, at.shape, tap.dtype), at))


def _held(window: Window, shape: Sequence[Any]) -> Array:
    """Where a grid of `shape` holds an element, and not what fills a short window."""
    total = jnp.ones(shape, np.bool_)
    for dim in window.dims:
        taps = np.arange(dim.window)
        inside = np.concatenate([taps <= dim.last_real(o) for o in range(dim.out)])
        row = jnp.broadcast_to(slices.along(inside, dim.axis, len(shape)), shape)
        total = lax.bitwise_and(total, row)
    return total


def attained(grid: Array, y: Array, window: Window) -> Array:
    """Where an element of a window ties with its maximum."""
    held = slices.broadcast_like(_held(window, grid.shape), grid)
    return reducing.attained(grid, spread(y, window), held)


def extreme_value(grid: Array, window: Window, *, loses_nan: bool) -> Array:
    """The maximum of each window."""
    parted, taps = split_windows(grid, window)
    return lax.squeeze(reducing.extreme(parted, taps, "max", loses_nan=loses_nan), taps)


def extreme(grid: Array, y: Array, window: Window, ties: Order) -> Array:
    """The flat tap at which the maximum y of each window stands."""
    found, taps = split_windows(attained(grid, y, window), window)

    def chosen(last: bool) -> Array:
        rank = lax.squeeze(reducing.first_rank(found, taps, last, False), taps)
        return lax.full_like(rank, window.size - 1) - rank if last else rank

    if ties != "last_nan" or not is_float(y.dtype):
        return chosen(ties == "last")
    return lax.select(jnp.isnan(y), chosen(True), chosen(False))


@functools.partial(jax.jit, static_argnums=1)
def adaptive_position(tap: Array, window: Window) -> Array:
    """Where the chosen `tap` of each window on the grid of `window` lies in the input."""
    placed = grid_window(window, tap.ndim)
    starts, sizes = [], []
    for dim in placed.dims:
        if isinstance(dim, RaggedAxis):
            first, size = [dim.start(o) for o in range(dim.out)], dim.length
        else:
            first, size = [o * dim.stride for o in range(dim.out)], dim.size
        starts.append(slices.along(np.asarray(first, np.int32), dim.axis, tap.ndim))
        sizes.append(size)
    ones = (1,) * len(sizes)
    position = flat_position(tap, placed.axes, placed.window_shape, starts, ones, sizes)
    return from_front(position, window)
