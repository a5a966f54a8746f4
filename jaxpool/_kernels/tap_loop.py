"""Loops over the taps (offsets in a window), for the rare arrays whose window sums overflow or underflow.

Each window is summed relative to its largest element, from `max_per_window`. Every weight is then a power or an
exponential of at most 1:

    x              3   900    1    2 | 5    0   7  2
    maximum       900                  7
    exp(x - 900)   0     1    0    0 | 0.1  0   1  0

`sum_over_taps` sums terms over the taps of each window, and `sum_over_taps_transpose` is its transpose. The program
size does not depend on the number of taps. Each tap is a strided slice of the padded input, so a loop that does not run
costs nothing. `rolled.py` has loops that always run and first rearrange the arrays. Both modules use `tap_inside_mask`,
the mask of taps inside the input.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.positions import unravel_index

T = TypeVar("T")  # an array or a tuple of arrays


def max_per_window(x: Array, window: Window) -> Array:
    """The largest element of each window, with derivative 0, because window sums do not depend on this offset."""
    loop_window, whole_axes = _separate_whole_axes(window)
    padded = slices.pad_input(lax.stop_gradient(x), loop_window, -np.inf)
    y = _join_taps(loop_window, lambda tap: _elements_at_tap(padded, loop_window, tap), lax.max)
    return jnp.max(y, axis=whole_axes, keepdims=True)


def sum_over_taps(
    window: Window,
    terms_of_elements: Callable[..., tuple[Array, ...]],
    element_arrays: Sequence[Array],
    *mask: Array,
) -> tuple[Array, ...]:
    """Sums of `terms_of_elements(*element_arrays)` over each window, limited to elements where `mask` is True.

    The terms may read arrays in the shape of the output. The terms of 0, the value of padding, must be finite.
    """
    loop_window, whole_axes = _separate_whole_axes(window)
    padded = [slices.pad_input(array, loop_window, 0) for array in (*element_arrays, *mask)]

    def terms_at_tap(tap: Any) -> tuple[Array, ...]:
        elements = [_elements_at_tap(array, loop_window, tap) for array in padded]
        if not mask and not loop_window.is_padded:
            return terms_of_elements(*elements)
        is_inside = elements.pop() if mask else tap_inside_mask(loop_window, tap, elements[0].ndim)
        return tuple(jnp.where(is_inside, array, 0) for array in terms_of_elements(*elements))

    def add_terms(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(map(lax.add, left, right))

    totals = _join_taps(loop_window, terms_at_tap, add_terms)
    return tuple(jnp.sum(array, axis=whole_axes, keepdims=True) for array in totals)


def sum_over_taps_transpose(
    window: Window, slope_of_term: Callable[[Array], Array], x: Array, dy: Array
) -> Array:
    """Transpose of `sum_over_taps`: sum `slope_of_term(x) * dy` over the windows that cover each element of x."""
    loop_window, _ = _separate_whole_axes(window)
    padded = slices.pad_input(x, loop_window, 0)

    def cotangents_at_tap(tap: Any) -> Array:
        return _elements_at_tap_transpose(
            slope_of_term(_elements_at_tap(padded, loop_window, tap)) * dy, loop_window, tap
        )

    dx = _join_taps(loop_window, cotangents_at_tap, lax.add)
    cropped: Array = jax.linear_transpose(lambda x: slices.pad_input(x, loop_window, 0), x)(dx)[0]
    return cropped


def _separate_whole_axes(window: Window) -> tuple[Window, tuple[int, ...]]:
    """Split `window` into a window for the loop and the axes that a single window covers, which need no loop."""
    dims = tuple(dim for dim in window.dims if not dim.is_global)
    return Window(dims), tuple(dim.axis for dim in window.dims if dim.is_global)


def _join_taps(window: Window, value_at_tap: Callable[[Any], T], join: Callable[[T, T], T]) -> T:
    """Join `value_at_tap(tap)` over all flat (row-major) taps of `window`, one after another.

    The derivative recomputes the values: saved values would take memory even if the loop does not run.
    """
    init = value_at_tap(np.int32(0))
    if window.size == 1:
        return init

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def join_next_tap(tap: Array, y: T) -> T:
        return join(y, value_at_tap(tap.astype(np.int32)))

    y: T = lax.fori_loop(1, window.size, join_next_tap, init)
    return y


def _dynamic_slice_axes(x: Array, window: Window, starts: list[Any], sizes: list[int]) -> Array:
    begin: list[Any] = [np.int32(0)] * x.ndim
    size = list(x.shape)
    for axis, start, length in zip(window.axes, starts, sizes, strict=True):
        begin[axis], size[axis] = start, length
    return lax.dynamic_slice(x, begin, size)


def _elements_at_tap(padded_input: Array, window: Window, flat_tap: Any) -> Array:
    """Element of each window at `flat_tap`, which may be traced; `padded_input` comes from `slices.pad_input`."""
    dims = window.dims
    taps = unravel_index(flat_tap, window.window_shape)
    starts = [tap * np.int32(dim.dilation) for tap, dim in zip(taps, dims, strict=True)]
    lengths = [(dim.out - 1) * dim.stride + 1 for dim in dims]
    x = _dynamic_slice_axes(padded_input, window, starts, lengths)
    if all(dim.stride == 1 for dim in dims):
        return x
    strides = [dim.stride for dim in dims]
    return slices.strided_slice(x, window.axes, [0] * len(dims), window.output_shape, strides)


def _elements_at_tap_transpose(cotangents: Array, window: Window, flat_tap: Any) -> Array:
    """Transpose of `_elements_at_tap` by padding and slicing, without the scatter in jax's transpose of a slice."""
    dims = window.dims
    padding = [(dim.span - 1, dim.span - 1, dim.stride - 1) for dim in dims]
    taps = unravel_index(flat_tap, window.window_shape)
    starts = [
        np.int32(dim.span - 1) - tap * np.int32(dim.dilation)
        for tap, dim in zip(taps, dims, strict=True)
    ]
    wide = slices.pad(cotangents, window.axes, padding, 0)
    return _dynamic_slice_axes(wide, window, starts, [dim.covered_size for dim in dims])


def tap_inside_mask(window: Window, flat_tap: Any, ndim: int) -> Array:
    """Mask of the windows whose element at `flat_tap` is inside the input, of rank `ndim` with batch axes of size 1.

    The program computes the mask at run time, because a constant would be as long as the axes.
    """
    masks = []
    for dim, tap in zip(window.dims, unravel_index(flat_tap, window.window_shape), strict=True):
        shape = [dim.out if axis == dim.axis else 1 for axis in range(ndim)]
        i = lax.broadcasted_iota(np.int32, shape, dim.axis)
        position = i * np.int32(dim.stride) + (tap * np.int32(dim.dilation) - np.int32(dim.low))
        masks.append(jnp.logical_and(position >= 0, position < dim.size))
    return functools.reduce(jnp.logical_and, masks)
