"""Building blocks of the twins of `pools()`: the elements of each window along a new last axis, and its reductions.

A twin is plain jax.numpy code, so every mode and order of differentiation works. A twin expects finite floats, and its
derivative is correct without ties. A tap is an index in a window, and exists if it is inside the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing._windows import WindowPositions, Windows

Array = Any


def gather(x: Array, windows: Windows, where: Any = None) -> tuple[Array, Any]:
    """The elements of each window, and a mask of the taps that exist and are True in `where`; None selects all."""
    axes, positions = windows.axes, windows.element_positions
    values, tap_exists = gather_windows(x, axes, positions)
    if where is None:
        return values, tap_exists
    mask = jnp.broadcast_to(jnp.asarray(where), x.shape)
    return values, tap_exists & gather_windows(mask, axes, positions)[0]


def gather_windows(
    x: Array, axes: Sequence[int], window_positions_per_axis: WindowPositions
) -> tuple[Array, np.ndarray]:
    """The elements of each window along a new last axis, (..., taps), and a mask of the taps that exist."""
    ndim = x.ndim
    tap_exists = np.ones([1] * ndim, bool)
    for axis, positions in zip(axes, window_positions_per_axis, strict=True):
        taps = max(map(len, positions), default=1)
        padded_windows = [[*window, *[-1] * (taps - len(window))] for window in positions]
        index = np.array(padded_windows, int).reshape(len(positions), taps)
        elements = jnp.take(x, np.maximum(index, 0).ravel(), axis, mode="clip")
        x = jnp.moveaxis(
            elements.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), axis + 1, -1
        )
        mask_shape = [1] * tap_exists.ndim
        mask_shape[axis] = len(positions)
        tap_exists = tap_exists[..., None] & (index >= 0).reshape(*mask_shape, taps)
    taps = int(np.prod(x.shape[ndim:]))
    return x.reshape(*x.shape[:ndim], taps), tap_exists.reshape(*tap_exists.shape[:ndim], taps)


def max_over_taps(values: Array, tap_exists: Any) -> Array:
    """The maximum of each window."""
    return jnp.where(tap_exists, values, -np.inf).max(-1, initial=-np.inf)


def min_over_taps(values: Array, tap_exists: Any) -> Array:
    """The minimum of each window."""
    return jnp.where(tap_exists, values, np.inf).min(-1, initial=np.inf)


def sum_over_taps(values: Array, tap_exists: Any) -> Array:
    """The sum of each window."""
    return jnp.where(tap_exists, values, 0).sum(-1)


def mean_over_taps(values: Array, tap_exists: Any) -> Array:
    """The average of each window."""
    count = jnp.maximum(tap_exists.sum(-1), 1)
    return sum_over_taps(values, tap_exists) / count.astype(values.dtype)


def twin_of_windows(reduce_taps: Callable[..., Any]) -> Callable[..., Any]:
    """The twin that applies `reduce_taps` to the elements of each window."""

    def jnp_function(x: Any, windows: Windows, where: Any = None, keepdims: bool = True) -> Any:
        y = reduce_taps(*gather(x, windows, where))
        return y if keepdims else jnp.squeeze(y, windows.axes)

    return jnp_function


max_of_windows = twin_of_windows(max_over_taps)
min_of_windows = twin_of_windows(min_over_taps)
mean_of_windows = twin_of_windows(mean_over_taps)
sum_of_windows = twin_of_windows(sum_over_taps)


def max_of_windows_with_index(x: Any, windows: Windows, where: Any = None) -> tuple[Any, Any]:
    """The maximum of each window, and its flat position over the pooled axes."""
    values, tap_exists = gather(x, windows, where)
    y = max_over_taps(values, tap_exists)
    positions, _ = gather(flat_positions(windows.axes, windows.input_shape, x.ndim), windows)
    num_positions = math.prod(windows.input_shape)
    is_max = tap_exists & (values == y[..., None])
    indices = jnp.where(is_max, positions, num_positions).min(-1, initial=num_positions)
    return y, indices.astype(np.int32)


def flat_positions(axes: Sequence[int], sizes: Sequence[int], ndim: int) -> np.ndarray:
    """The flat index of each position along `axes`, in their order, as an array with size 1 along other axes."""
    positions = np.arange(math.prod(sizes)).reshape(sizes)
    shape = [1] * ndim
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return positions.transpose(np.argsort(axes)).reshape(shape)
