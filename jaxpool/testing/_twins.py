"""Building blocks of twins: the elements of each window along a new last axis, and reductions over that axis.

A twin is a pool in plain jax.numpy without custom derivatives, so it can be differentiated in every mode and to
every order. Its derivative is correct if no elements of a window tie. Twins are slow and expect finite floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing._windows import Lists, sliding_windows

Array = Any


def side_by_side(x: Array, axes: Sequence[int], lists: Lists) -> tuple[Array, np.ndarray]:
    """The elements of each window along a new last axis, (..., taps), and a mask of the taps that exist."""
    ndim = x.ndim
    exists = np.ones([1] * ndim, bool)
    for axis, positions in zip(axes, lists, strict=True):
        taps = max(map(len, positions), default=1)
        rows = [[*window, *[-1] * (taps - len(window))] for window in positions]
        index = np.array(rows, int).reshape(len(positions), taps)
        elements = jnp.take(x, np.maximum(index, 0).ravel(), axis, mode="clip")
        x = jnp.moveaxis(
            elements.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), axis + 1, -1
        )
        valid = _placed(index >= 0, axis, ndim)
        trailing = [1] * (exists.ndim - ndim)
        exists = exists[..., None] & valid.reshape(*valid.shape[:ndim], *trailing, taps)
    taps = int(np.prod(x.shape[ndim:]))
    return x.reshape(*x.shape[:ndim], taps), exists.reshape(*exists.shape[:ndim], taps)


def _placed(mask: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A mask (outputs, taps) reshaped to `ndim` axes with the outputs along `axis`, and the taps last."""
    shape = [1] * ndim
    shape[axis] = len(mask)
    return mask.reshape(*shape, mask.shape[1])


def windows(x: Array, *geometry: Any, where: Any = None, **options: Any) -> tuple[Array, Any]:
    """The elements of each window of a pool, and a mask of the taps that exist and are True in `where`."""
    layout = sliding_windows(x.shape, *geometry, **options)
    return counted(x, where, layout.axes, layout.elements)


def counted(x: Array, where: Any, axes: Sequence[int], lists: Lists) -> tuple[Array, Any]:
    """`side_by_side`, with a mask of the taps that exist and are True in `where`; None selects all."""
    values, exists = side_by_side(x, axes, lists)
    if where is None:
        return values, exists
    counts = jnp.broadcast_to(jnp.asarray(where), x.shape)
    return values, exists & side_by_side(counts, axes, lists)[0]


def pick(values: Array, there: Any, best: Callable[..., Any], worst: float) -> Array:
    """The element of each window selected by `best` (argmax or argmin), with `worst` for missing elements."""
    at = jax.nn.one_hot(
        best(jnp.where(there, values, worst), -1), values.shape[-1], dtype=values.dtype
    )
    return jnp.where(at > 0, values, 0).sum(-1)


def largest(values: Array, there: Any) -> Array:
    """The maximum of each window."""
    return jnp.where(there, values, -np.inf).max(-1, initial=-np.inf)


def smallest(values: Array, there: Any) -> Array:
    """The minimum of each window."""
    return jnp.where(there, values, np.inf).min(-1, initial=np.inf)


def total(values: Array, there: Any) -> Array:
    """The sum of each window."""
    return jnp.where(there, values, 0).sum(-1)


def mean(values: Array, there: Any) -> Array:
    """The average of each window."""
    return total(values, there) / jnp.maximum(there.sum(-1), 1).astype(values.dtype)
