"""Adaptive windows laid out with one axis of windows and one axis of taps for each pooled axis.

The windows have about equal length. Elements in several windows are repeated, and short windows are padded:

    axis        0 1 2 3 4            3 windows: [0 1] [1 2 3] [3 4]
    laid out    0 1 .  1 2 3  3 4 .

The positions depend only on the shapes, so both directions are slices or gathers, without scatters.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.adaptive import FloorDivisionTable, RaggedAxis
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order
from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.positions import quotient, ragged_bounds
from jaxpool._plan.program_length import constant_table, one_by_one
from jaxpool._plan.reduce import Fold


def _ascending(window: Window) -> list[Axis]:
    return sorted(window.dims, key=operator.attrgetter("axis"))


def tap_axes(window: Window) -> tuple[int, ...]:
    """Axes of the taps in the result of `lay_out`, in the order of the window's axes."""
    return tuple(axis + sorted(window.axes).index(axis) + 1 for axis in window.axes)


def laid_out(shape: Sequence[Any], window: Window) -> tuple[Any, ...]:
    """Shape of the result of `lay_out` for an array of `shape`."""
    for dim in reversed(_ascending(window)):
        shape = (*shape[: dim.axis], dim.out, dim.window, *shape[dim.axis + 1 :])
    return tuple(shape)


def split(x: Array, window: Window) -> Array:
    """Split each axis of adjacent windows into an axis of windows and an axis of taps.

    Each reshape splits one axis, because jax refuses to split several axes at once if the type has a sharding.
    """
    for dim in reversed(_ascending(window)):
        sizes = (dim.out, dim.window)
        x = lax.reshape(x, (*x.shape[: dim.axis], *sizes, *x.shape[dim.axis + 1 :]))
    return x


def lay_out(x: Array, window: Window, fill: Any) -> Array:
    """Lay out the windows of x, with `fill` for taps without an element. Linear in x if `fill` is 0."""
    value: Any = np.asarray(fill, x.dtype)[()]
    for dim in reversed(window.dims):  # first axis last: the largest gather copies rows
        if isinstance(dim, RaggedAxis):
            x = jnp.take(x, _sources(dim).reshape(-1), dim.axis, mode="fill", fill_value=value)
    return split(x, window)


def put_back(laid: Array, window: Window) -> Array:
    """Transpose of `lay_out`: add up all copies of each element."""
    for dim in _ascending(window):
        laid = lax.collapse(laid, dim.axis, dim.axis + 2)
        if not isinstance(dim, RaggedAxis):
            continue

        def read(places: Any, laid: Array = laid, axis: int = dim.axis) -> Array:
            return jnp.take(laid, places, axis, mode="fill", fill_value=0, unique_indices=True)

        if one_by_one(dim.sharers):
            laid = functools.reduce(lax.add, (read(row) for row in _places(dim)))
        else:
            places = _arrays(dim).stack(_places(dim), 1)
            laid = jnp.sum(read(places), axis=dim.axis + 1, dtype=laid.dtype)
    return laid


# Tables of positions: constants of the program, or computed by the program where constants would be long.


def _arrays(dim: Axis) -> Any:
    """NumPy, or jax.numpy for an axis whose tables are too long for constants."""
    return np if constant_table(max(dim.size, dim.out * dim.window)) else jnp


def _sources(dim: RaggedAxis) -> Any:
    """Position of each tap of each window, one row per window; `dim.size` for taps without an element."""
    xp = _arrays(dim)
    tap = xp.arange(dim.window, dtype=np.int32)
    start, last = ragged_bounds(dim, xp.arange(dim.out, dtype=np.int32)[:, None])
    return xp.where(tap <= last, start + tap, np.int32(dim.size))


def _places(dim: RaggedAxis) -> list[Any]:
    """Indices of all copies of each position among the taps of all windows, in the order of the windows.

    Each vector has one copy of every position. A position with fewer copies than vectors gets an index out of
    bounds, which is unique to the position.
    """
    xp = _arrays(dim)
    position = xp.arange(dim.size, dtype=np.int32)
    first = quotient(FloorDivisionTable(dim.size, dim.out, dim.size), position)
    places = []
    for later in range(dim.sharers):
        number = first + later
        start = quotient(FloorDivisionTable(dim.out + dim.sharers, dim.size, dim.out), number)
        holds = (number < dim.out) & (start <= position)
        place = number * dim.window + position - start
        places.append(xp.where(holds, place, np.int32(dim.out * dim.window) + position))
    return places


def real_taps(window: Window, ndim: int) -> Array:
    """Mask of the taps that hold elements, for adjacent windows; size 1 along batch axes."""
    lines = [
        _sources(dim).reshape(-1) < dim.size
        if isinstance(dim, RaggedAxis)
        else _arrays(dim).ones(dim.out * dim.window, bool)
        for dim in window.dims
    ]
    return slices.outer(jnp.logical_and, lines, window.axes, ndim)


def greatest(laid: Array, window: Window, *, loses_nan: bool, fold: Fold | None) -> Array:
    """Maximum of each window."""
    taps = tap_axes(window)
    return lax.squeeze(reducing.extreme(laid, taps, "max", loses_nan=loses_nan, fold=fold), taps)


def attained(laid: Array, y: Array, window: Window) -> Array:
    """Mask of the elements that tie with the maximum y of their window."""
    best, real = lax.expand_dims(y, tap_axes(window)), None
    if window.padded:
        real = slices.broadcast_like(split(real_taps(window, y.ndim), window), laid)
    return reducing.attained(laid, best, real)


def chosen_tap(laid: Array, y: Array, window: Window, ties: Order) -> Array:
    """Flat tap of the maximum y of each window.

    A reduction over the taps finds it, so the program size does not depend on the window.
    """
    tied, taps = attained(laid, y, window), tap_axes(window)

    def chosen(last: bool) -> Array:
        rank = lax.squeeze(reducing.first_rank(tied, taps, last, False), taps)
        return lax.full_like(rank, window.size - 1) - rank if last else rank

    if ties != "last_nan" or not is_float(y.dtype):
        return chosen(ties == "last")
    return lax.select(jnp.isnan(y), chosen(True), chosen(False))


def tap_mask(tap: Array, window: Window) -> Array:
    """Mask of the laid out windows that is True at the flat `tap` of each window."""
    taps = tap_axes(window)
    shape = laid_out(tap.shape, window)
    return reducing.has_rank(lax.expand_dims(tap, taps), shape, taps, False)
