"""Building blocks of the twins of `pools()`: the elements of each window along a new last axis, and its reductions.

A twin is plain jax.numpy code, so every mode and order of differentiation works. A twin expects finite floats, and its
derivative is correct without ties. A tap is an index in a window, and exists if it is inside the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing._windows import WindowPositions, sliding_windows

Array = Any


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
        mask = _mask_along_axis(index >= 0, axis, ndim)
        ones = [1] * (tap_exists.ndim - ndim)
        tap_exists = tap_exists[..., None] & mask.reshape(*mask.shape[:ndim], *ones, taps)
    taps = int(np.prod(x.shape[ndim:]))
    return x.reshape(*x.shape[:ndim], taps), tap_exists.reshape(*tap_exists.shape[:ndim], taps)


def _mask_along_axis(mask: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A mask (outputs, taps) reshaped to `ndim` axes with the outputs along `axis`, and the taps last."""
    shape = [1] * ndim
    shape[axis] = len(mask)
    return mask.reshape(*shape, mask.shape[1])


def gather_pool_windows(
    x: Array, *geometry: Any, where: Any = None, **options: Any
) -> tuple[Array, Any]:
    """The elements of each window of a pool, and a mask of the taps that exist and are True in `where`."""
    windows = sliding_windows(x.shape, *geometry, **options)
    return gather_windows_where(x, where, windows.axes, windows.element_positions)


def gather_windows_where(
    x: Array, where: Any, axes: Sequence[int], window_positions_per_axis: WindowPositions
) -> tuple[Array, Any]:
    """`gather_windows`, with a mask of the taps that exist and are True in `where`; None selects all."""
    values, tap_exists = gather_windows(x, axes, window_positions_per_axis)
    if where is None:
        return values, tap_exists
    mask = jnp.broadcast_to(jnp.asarray(where), x.shape)
    return values, tap_exists & gather_windows(mask, axes, window_positions_per_axis)[0]


def select_by_index(
    values: Array, tap_exists: Any, argmax_or_argmin: Callable[..., Any], fill_value: float
) -> Array:
    """The element of each window that an argmax or argmin selects; `fill_value` replaces missing elements."""
    one_hot = jax.nn.one_hot(
        argmax_or_argmin(jnp.where(tap_exists, values, fill_value), -1),
        values.shape[-1],
        dtype=values.dtype,
    )
    return jnp.where(one_hot > 0, values, 0).sum(-1)


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
    return sum_over_taps(values, tap_exists) / jnp.maximum(tap_exists.sum(-1), 1).astype(
        values.dtype
    )
