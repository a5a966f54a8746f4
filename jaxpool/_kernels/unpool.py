"""Elements put back where a pool found them: dense where each lies in a window of its own, else scattered.

What a pool of windows that do not meet has found stays in its window, and positions say so. That is
tested where the program runs: a scatter takes twice the time on CPU. Mapped positions are not
tested together, so `vmap` over them computes both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window, is_int
from jaxpool._kernels import dense as kernels
from jaxpool._kernels import positions as index
from jaxpool._kernels.route import route, route_by_steps
from jaxpool._kernels.select import Order
from jaxpool._plan.steps import LONGEST


def put_last(y: Array, position: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Elements of y at their position in zeros of `sizes`; the last of those that collide stays."""
    return _by_windows(route, index.put_last, y, position, axes, sizes)


def add_at(y: Array, position: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Likewise, but those that collide are added: linear in y, and written for the way jax transposes it."""
    return _by_windows(route_by_steps, index.add_at, y, position, axes, sizes)


def _by_windows(
    routed: Callable[[Array, Array, Window, Order], Array],
    scattered: Callable[..., Array],
    y: Array,
    position: Array,
    axes: Sequence[int],
    sizes: Sequence[int],
) -> Array:
    window = _own_windows(y, axes, sizes)
    sharded = kernels.is_sharded(y)
    if window is None or sharded:  # what is explicitly sharded cannot be made flat
        return scattered(y, position, axes, sizes)
    tap, own = _taps(position, window)
    shape = list(y.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size

    # Flat, or XLA gives both branches the transposed layout that the scatter prefers.
    def dense(y: Array, tap: Array, position: Array) -> Array:
        return lax.reshape(routed(y, tap, window, "first"), (math.prod(shape),))

    def sparse(y: Array, tap: Array, position: Array) -> Array:
        return lax.reshape(scattered(y, position, axes, sizes), (math.prod(shape),))

    return lax.reshape(lax.cond(own, dense, sparse, y, tap, position), shape)


def _own_windows(y: Array, axes: Sequence[int], sizes: Sequence[int]) -> Window | None:
    """Windows that do not meet, one an element of y, as large as `sizes` allow."""
    outs = [y.shape[axis] for axis in axes]
    if not all(map(is_int, y.shape)) or not all(
        0 < out <= size for out, size in zip(outs, sizes, strict=True)
    ):
        return None
    dims = []
    for axis, out, size in zip(axes, outs, sizes, strict=True):
        width = size // out
        dims.append(Axis(axis, size, width, width, 1, 0, 0, out))
    window = Window(tuple(dims))
    return window if window.size <= LONGEST else None


def _taps(position: Array, window: Window) -> tuple[Array, Array]:
    """The tap of its window that each position is, and whether all of them are."""
    rest, tap = position, lax.full_like(position, 0)
    own, unit = lax.full_like(position, True, bool), 1
    for dim in reversed(window.dims):
        size = lax.full_like(rest, dim.size)
        first = kernels.along(
            np.arange(dim.out, dtype=np.int32) * np.int32(dim.stride), dim.axis, tap.ndim
        )
        rest, along = lax.div(rest, size), lax.rem(rest, size) - first
        inside = lax.bitwise_and(
            lax.ge(along, lax.full_like(along, 0)), lax.lt(along, lax.full_like(along, dim.window))
        )
        own = lax.bitwise_and(own, inside)
        tap = tap + along * np.int32(unit)
        unit *= dim.window
    own = lax.bitwise_and(own, lax.eq(rest, lax.full_like(rest, 0)))
    return tap.astype(kernels.index_dtype(window.size)), jnp.all(own)
