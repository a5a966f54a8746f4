"""Windows of unequal length, pooled on a grid where they lie side by side, all of one length.

The grid of an array has its ragged axes in front, in their order, for that is how gathers are
written fastest; what comes of it goes back to its place with `from_front`. Which position lies
where on the grid is known before anything runs: both ways are gathers, neither scatters.
"""

from __future__ import annotations

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
from jaxpool._kernels.keep import keep
from jaxpool._kernels.patches import split_windows
from jaxpool._kernels.positions import flat_position
from jaxpool._kernels.select import select, select_value
from jaxpool._plan.adaptive_pool import AdaptivePlan, front, grid_window, ragged


def to_front(x: Array, window: Window) -> Array:
    """x with its ragged axes in front."""
    return lax.transpose(x, front(window, x.ndim))


def from_front(x: Array, window: Window) -> Array:
    """Undoes `to_front`."""
    return lax.transpose(x, [int(axis) for axis in np.argsort(front(window, x.ndim))])


def to_grid(x: Array, window: Window, fill: Any) -> Array:
    """x laid out on the grid; `fill` where a window is short."""
    value: Any = np.asarray(fill, x.dtype)[()]
    grid = to_front(x, window)
    for axis, dim in reversed(list(enumerate(ragged(window)))):
        grid = jnp.take(grid, dim.sources, axis, mode="fill", fill_value=value)
    return grid


def from_grid(grid: Array, window: Window, plan: AdaptivePlan) -> Array:
    """The transpose of `to_grid`: what lies on the grid several times is added up."""
    for axis, dim in enumerate(ragged(window)):
        read = functools.partial(
            jnp.take, axis=axis, mode="fill", unique_indices=True, fill_value=0
        )
        count = len(dim.places)
        if plan.one_by_one[axis]:
            grid = functools.reduce(lax.add, [read(grid, places) for places in dim.places])
        else:
            grid = read(grid, dim.places.T.reshape(-1))
            shape = (*grid.shape[:axis], dim.length, count, *grid.shape[axis + 1 :])
            grid = jnp.sum(lax.reshape(grid, shape), axis=axis + 1, dtype=grid.dtype)
    return from_front(grid, window)


# On the grid every window is a block of taps, and `window` is what `grid_window` gave.


def block_sum(grid: Array, window: Window) -> Array:
    """The sum over each window, in the type of the grid."""
    parted, taps = split_windows(grid, window)
    return jnp.sum(parted, axis=tuple(taps), dtype=grid.dtype)


def spread(y: Array, window: Window) -> Array:
    """The transpose of `block_sum`: each element of y at all taps of its window."""
    for dim in window.dims:
        y = slices.repeat(y, dim.axis, dim.window)
    return y


def _taps(window: Window, ndim: int, dtype: DType) -> Array:
    """The flat row-major tap of its window at each place of the grid, 1 along all other axes."""
    total = jnp.zeros((1,) * ndim, dtype)
    for i, dim in enumerate(window.dims):
        unit = math.prod(window.window_shape[i + 1 :])
        taps = np.tile(np.arange(dim.window) * unit, dim.out).astype(dtype)
        taps = slices.along(taps, dim.axis, ndim)
        shape = np.broadcast_shapes(total.shape, taps.shape)
        total = jnp.broadcast_to(total, shape) + jnp.broadcast_to(taps, shape)
    return total


def stands_at(tap: Array, window: Window) -> Array:
    """Where on the grid the chosen tap of each window is."""
    at = spread(tap, window)
    return lax.eq(at, jnp.broadcast_to(_taps(window, tap.ndim, tap.dtype), at.shape))


def held(window: Window, shape: Sequence[Any]) -> Array:
    """Where a grid of `shape` holds an element, and not what fills a short window."""
    total = jnp.ones(shape, np.bool_)
    for dim in window.dims:
        taps = np.arange(dim.window)
        inside = np.concatenate([taps <= dim.last_real(o) for o in range(dim.out)])
        row = jnp.broadcast_to(slices.along(inside, dim.axis, len(shape)), shape)
        total = lax.bitwise_and(total, row)
    return total


def extreme_value(grid: Array, window: Window, ties: Order, plan: AdaptivePlan) -> Array:
    """The maximum of each window."""
    if plan.max:
        return select_value(grid, "max", ties, plan.max)
    parted, taps = split_windows(grid, window)
    return lax.squeeze(reducing.extreme(parted, taps, "max"), taps)


def extreme(grid: Array, window: Window, ties: Order, plan: AdaptivePlan) -> tuple[Array, Array]:
    """The maximum of each window, and the flat tap at which it stands."""
    if plan.max:
        return select(grid, window, "max", ties, plan.max)
    y = keep(plan.keep, lambda grid: extreme_value(grid, window, ties, plan), grid)
    found, taps = split_windows(attained(grid, y, window), window)

    def chosen(last: bool) -> Array:
        rank = lax.squeeze(reducing.first_rank(found, taps, last, False), taps)
        return lax.full_like(rank, window.size - 1) - rank if last else rank

    if ties != "last_nan" or not is_float(y.dtype):
        return y, chosen(ties == "last")
    return y, lax.select(jnp.isnan(y), chosen(True), chosen(False))


def attained(grid: Array, y: Array, window: Window) -> Array:
    """Where an element of a window ties with its maximum."""
    return reducing.attained(grid, spread(y, window), held(window, grid.shape))


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
