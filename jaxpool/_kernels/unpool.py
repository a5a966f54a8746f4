"""Elements put back where a pool found them: dense where each lies in a window of its own, else scattered.

What a pool of windows that do not meet has found stays in its window, and positions say so. That is
tested where the program runs. Mapped positions are not tested together, so `vmap` over them
computes both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import positions, slices
from jaxpool._kernels.dtypes import index_dtype
from jaxpool._kernels.route import route
from jaxpool._plan.unpool import UnpoolPlan


def put_last(
    y: Array, position: Array, axes: Sequence[int], sizes: Sequence[int], plan: UnpoolPlan
) -> Array:
    """Elements of y at their position in zeros of `sizes`; the last of those that collide stays."""
    return _by_windows(positions.put_last, y, position, axes, sizes, plan)


def add_at(
    y: Array, position: Array, axes: Sequence[int], sizes: Sequence[int], plan: UnpoolPlan
) -> Array:
    """Likewise, but those that collide are added."""
    return _by_windows(positions.add_at, y, position, axes, sizes, plan)


def _by_windows(
    scattered: Callable[..., Array],
    y: Array,
    position: Array,
    axes: Sequence[int],
    sizes: Sequence[int],
    plan: UnpoolPlan,
) -> Array:
    if plan.window is None or plan.route is None:
        return scattered(y, position, axes, sizes)
    how, shape = plan.route, plan.window.unpooled(y.shape)
    tap, own = _taps(position, plan.window)

    # Flat, or XLA gives both branches the transposed layout that the scatter prefers.
    def dense(y: Array, tap: Array, position: Array) -> Array:
        return lax.reshape(route(y, tap, "first", how), (math.prod(shape),))

    def sparse(y: Array, tap: Array, position: Array) -> Array:
        return lax.reshape(scattered(y, position, axes, sizes), (math.prod(shape),))

    return lax.reshape(lax.cond(own, dense, sparse, y, tap, position), shape)


def _taps(position: Array, window: Window) -> tuple[Array, Array]:
    """The tap of its window that each position is, and whether all of them are."""
    rest, tap = position, lax.full_like(position, 0)
    own, unit = lax.full_like(position, True, bool), 1
    for dim in reversed(window.dims):
        size = lax.full_like(rest, dim.size)
        first = slices.along(
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
    return tap.astype(index_dtype(window.size)), jnp.all(own)
