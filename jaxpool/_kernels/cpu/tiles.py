"""Maximum of windows that tile an array, by reductions instead of passes.

Each pooled axis is split into an axis of windows and an axis of taps (positions in the window). A reduction over the
axes of taps is faster than slices at distances of a window, which XLA for CPU reads one row at a time:

    (B, H, W, C) -> (B, H / h, h, W / w, w, C), reduced over h and w

The index is that of `_kernels/select.py`, the flat tap of the selected element.
"""

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import reduce as reducing
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import Kind, TieOrder, accumulator_dtype, cast, scalar_like
from jaxpool._plan.max_pool import TilePlan


def select(
    x: Array, kind: Kind, ties: TieOrder, plan: TilePlan, *, with_index: bool
) -> tuple[Array, ...]:
    """The maximum or minimum of each window, and with `with_index` its flat tap."""
    axes = slices.new_axes(plan.window.axes)
    tiles = lax.reshape(x, _tiled_shape(x.shape, plan.window))
    y = reducing.max_or_min_over_axes(tiles, axes, kind, plan=plan.value)
    if not with_index:
        return (lax.squeeze(y, axes),)
    is_last = ties == "last"
    index = reducing.flat_index_of_extremum(tiles, y, axes, is_last, plan=plan.index)
    if is_last:  # counted from the end of the window
        index = lax.sub(scalar_like(index, plan.window.size - 1), index)
    return lax.squeeze(y, axes), lax.squeeze(index, axes)


def route(dy: Array, index: Array, window: Window) -> Array:
    """Each element of dy at the element that its window selected, and 0 at other elements."""
    shape = window.unpooled_shape(dy.shape)
    is_selected, axes = _is_selected(index, window, shape)
    tiles = jnp.broadcast_to(lax.expand_dims(dy, axes), is_selected.shape)
    return lax.reshape(slices.where_or_zero(is_selected, tiles), shape)


def pick(x: Array, index: Array, window: Window) -> Array:
    """The element of x that each window selected."""
    is_selected, axes = _is_selected(index, window, x.shape)
    tiles = lax.reshape(cast(x, accumulator_dtype(x.dtype)), is_selected.shape)
    y = jnp.sum(slices.where_or_zero(is_selected, tiles), axes, dtype=tiles.dtype)
    return cast(y, x.dtype)


def _is_selected(index: Array, window: Window, shape: slices.Ints) -> tuple[Array, tuple[int, ...]]:
    """The mask of the elements of an array of `shape` that windows selected, as tiles, and the axes of taps."""
    axes = slices.new_axes(window.axes)
    tap = lax.expand_dims(index, axes)
    return reducing.one_hot_of_flat_index(tap, _tiled_shape(shape, window), axes, False), axes


def _tiled_shape(shape: slices.Ints, window: Window) -> tuple[int, ...]:
    sizes = [*zip(window.output_shape, window.window_shape, strict=True)]
    return slices.split_shape(shape, window.axes, sizes)
