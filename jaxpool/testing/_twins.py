"""What twins are made of: windows side by side along a new last axis, so that a pool is a formula along it.

A twin is plain jax.numpy, which jax differentiates by itself, in every mode and to every order: right wherever no two
elements of a window tie. It is written for finite floats, and slow.
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
    """The elements of each window along a new last axis, and which of them there are: (..., taps)."""
    ndim = x.ndim
    there = np.ones([1] * ndim, bool)
    for axis, own in zip(axes, lists, strict=True):
        taps = max(map(len, own), default=1)
        rows = [[*window, *[-1] * (taps - len(window))] for window in own]
        at = np.array(rows, int).reshape(len(own), taps)
        taken = jnp.take(x, np.maximum(at, 0).ravel(), axis, mode="clip")
        x = jnp.moveaxis(
            taken.reshape(*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]), axis + 1, -1
        )
        real = _placed(at >= 0, axis, ndim)
        behind = [1] * (there.ndim - ndim)
        there = there[..., None] & real.reshape(*real.shape[:ndim], *behind, taps)
    taps = int(np.prod(x.shape[ndim:]))
    return x.reshape(*x.shape[:ndim], taps), there.reshape(*there.shape[:ndim], taps)


def _placed(mask: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A mask (outputs, taps) of an axis among `ndim`, the taps behind."""
    shape = [1] * ndim
    shape[axis] = len(mask)
    return mask.reshape(*shape, mask.shape[1])


def windows(x: Array, *geometry: Any, where: Any = None, **options: Any) -> tuple[Array, Any]:
    """The elements of each window of a pool, and which of them exist and are True in `where`."""
    placed = sliding_windows(x.shape, *geometry, **options)
    return counted(x, where, placed.axes, placed.elements)


def counted(x: Array, where: Any, axes: Sequence[int], lists: Lists) -> tuple[Array, Any]:
    """The elements side by side, and which of them there are and `where` counts; None counts all."""
    values, there = side_by_side(x, axes, lists)
    if where is None:
        return values, there
    counts = jnp.broadcast_to(jnp.asarray(where), x.shape)
    return values, there & side_by_side(counts, axes, lists)[0]


def pick(values: Array, there: Any, best: Callable[..., Any], worst: float) -> Array:
    """The element of each window that is `best` of those that are there."""
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
