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
from jaxpool._kernels import slices


def put(
    scattered: Callable[..., Array],
    y: Array,
    position: Array,
    axes: Sequence[int],
    sizes: Sequence[int],
    own: Window | None,
) -> Array:
    """`scattered`, or if all elements lie in windows of their `own`, each repeated and compared with where it is."""
    if own is None:
        return scattered(y, position, axes, sizes)
    shape = own.unpooled(y.shape)

    # Flat, or XLA gives both branches the transposed layout that the scatter prefers.
    def dense(y: Array, position: Array) -> Array:
        wanted, value, here = position, y, np.zeros((1,) * y.ndim, np.int32)
        for dim in own.dims:
            wanted, value = (jnp.repeat(x, dim.window, dim.axis) for x in (wanted, value))
            line = slices.along(np.arange(dim.out * dim.window, dtype=np.int32), dim.axis, y.ndim)
            here = here * np.int32(dim.size) + line
        put = lax.select(
            wanted == jnp.broadcast_to(here, wanted.shape), value, lax.full_like(value, 0)
        )
        rest = [(0, dim.size - dim.out * dim.window, 0) for dim in own.dims]
        return lax.reshape(slices.pad(put, own.axes, rest, 0), (math.prod(shape),))

    def sparse(y: Array, position: Array) -> Array:
        return lax.reshape(scattered(y, position, axes, sizes), (math.prod(shape),))

    stay = _lie_in_own(position, own)
    return lax.reshape(lax.cond(stay, dense, sparse, y, position), shape)


def _lie_in_own(position: Array, own: Window) -> Array:
    """Whether every position lies in the window of its element."""
    inside, rest = lax.full_like(position, True, bool), position
    for dim in reversed(own.dims):
        first = np.arange(dim.out, dtype=np.int32) * np.int32(dim.stride)
        tap = rest % np.int32(dim.size) - slices.along(first, dim.axis, position.ndim)
        inside = inside & (tap >= 0) & (tap < dim.window)
        rest = rest // np.int32(dim.size)
    return jnp.all(inside & (rest == 0))
