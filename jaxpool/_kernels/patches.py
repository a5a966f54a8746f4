"""Windows laid out apart: the taps of each axis on an axis of their own, after that of its windows.

These are adaptive windows, of about equal length. What overlapped is repeated, so that every element belongs to one
window, and short windows are filled up:

    axis        0 1 2 3 4            3 windows: [0 1] [1 2 3] [3 4]
    laid out    0 1 .  1 2 3  3 4 .

Which position lies where is known before anything runs: both ways are slices or gathers, neither
scatters.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.adaptive import Floors, RaggedAxis
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order
from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.positions import quotient, ragged_bounds
from jaxpool._plan.others import Fold, constant_table, one_by_one


def _ascending(window: Window) -> list[Axis]:
    return sorted(window.dims, key=operator.attrgetter("axis"))


def tap_axes(window: Window) -> tuple[int, ...]:
    """Which axes hold the taps of what `lay_out` makes, in the order of the window's."""
    return tuple(axis + sorted(window.axes).index(axis) + 1 for axis in window.axes)


def laid_out(shape: Sequence[Any], window: Window) -> tuple[Any, ...]:
    """The shape of what `lay_out` makes of an array of `shape`."""
    for dim in reversed(_ascending(window)):
        shape = (*shape[: dim.axis], dim.out, dim.window, *shape[dim.axis + 1 :])
    return tuple(shape)


def split(x: Array, window: Window) -> Array:
    """Splits each axis along which windows lie side by side into one of windows and one of taps.

    One axis at a time: where a type says how an array is sharded, jax refuses to split several axes at once.
    """
    for dim in reversed(_ascending(window)):
        sizes = (dim.out, dim.window)
        x = lax.reshape(x, (*x.shape[: dim.axis], *sizes, *x.shape[dim.axis + 1 :]))
    return x


def lay_out(x: Array, window: Window, fill: Any) -> Array:
    """The windows of x, `fill` where they hold no element; linear in x."""
    value: Any = np.asarray(fill, x.dtype)[()]
    for dim in reversed(window.dims):  # the largest gather last, along the first axis: whole rows
        if isinstance(dim, RaggedAxis):
            x = jnp.take(x, _sources(dim).reshape(-1), dim.axis, mode="fill", fill_value=value)
    return split(x, window)


def put_back(laid: Array, window: Window) -> Array:
    """The transpose of `lay_out`: what lies there several times is added up."""
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


# Which element lies where: constants of the program, or where these would be long, computed by it.


def _arrays(dim: Axis) -> Any:
    """NumPy, or jax.numpy for an axis whose tables are too long for constants."""
    return np if constant_table(max(dim.size, dim.out * dim.window)) else jnp


def _numbers(xp: Any, dim: Axis) -> tuple[Any, Any]:
    """The numbers of windows, a row each, and of their taps, a column each."""
    return xp.arange(dim.out, dtype=np.int32), xp.arange(dim.window, dtype=np.int32)


def _sources(dim: RaggedAxis) -> Any:
    """The position of each tap of each window, a row per window; beyond the axis where a tap is not real."""
    xp = _arrays(dim)
    number, tap = _numbers(xp, dim)
    start, last = ragged_bounds(dim, number[:, None])
    return xp.where(tap <= last, start + tap, np.int32(dim.size))


def _places(dim: RaggedAxis) -> list[Any]:
    """The places of each position among all taps of all windows, in the order of the windows.

    As many vectors as the most places of any position. Where a position has fewer, a number beyond all
    taps, another for each position.
    """
    xp = _arrays(dim)
    position = xp.arange(dim.size, dtype=np.int32)
    first = quotient(Floors(dim.size, dim.out, dim.size), position)
    places = []
    for later in range(dim.sharers):
        number = first + later
        start = quotient(Floors(dim.out + dim.sharers, dim.size, dim.out), number)
        holds = (number < dim.out) & (start <= position)
        place = number * dim.window + position - start
        places.append(xp.where(holds, place, np.int32(dim.out * dim.window) + position))
    return places


def real_taps(window: Window, ndim: int) -> Array:
    """Where windows side by side hold elements; of size 1 along other axes."""
    lines = [_real(dim).reshape(-1) for dim in window.dims]
    return slices.crossed(jnp.logical_and, lines, window.axes, ndim)


def _real(dim: Axis) -> Any:
    """Which taps of an axis hold elements: a row per window."""
    xp = _arrays(dim)
    number, tap = _numbers(xp, dim)
    if not isinstance(dim, RaggedAxis):
        return xp.ones((dim.out, dim.window), bool)
    return tap <= ragged_bounds(dim, number[:, None])[1]


def greatest(laid: Array, window: Window, *, loses_nan: bool, fold: Fold | None) -> Array:
    """The maximum of each window."""
    taps = tap_axes(window)
    return lax.squeeze(reducing.extreme(laid, taps, "max", loses_nan=loses_nan, fold=fold), taps)


def attained(laid: Array, y: Array, window: Window) -> Array:
    """Where an element of a window ties with its maximum y."""
    best, real = lax.expand_dims(y, tap_axes(window)), None
    if window.padded:
        real = slices.broadcast_like(split(real_taps(window, y.ndim), window), laid)
    return reducing.attained(laid, best, real)


def chosen_tap(laid: Array, y: Array, window: Window, ties: Order) -> Array:
    """The flat tap at which the maximum y of each window stands.

    A reduction over the taps, so the program does not grow with the window.
    """
    tied, taps = attained(laid, y, window), tap_axes(window)

    def chosen(last: bool) -> Array:
        rank = lax.squeeze(reducing.first_rank(tied, taps, last, False), taps)
        return lax.full_like(rank, window.size - 1) - rank if last else rank

    if ties != "last_nan" or not is_float(y.dtype):
        return chosen(ties == "last")
    return lax.select(jnp.isnan(y), chosen(True), chosen(False))


def stands_at(tap: Array, window: Window) -> Array:
    """Where in what `lay_out` made the flat `tap` of each window is."""
    taps = tap_axes(window)
    shape = laid_out(tap.shape, window)
    return reducing.has_rank(lax.expand_dims(tap, taps), shape, taps, False)
