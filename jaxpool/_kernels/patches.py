"""Patches of adaptive windows, with one axis of windows and one axis of taps for each pooled axis.

The windows have about equal length. Elements in several windows are repeated, and short windows are padded:

    axis        0 1 2 3 4            3 windows: [0 1] [1 2 3] [3 4]
    patches     0 1 .  1 2 3  3 4 .

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
from jaxpool._kernels.compare import TieOrder
from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.positions import ragged_window_bounds, scaled_floor_division
from jaxpool._plan.program_length import constant_table, one_by_one
from jaxpool._plan.reduce import Fold


def _dims_in_axis_order(window: Window) -> list[Axis]:
    return sorted(window.dims, key=operator.attrgetter("axis"))


def tap_axes(window: Window) -> tuple[int, ...]:
    """Axes of the taps in the patches, in the order of the window's axes."""
    return tuple(axis + sorted(window.axes).index(axis) + 1 for axis in window.axes)


def patches_shape(input_shape: Sequence[Any], window: Window) -> tuple[Any, ...]:
    """Shape of the patches of an array of `input_shape`."""
    for dim in reversed(_dims_in_axis_order(window)):
        input_shape = (*input_shape[: dim.axis], dim.out, dim.window, *input_shape[dim.axis + 1 :])
    return tuple(input_shape)


def split_adjacent_windows(x: Array, window: Window) -> Array:
    """Split each axis of adjacent windows into an axis of windows and an axis of taps.

    Each reshape splits one axis, because jax refuses to split several axes at once if the type has a sharding.
    """
    for dim in reversed(_dims_in_axis_order(window)):
        sizes = (dim.out, dim.window)
        x = lax.reshape(x, (*x.shape[: dim.axis], *sizes, *x.shape[dim.axis + 1 :]))
    return x


def extract_patches(x: Array, window: Window, fill: Any) -> Array:
    """Extract the windows of x, with `fill` for taps without an element. Linear in x if `fill` is 0."""
    value: Any = np.asarray(fill, x.dtype)[()]
    for dim in reversed(window.dims):  # first axis last: the largest gather copies rows
        if isinstance(dim, RaggedAxis):
            x = jnp.take(
                x,
                _input_positions_of_taps(dim).reshape(-1),
                dim.axis,
                mode="fill",
                fill_value=value,
            )
    return split_adjacent_windows(x, window)


def add_up_patches(patches: Array, window: Window) -> Array:
    """Transpose of `extract_patches`: add up all copies of each element."""
    for dim in _dims_in_axis_order(window):
        patches = lax.collapse(patches, dim.axis, dim.axis + 2)
        if not isinstance(dim, RaggedAxis):
            continue

        def read_copies(positions: Any, patches: Array = patches, axis: int = dim.axis) -> Array:
            return jnp.take(
                patches, positions, axis, mode="fill", fill_value=0, unique_indices=True
            )

        if one_by_one(dim.sharers):
            patches = functools.reduce(
                lax.add, (read_copies(row) for row in _patch_positions_of_copies(dim))
            )
        else:
            positions = _numpy_or_jax_numpy(dim).stack(_patch_positions_of_copies(dim), 1)
            patches = jnp.sum(read_copies(positions), axis=dim.axis + 1, dtype=patches.dtype)
    return patches


# Tables of positions: constants of the program, or computed by the program where constants would be long.


def _numpy_or_jax_numpy(dim: Axis) -> Any:
    """NumPy, or jax.numpy for an axis whose tables are too long for constants."""
    return np if constant_table(max(dim.size, dim.out * dim.window)) else jnp


def _input_positions_of_taps(dim: RaggedAxis) -> Any:
    """Position of each tap of each window, one row per window; `dim.size` for taps without an element."""
    xp = _numpy_or_jax_numpy(dim)
    tap = xp.arange(dim.window, dtype=np.int32)
    start, last = ragged_window_bounds(dim, xp.arange(dim.out, dtype=np.int32)[:, None])
    return xp.where(tap <= last, start + tap, np.int32(dim.size))


def _patch_positions_of_copies(dim: RaggedAxis) -> list[Any]:
    """Indices of all copies of each position among the taps of all windows, in the order of the windows.

    Each vector has one copy of every position. A position with fewer copies than vectors gets an index out of
    bounds, which is unique to the position.
    """
    xp = _numpy_or_jax_numpy(dim)
    position = xp.arange(dim.size, dtype=np.int32)
    first = scaled_floor_division(FloorDivisionTable(dim.size, dim.out, dim.size), position)
    places = []
    for later in range(dim.sharers):
        number = first + later
        start = scaled_floor_division(
            FloorDivisionTable(dim.out + dim.sharers, dim.size, dim.out), number
        )
        holds = (number < dim.out) & (start <= position)
        place = number * dim.window + position - start
        places.append(xp.where(holds, place, np.int32(dim.out * dim.window) + position))
    return places


def taps_inside_mask(window: Window, ndim: int) -> Array:
    """Mask of the taps that hold elements, for adjacent windows; size 1 along batch axes."""
    lines = [
        _input_positions_of_taps(dim).reshape(-1) < dim.size
        if isinstance(dim, RaggedAxis)
        else _numpy_or_jax_numpy(dim).ones(dim.out * dim.window, bool)
        for dim in window.dims
    ]
    return slices.outer_broadcast(jnp.logical_and, lines, window.axes, ndim)


def max_of_patches(
    patches: Array, window: Window, *, reduction_loses_nan: bool, fold_plan: Fold | None
) -> Array:
    """Maximum of each window."""
    taps = tap_axes(window)
    return lax.squeeze(
        reducing.max_or_min_over_axes(
            patches, taps, "max", reduction_loses_nan=reduction_loses_nan, fold_plan=fold_plan
        ),
        taps,
    )


def attains_max(patches: Array, y: Array, window: Window) -> Array:
    """Mask of the elements that tie with the maximum y of their window."""
    best, real = lax.expand_dims(y, tap_axes(window)), None
    if window.padded:
        real = slices.broadcast_like(
            split_adjacent_windows(taps_inside_mask(window, y.ndim), window), patches
        )
    return reducing.attains_extremum(patches, best, real)


def tap_of_max(patches: Array, y: Array, window: Window, ties: TieOrder) -> Array:
    """Flat tap of the maximum y of each window.

    A reduction over the taps finds it, so the program size does not depend on the window.
    """
    tied, taps = attains_max(patches, y, window), tap_axes(window)

    def first_or_last_tap(take_last: bool) -> Array:
        rank = lax.squeeze(reducing.first_tied_flat_index(tied, taps, take_last, False), taps)
        return lax.full_like(rank, window.size - 1) - rank if take_last else rank

    if ties != "last_nan" or not is_float(y.dtype):
        return first_or_last_tap(ties == "last")
    return lax.select(jnp.isnan(y), first_or_last_tap(True), first_or_last_tap(False))


def one_hot_of_tap(tap: Array, window: Window) -> Array:
    """Mask of the patches that is True at the flat `tap` of each window."""
    taps = tap_axes(window)
    shape = patches_shape(tap.shape, window)
    return reducing.one_hot_of_flat_index(lax.expand_dims(tap, taps), shape, taps, False)
