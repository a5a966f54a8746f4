"""Maxima of windows without overlap, gaps or padding, by reductions over the taps of each window.

XLA for CPU reads slices at distances of a window one row at a time. Patches (`_kernels/patches.py`) of such windows are
reshapes, which copy nothing: (B, H, W, C) becomes (B, H / h, h, W / w, w, C), and the axes h and w are reduced.
"""

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import patches
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels.dtypes import Kind, TieOrder, accumulator_dtype, cast, scalar_like
from jaxpool._kernels.slices import where_or_zero
from jaxpool._plan.reduce import TilePlan


def select_value(x: Array, kind: Kind, plan: TilePlan) -> Array:
    """The maximum or minimum of each window."""
    tiles, axes = patches.split_adjacent_windows(x, plan.window), patches.tap_axes(plan.window)
    return lax.squeeze(reducing.max_or_min_over_axes(tiles, axes, kind, plan=plan.value), axes)


def select(x: Array, kind: Kind, ties: TieOrder, plan: TilePlan) -> tuple[Array, Array]:
    """The maximum or minimum of each window, and the flat tap of the first or last element with this value."""
    tiles, axes = patches.split_adjacent_windows(x, plan.window), patches.tap_axes(plan.window)
    y = reducing.max_or_min_over_axes(tiles, axes, kind, plan=plan.value)
    index = reducing.flat_index_of_extremum(tiles, y, axes, ties == "last", plan=plan.index)
    if ties == "last":  # the index counts from the end of the window
        index = lax.sub(scalar_like(index, plan.window.size - 1), index)
    return lax.squeeze(y, axes), lax.squeeze(index, axes)


def route(dy: Array, index: Array, window: Window) -> Array:
    """Each element of dy at the element that its window selected, and 0 at other elements."""
    is_selected = patches.one_hot_of_tap(index, window)
    tiles = jnp.broadcast_to(lax.expand_dims(dy, patches.tap_axes(window)), is_selected.shape)
    return patches.join_adjacent_windows(where_or_zero(is_selected, tiles), window)


def pick(x: Array, index: Array, window: Window) -> Array:
    """The element of x that each window selected."""
    tiles = patches.split_adjacent_windows(cast(x, accumulator_dtype(x.dtype)), window)
    selected = where_or_zero(patches.one_hot_of_tap(index, window), tiles)
    return cast(jnp.sum(selected, patches.tap_axes(window), dtype=tiles.dtype), x.dtype)
