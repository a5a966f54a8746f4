"""Padding, slicing and interleaving along pooled axes: what every dense kernel is built from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import reshard

from jaxpool._geometry.window import Window

Sides = tuple[int, int, int]


def pad(x: Array, axes: Sequence[int], sides: Sequence[Sides], fill: Any) -> Array:
    """Pads `axes` of x by (low, high, interior) each; a negative side crops."""
    if not any(any(side) for side in sides):
        return x
    config = [(0, 0, 0)] * x.ndim
    for axis, side in zip(axes, sides, strict=True):
        config[axis] = side
    return lax.pad(x, jnp.asarray(fill, x.dtype), config)


def pad_input(x: Array, window: Window, fill: Any) -> Array:
    """x with the positions before and after it that the windows reach, cropped where they reach none."""
    return pad(x, window.axes, [(dim.low, dim.tail, 0) for dim in window.dims], fill)


def view(
    x: Array,
    axes: Sequence[int],
    starts: Sequence[int],
    outs: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """`outs` positions along each of `axes`, from `starts` on, `strides` apart."""
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, outs, strides, strict=True):
        begin[axis], end[axis], step[axis] = start, start + (out - 1) * stride + 1, stride
    return lax.slice(x, begin, end, step)


def tap_of(padded: Array, window: Window, flat: int) -> Array:
    """The element at the flat tap of each window, of an input that `pad_input` gave."""
    dims = window.dims
    starts = [tap * dim.dilation for tap, dim in zip(window.unravel(flat), dims, strict=True)]
    return view(padded, window.axes, starts, window.output_shape, [dim.stride for dim in dims])


def empty_along(x: Array, axes: Sequence[int]) -> Array:
    """x without any position along `axes`, sharded as x."""
    for axis in axes:
        x = lax.slice_in_dim(x, 0, 0, axis=axis)
    return x


def zeros_like(x: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Zeros of the type of x but for the sizes of `axes`, sharded as x."""
    return pad(empty_along(x, axes), axes, [(0, size, 0) for size in sizes], 0)


def interleave(
    parts: dict[tuple[int, ...], Array],
    axes: Sequence[int],
    counts: Sequence[int],
    order: Sequence[int],
) -> Array:
    """One array from those of the phases along each of `axes`, which take turns; axes in `order`.

    Where there are fewer than `counts`, the rest of a turn is zeros.
    """
    for which in order:
        rows: dict[tuple[int, ...], list[Array]] = {}
        for phases, part in parts.items():
            rows.setdefault((*phases[:which], 0, *phases[which + 1 :]), []).append(part)
        parts = {phases: _in_turn(row, axes[which], counts[which]) for phases, row in rows.items()}
    (whole,) = parts.values()
    return whole


def _in_turn(parts: list[Array], axis: int, count: int) -> Array:
    """Elements of each part in turn along an axis, and zeros until each turn is `count` long."""
    if count == 1:
        return parts[0]
    rest = (0, count - len(parts), 0)
    return merged(pad(jnp.stack(parts, axis + 1), [axis + 1], [rest], 0), axis)


def merged(x: Array, axis: int) -> Array:
    """x with `axis` and the one after it as one."""
    sizes = x.shape[axis : axis + 2]
    return lax.reshape(x, (*x.shape[:axis], sizes[0] * sizes[1], *x.shape[axis + 2 :]))


def along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """A vector as an array of rank `ndim` that lies along `axis`."""
    shape = [1] * ndim
    shape[axis] = len(values)
    return values.reshape(shape)


def broadcast_like(value: Any, like: Array) -> Array:
    """What broadcasts to the shape of `like`, in that shape and sharded as its type says."""
    whole = jnp.broadcast_to(jnp.asarray(value), like.shape)
    given, wanted = jax.typeof(whole).sharding, jax.typeof(like).sharding
    known = any(given.spec) or any(wanted.spec)
    return reshard(whole, wanted) if known and given.spec != wanted.spec else whole


def is_sharded(x: Array) -> bool:
    """Whether the type of x says that it is sharded; of a mesh whose axes XLA alone knows it does not."""
    return any(part for part in jax.typeof(x).sharding.spec)
