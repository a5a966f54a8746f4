"""Windowed selection: the maximum or minimum of each window, and its flat row-major tap.

y[o], index[o] = max over taps t of (x[stride * o - low + dilation * t], t), the first t if tied
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
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    cast,
    from_words,
    identity_of,
    index_dtype,
    to_words,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import Grow, Source, carry_out
from jaxpool._kernels.positions import Numbers, int32_range
from jaxpool._kernels.reduce_window import group_extremes
from jaxpool._plan.max_pool import MaxPlan, Pass


def real_end(dim: Axis, *, last: bool) -> Numbers:
    """First or last tap inside the input for each window along an axis; a single entry if there is no padding."""
    real = dim.last_tap_inside if last else dim.first_tap_inside
    return real(int32_range(dim.out if dim.padded else 1)).clip(0, dim.window - 1)


def first_taps(window: Window, ndim: int) -> Array:
    """Flat tap of the first element inside the input for each window."""
    return flat_tap([real_end(dim, last=False) for dim in window.dims], window, ndim)


def flat_tap(taps: Sequence[Any], window: Window, ndim: int) -> Array:
    """Flat tap of each window from the taps along each axis; broadcastable to the output."""
    dtype = index_dtype(window.size)
    # A unit overflows the dtype only along an axis of one tap, whose tap is 0.
    units = np.cumprod([1, *window.window_shape[:0:-1]])[::-1].astype(dtype)
    lines = [along.astype(dtype) * unit for along, unit in zip(taps, units, strict=True)]
    return slices.outer(jnp.add, lines, window.axes, ndim)


def _step(
    pass_: Pass, kind: Kind, ties: Order, of: DType, *found: Array, index: bool, alone: bool
) -> tuple[Array, ...]:
    """Winning value at each output of a step in its stored dtype, and with `index` its flat tap.

    With `alone`, a separate chain looks for NaN.
    """
    step, held = pass_.step, found[0].dtype
    dtype, fill = index_dtype(step.count), identity_of(of, kind).view(held)
    nan = np.asarray(np.nan, of).view(held) if alone else None
    arrays = [found[0], *(cast(tap, dtype) for tap in found[1:])]

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> Term:
        value = grow(parts[0], fill=fill)
        key = decode(from_words(value, of))
        if not index:
            return key, value
        flat = lax.full_like(value, tap, dtype)
        return key, value, flat + grow(parts[1], fill=0) if parts[1:] else flat

    source = Source(arrays, [fill, 0][: len(arrays)], step.phases)
    joined = functools.partial(best, kind=kind, ties=ties, nan=nan)
    return carry_out(pass_.layout, step.axes, [source], term, joined)


def _select(x: Array, kind: Kind, ties: Order, plan: MaxPlan, *, index: bool) -> tuple[Array, ...]:
    """Maximum or minimum of each window, and with `index` its flat tap, which may be in the padding."""
    alone = plan.nan == "alone"
    # Pass bits: XLA for CPU widens slices of bfloat16, and compiles a select of float16 to a branch.
    outputs: tuple[Array, ...] = (to_words(x) if alone else x,)
    for pass_ in plan.forward:
        kernel = functools.partial(_step, pass_, kind, ties, x.dtype, index=index, alone=alone)
        last = pass_ is plan.forward[-1]
        outputs = kernel(*outputs) if last else materialise(plan.barrier, kernel, *outputs)
    return from_words(outputs[0], x.dtype), *outputs[1:]


def select_value(x: Array, kind: Kind, ties: Order, plan: MaxPlan) -> Array:
    """Maximum or minimum of each window, without its tap."""
    if plan.value_by:
        return group_extremes(x, kind, plan.value_by)[-1]
    return _select(x, kind, ties, plan, index=False)[0]


def select(x: Array, window: Window, kind: Kind, ties: Order, plan: MaxPlan) -> tuple[Array, Array]:
    """Maximum or minimum of each window, and its flat tap.

    Padding holds the identity, so it is selected only if all elements of a window equal the identity. The index
    then moves to the first or last element inside the input.
    """
    value, index = _select(x, kind, ties, plan, index=True)
    if window.padded:
        ends = [real_end(dim, last=ties == "last") for dim in window.dims]
        bound = flat_tap(ends, window, x.ndim)
        index = (jnp.minimum if ties == "last" else jnp.maximum)(index, bound)
    return value, index
