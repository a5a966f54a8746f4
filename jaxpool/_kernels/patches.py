"""Patches of windows, with one axis of windows and one axis of taps for each pooled axis.

Adaptive windows have about equal lengths. Elements in several windows are repeated, and short windows are padded:

    axis        0 1 2 3 4            3 windows: [0 1] [1 2 3] [3 4]
    patches     0 1 .  1 2 3  3 4 .

The positions depend only on the shapes, so extraction and its transpose are reshapes or gathers, without scatters.
"""

import functools
import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import AdaptiveAxis, AdaptiveWindow, Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import TieOrder, is_float, scalar_like
from jaxpool._kernels.positions import (
    IntArray,
    flat_position_of_tap,
    int32_iota,
    module_for_table,
    scaled_floor_division,
)
from jaxpool._plan.problem import new_axes, split_shape

AnyWindow = Window | AdaptiveWindow


def tap_axes(window: AnyWindow) -> tuple[int, ...]:
    """Axes of the patches that hold the taps of a window, in the order of `window.axes`."""
    return new_axes(window.axes)


def patches_shape(input_shape: Sequence[int], window: AnyWindow) -> tuple[int, ...]:
    """Shape of the patches of an array of `input_shape`."""
    sizes = [(dim.out, dim.window) for dim in window.dims]
    return split_shape(input_shape, window.axes, sizes)


def split_adjacent_windows(x: Array, window: AnyWindow) -> Array:
    """Split each axis of adjacent windows into an axis of windows and an axis of taps.

    Each reshape splits one axis, because jax refuses to split several axes at once if the type of x has a sharding.
    """
    sizes = zip(window.axes, window.output_shape, window.window_shape, strict=True)
    for axis, out, length in sorted(sizes, reverse=True):
        x = lax.reshape(x, split_shape(x.shape, [axis], [(out, length)]))
    return x


def join_adjacent_windows(patches: Array, window: AnyWindow) -> Array:
    """Invert `split_adjacent_windows`."""
    for axis in sorted(window.axes):
        patches = lax.collapse(patches, axis, axis + 2)
    return patches


def extract_patches(x: Array, window: AdaptiveWindow, fill: ArrayLike) -> Array:
    """Extract the windows of x, with `fill` for taps without an element. The map is linear in x if `fill` is 0."""
    v: Any = np.asarray(fill, x.dtype)[()]
    for dim in reversed(window.dims):  # first axis last, so that the largest gather copies rows
        if dim.is_padded:
            x = jnp.take(x, _tap_positions(dim).reshape(-1), dim.axis, mode="fill", fill_value=v)
    return split_adjacent_windows(x, window)


def add_up_patches(patches: Array, window: AdaptiveWindow, gathered_axes: Sequence[int]) -> Array:
    """Transpose of `extract_patches`: add up all copies of each element, along `gathered_axes` one by one."""
    for dim in sorted(window.dims, key=operator.attrgetter("axis")):
        patches = lax.collapse(patches, dim.axis, dim.axis + 2)
        if not dim.is_padded:
            continue
        read_copies = functools.partial(
            jnp.take, patches, axis=dim.axis, mode="fill", fill_value=0, unique_indices=True
        )
        if dim.axis in gathered_axes:
            patches = functools.reduce(lax.add, map(read_copies, _indices_of_copies(dim)))
        else:
            indices = _module_for_tables(dim).stack(_indices_of_copies(dim), 1)
            patches = jnp.sum(read_copies(indices), axis=dim.axis + 1, dtype=patches.dtype)
    return patches


# Tables of positions are constants of the program, or are computed by the program where constants would be long.


def _module_for_tables(dim: AdaptiveAxis) -> ModuleType:
    return module_for_table(max(dim.size, dim.out * dim.window))


def window_starts_and_lengths(dim: AdaptiveAxis) -> tuple[IntArray, IntArray]:
    """Start position and number of elements of each window along an axis."""
    windows, fraction = int32_iota(dim.out), (dim.out + 1, dim.size, dim.out)
    start = scaled_floor_division(windows, *fraction)
    return start, scaled_floor_division(windows + 1, *fraction, dim.out - 1) - start


