"""Windowed selection: each window's maximum or minimum, and the flat row-major tap it stands at.

y[o], index[o] = max over taps t of (x[stride * o - low + dilation * t], t), the first t of equal ones
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order, Term, best, decode
from jaxpool._kernels.dtypes import DType, Kind, cast, index_dtype, losing
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import Grow, Source, carry_out
from jaxpool._kernels.positions import Numbers, int32_range
from jaxpool._kernels.reduce_window import group_extremes
from jaxpool._plan.max_pool import MaxPlan, Pass


def real_end(dim: Axis, *, last: bool) -> Numbers:
    """The first, or last, tap of each window along an axis that lies in the input; one for all without padding."""
    real = dim.last_real if last else dim.first_real
    return real(int32_range(dim.out if dim.padded else 1)).clip(0, dim.window - 1)


def first_taps(window: Window, ndim: int) -> Array:
    """The flat tap of each window at which the input begins."""
    return flat_tap([real_end(dim, last=False) for dim in window.dims], window, ndim)


def flat_tap(taps: Sequence[Any], window: Window, ndim: int) -> Array:
    """The flat tap of each window, from its tap along each axis; broadcastable to the output."""
    dtype = index_dtype(window.size)
    # A unit that does not fit the type belongs to an axis of one tap, which is 0.
    units = np.cumprod([1, *window.window_shape[:0:-1]])[::-1].astype(dtype)
    lines = [along.astype(dtype) * unit for along, unit in zip(taps, units, strict=True)]
    return slices.crossed(jnp.add, lines, window.axes, ndim)


def _seen_as(x: Array, dtype: DType) -> Array:
    """The bits of x as another type of their size."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def _step(
    pass_: Pass, kind: Kind, ties: Order, of: DType, *found: Array, index: bool, alone: bool
) -> tuple[Array, ...]:
    """The best piece at each output of a step, as it is held, and with `index` the flat tap it stands at.

    With `alone` a NaN is looked for in a chain of its own.
    """
    step, held = pass_.step, found[0].dtype
    dtype, fill = index_dtype(step.count), losing(of, kind).view(held)
    nan = np.asarray(np.nan, of).view(held) if alone else None
    arrays = [found[0], *(cast(tap, dtype) for tap in found[1:])]

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> Term:
        value = grow(parts[0], fill=fill)
        key = decode(_seen_as(value, of))
        if not index:
            return key, value
        at = lax.full_like(value, tap, dtype)
        return key, value, at + grow(parts[1], fill=0) if parts[1:] else at

    source = Source(arrays, [fill, 0][: len(arrays)], step.phases)
    joined = functools.partial(best, kind=kind, ties=ties, nan=nan)
    return carry_out(pass_.layout, step.axes, [source], term, joined)


def _select(x: Array, kind: Kind, ties: Order, plan: MaxPlan, *, index: bool) -> tuple[Array, ...]:
    """Each window's extreme, and with `index` the flat tap it stands at, padding counted."""
    alone = plan.nan == "alone"
    # As their bits: XLA for CPU widens slices of bfloat16, and where it selects a float16 it branches.
    held = jnp.uint16 if alone and x.dtype in (jnp.bfloat16, jnp.float16) else x.dtype
    found: tuple[Array, ...] = (_seen_as(x, held),)
    for pass_ in plan.forward:
        kernel = functools.partial(_step, pass_, kind, ties, x.dtype, index=index, alone=alone)
        last = pass_ is plan.forward[-1]
        found = kernel(*found) if last else materialise(plan.barrier, kernel, *found)
    return _seen_as(found[0], x.dtype), *found[1:]


def select_value(x: Array, kind: Kind, ties: Order, plan: MaxPlan) -> Array:
    """Each window's extreme alone."""
    if plan.value_by:
        return group_extremes(x, kind, plan.value_by)[-1]
    return _select(x, kind, ties, plan, index=False)[0]


def select(x: Array, window: Window, kind: Kind, ties: Order, plan: MaxPlan) -> tuple[Array, Array]:
    """Each window's extreme and the flat tap it stands at.

    Padding is the least value of the type, so it is chosen only in a window that holds nothing
    greater; the real elements of such a window all tie with it, and the index is moved to the first
    (or last) of those.
    """
    value, index = _select(x, kind, ties, plan, index=True)
    if window.padded:
        ends = [real_end(dim, last=ties == "last") for dim in window.dims]
        bound = flat_tap(ends, window, x.ndim)
        index = (jnp.minimum if ties == "last" else jnp.maximum)(index, bound)
    return value, index
