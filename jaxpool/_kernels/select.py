"""Windowed selection: each window's maximum or minimum, and the flat row-major tap it stands at.

y[o], index[o] = max over taps t of (x[stride * o - low + dilation * t], t), the first t of equal ones
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Keys, Order, constant, narrow_keys
from jaxpool._kernels.cpu.keys import integer_keys
from jaxpool._kernels.dtypes import Kind, cast, index_dtype, losing
from jaxpool._kernels.keep import keep
from jaxpool._kernels.passes import Grow, Source, carry_out
from jaxpool._kernels.reduce_window import window_extreme
from jaxpool._plan.max_pool import MaxPlan, Pass


def _first_real(window: Window, ndim: int, ties: Order) -> Array | None:
    """The first (or last) flat tap of each window that is no padding, broadcastable to the output."""
    if not window.padded:
        return None
    bound = np.zeros((1,) * ndim, np.int64)
    for dim in window.dims:
        real = dim.last_real if ties == "last" else dim.first_real
        taps = [min(max(0, real(output)), dim.window - 1) for output in range(dim.out)]
        bound = bound * dim.window + slices.along(np.asarray(taps), dim.axis, ndim)
    return jnp.asarray(bound.astype(index_dtype(window.size)))


def _step(pass_: Pass, keys: Keys, fill: Any, *found: Array, index: bool) -> tuple[Array, ...]:
    """The best piece at each output of a step, and with `index` the flat tap it stands at."""
    step = pass_.step
    dtype = index_dtype(step.count)
    arrays = [found[0], *(cast(tap, dtype) for tap in found[1:])]

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> tuple[Array, ...]:
        value = grow(parts[0], fill=fill)
        if not index:
            return (value,)
        at = lax.full_like(value, tap, dtype)
        return value, at + grow(parts[1], fill=0) if parts[1:] else at

    def better(best: tuple[Array, ...], challenger: tuple[Array, ...]) -> tuple[Array, ...]:
        takes = keys.takes(challenger[0], best[0])
        return tuple(lax.select(takes, c, b) for c, b in zip(challenger, best, strict=True))

    source = Source(arrays, [fill, 0][: len(arrays)], step.phases)
    return carry_out(pass_.layout, step.axes, [source], term, better)


def _select(
    x: Array, kind: Kind, ties: Order, plan: MaxPlan, *, index: bool
) -> tuple[tuple[Array, ...], Keys]:
    """The keys of each window's extreme, and with `index` the flat tap it stands at, padding counted."""
    keys = (integer_keys if plan.keys == "integer" else narrow_keys)(x.dtype, kind, ties)
    fill = constant(keys.to, losing(x.dtype, kind))
    found: tuple[Array, ...] = (keys.to(x),)
    for pass_ in plan.forward:
        kernel = functools.partial(_step, pass_, keys, fill, index=index)
        last = pass_ is plan.forward[-1]
        found = kernel(*found) if last else keep(plan.keep, kernel, *found)
    return found, keys


def select_value(x: Array, kind: Kind, ties: Order, plan: MaxPlan) -> Array:
    """Each window's extreme alone."""
    if plan.value_by:
        return window_extreme(x, kind, plan.value_by)
    (value,), keys = _select(x, kind, ties, plan, index=False)
    return keys.back(value)


def select(x: Array, window: Window, kind: Kind, ties: Order, plan: MaxPlan) -> tuple[Array, Array]:
    """Each window's extreme and the flat tap it stands at.

    Padding is the least value of the type, so it is chosen only in a window that holds nothing
    greater; the real elements of such a window all tie with it, and the index is moved to the first
    (or last) of those.
    """
    (value, index), keys = _select(x, kind, ties, plan, index=True)
    bound = _first_real(window, x.ndim, ties)
    if bound is not None:
        index = (jnp.minimum if ties == "last" else jnp.maximum)(index, bound)
    return keys.back(value), index