def element_counts(window: AdaptiveWindow, y: Array) -> Array:
    """The number of elements of each window in the dtype of y; a scalar if no axis is padded."""
    if not window.is_padded:
        return jnp.asarray(window.size, y.dtype)
    counts = [window_starts_and_lengths(dim)[1].astype(y.dtype) for dim in window.dims]
    return slices.outer_broadcast(jnp.multiply, counts, window.axes, y.ndim)


@functools.partial(jax.jit, static_argnums=1)
def position_of_tap(flat_tap: Array, window: AdaptiveWindow) -> Array:
    """Position in the input of the element at `flat_tap`, whose axes are permuted to put padded axes first."""
    ndim, starts = flat_tap.ndim, [window_starts_and_lengths(dim)[0] for dim in window.dims]
    flat_tap = lax.transpose(flat_tap, window.padded_axes_first(ndim)[1])
    pairs = zip(starts, window.axes, strict=True)
    starts = [slices.reshape_along_axis(start, axis, ndim) for start, axis in pairs]
    return flat_position_of_tap(flat_tap, window, starts)


def _tap_positions(dim: AdaptiveAxis) -> IntArray:
    """Position of each tap of each window, one row per window; `dim.size` for taps without an element."""
    xp = _module_for_tables(dim)
    tap = xp.arange(dim.window, dtype=np.int32)
    start, length = (xp.expand_dims(each, 1) for each in window_starts_and_lengths(dim))
    return xp.where(tap < length, start + tap, np.int32(dim.size))


def _indices_of_copies(dim: AdaptiveAxis) -> list[IntArray]:
    """Indices of all copies of each input position among the taps of all windows along an axis.

    Vector k of the list holds the index of copy k of every position, in the order of the windows. For a position with
    fewer copies, the index is out of bounds and differs from the index of every other position.
    """
    xp = _module_for_tables(dim)
    position = xp.arange(dim.size, dtype=np.int32)
    first_window = scaled_floor_division(position, dim.size, dim.out, dim.size)
    indices = []
    for offset in range(dim.max_overlap):
        window_index = first_window + offset
        num_values = dim.out + dim.max_overlap
        start = scaled_floor_division(window_index, num_values, dim.size, dim.out)
        exists = (window_index < dim.out) & (start <= position)
        index = window_index * dim.window + position - start
        indices.append(xp.where(exists, index, np.int32(dim.out * dim.window) + position))
    return indices


def taps_inside_mask(window: AdaptiveWindow, ndim: int) -> Array:
    """Mask of the taps that hold elements, as before `split_adjacent_windows`, with size 1 along batch axes."""
    masks = [_tap_positions(dim).reshape(-1) < dim.size for dim in window.dims]
    return slices.outer_broadcast(jnp.logical_and, masks, window.axes, ndim)


def attains_max(patches: Array, y: Array, window: AdaptiveWindow) -> Array:
    """Mask of the elements of `patches` that tie with the maximum y of their window."""
    maximum, mask = lax.expand_dims(y, tap_axes(window)), None
    if window.is_padded:
        mask = split_adjacent_windows(taps_inside_mask(window, y.ndim), window)
        mask = slices.broadcast_like(mask, patches)
    return reducing.attains_extremum(patches, maximum, mask)


def tap_of_max(patches: Array, y: Array, window: AdaptiveWindow, ties: TieOrder) -> Array:
    """Flat (row-major) tap of the maximum y of each window."""
    tied, axes = attains_max(patches, y, window), tap_axes(window)

    def first_or_last_tap(take_last: bool) -> Array:
        index = lax.squeeze(reducing.first_tied_flat_index(tied, axes, take_last, False), axes)
        return lax.sub(scalar_like(index, window.size - 1), index) if take_last else index

    if ties != "last_nan" or not is_float(y.dtype):
        return first_or_last_tap(ties == "last")
    return lax.select(jnp.isnan(y), first_or_last_tap(True), first_or_last_tap(False))


def one_hot_of_tap(tap: Array, window: AnyWindow) -> Array:
    """Mask in the shape of the patches that is True at the flat (row-major) `tap` of each window."""
    axes = tap_axes(window)
    shape = patches_shape(tap.shape, window)
    return reducing.one_hot_of_flat_index(lax.expand_dims(tap, axes), shape, axes, False)
