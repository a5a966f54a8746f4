"""Windowed sums whose terms may overflow or underflow: each window is summed relative to its largest element.

With the largest element `high` of a window, every weight is a power or an exponential relative to it, and at most 1:

    x              3   900    1    2 | 5    0   7  2
    high          900                  7
    exp(x - high)  0     1    0    0 | 0.1  0   1  0

`gather` sums terms over the taps of each window, and `spread` is its transpose. Both loop over all taps, so the
program does not grow with the window. `high` is a constant for autodiff: a sum does not depend on it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices, tap_loop
from jaxpool._kernels.dtypes import DType, accumulator
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import reached
from jaxpool._ops.apply import apply
from jaxpool._ops.linear_map import linear_map
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.stages import OpPlan, linear_plan

# `high`, and further values of each window or numbers for all windows: the last arguments of a term.
Windows = Sequence[Any]


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros with derivative 1, also for infinite x."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def divided(x: Array, by: Any) -> Array:
    """`x / by`. Its derivative divides twice, because the square of `by`, which jax uses, may overflow or underflow."""
    return x / by


@divided.defjvp
def _divided_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    ratio, by = divided(*primals), primals[1]
    return ratio, divided(tangents[0] - ratio * tangents[1], by)


def ratio(x: Array, high: Array) -> Array:
    """`x / high`; 0 if `high` is 0 or infinite, or x is infinite.

    Some compilers multiply by the inverse of `high`, which is subnormal for the largest numbers; `unit` prevents this.
    """
    usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
    unit = jnp.where(high > 2.0**100, 2.0**-4, 1.0).astype(x.dtype)
    return divided(jnp.where(jnp.isinf(x), 0, x) * unit, jnp.where(usual, high * unit, np.inf))


@dataclasses.dataclass(frozen=True)
class _StoredSum(SumPool):
    """A sum pool whose result is stored; otherwise XLA recomputes the sums in every consumer."""

    def plan(self, platform: Platform, x: Any) -> OpPlan:
        plan = SumPool.plan(self, platform, x)
        forward, back = (
            [dataclasses.replace(each, stored=True) for each in way]
            for way in (plan.forward, plan.backward)
        )
        return linear_plan(forward, back)

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        y: Array = materialise(
            barrier_on(platform), lambda x: SumPool.linear(self, platform, (), x), x
        )
        return y

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        dx: tuple[Array] = materialise(
            barrier_on(platform), lambda dy: SumPool.transpose(self, platform, (), dy), dy
        )
        return dx


def spread_of(window: Window, dy: Array, *, stored: bool = False) -> Array:
    """The transposed sum over `window`, with its result stored in memory if `stored`."""
    op = _StoredSum(window) if stored else SumPool(window)
    return linear_map(op, (), [dy], nonzero=(True,), transposed=True)[0]


def sum_of(window: Window, x: Array, *, stored: bool = False) -> Array:
    """The sum over each window, with its result stored in memory if `stored`."""
    return apply(_StoredSum(window) if stored else SumPool(window), "jvp", x)


def summed_as(value: Array, like: Array) -> Array:
    """`value` summed along the axes of size 1 of `like`."""
    axes = tuple(axis for axis, length in enumerate(like.shape) if length == 1)
    return jnp.sum(value, axis=axes, keepdims=True)


def widened(x: Array, window: Window) -> Array:
    """x in the dtype of sums. Elements that are in no window become 0, in case they are NaN."""
    x = x.astype(accumulator(x.dtype))
    for dim in window.dims:
        real = reached(dim)
        if real is not None:
            x = jnp.where(slices.along(real, dim.axis, x.ndim), x, 0)
    return x


def within(value: Any, dtype: DType, largest: float = 2.0**-32) -> Any:
    """`value` in `dtype`. A Python number is clipped to magnitudes whose inverses are normal.

    The bounds are 2^32 times the smallest normal number, and `largest` times the largest number.
    """
    if isinstance(value, jax.Array):
        return value.astype(dtype)
    info = jnp.finfo(dtype)
    size = min(max(abs(value), float(info.tiny) * 2**32), float(info.max) * largest)
    return math.copysign(size, value)


def varies_along(value: Any, window: Window) -> bool:
    """Whether an array with the rank of the output varies along pooled axes, so that windows share no sums."""
    return math.prod(value.shape[axis] for axis in window.axes) > 1


def _loop(window: Window) -> tuple[Window, tuple[int, ...]]:
    """The window without the axes that a single window covers, and these axes. They need no loop."""
    dims = tuple(dim for dim in window.dims if not dim.whole)
    return Window(dims), tuple(dim.axis for dim in window.dims if dim.whole)


def highest(x: Array, window: Window) -> Array:
    """The largest element of each window, a constant for autodiff."""
    loop, whole = _loop(window)
    padded = slices.pad_input(lax.stop_gradient(x), loop, -np.inf)
    high = tap_loop.join_taps(loop, lambda tap: tap_loop.element_at(padded, loop, tap), lax.max)
    return jnp.max(high, axis=whole, keepdims=True)


def gather(
    window: Window,
    term: Callable[..., tuple[Array, ...]],
    elements: Sequence[Array],
    windows: Windows,
    *mask: Array,
) -> tuple[Array, ...]:
    """The sums of the terms `term(*elements, *windows)` over each window, for the elements with `mask` True.

    Terms must be finite for elements that are 0, the value of padding.
    """
    loop, whole = _loop(window)
    padded = [slices.pad_input(each, loop, 0) for each in (*elements, *mask)]

    def terms_at(tap: Any) -> tuple[Array, ...]:
        at_tap = [tap_loop.element_at(each, loop, tap) for each in padded]
        if not mask and not loop.padded:
            return term(*at_tap, *windows)
        real = at_tap.pop() if mask else tap_loop.real_at(loop, tap, at_tap[0].ndim)
        return tuple(jnp.where(real, each, 0) for each in term(*at_tap, *windows))

    totals = tap_loop.join_taps(loop, terms_at, tap_loop.added)
    return tuple(jnp.sum(each, axis=whole, keepdims=True) for each in totals)


def spread(
    window: Window, slope: Callable[..., Array], x: Array, windows: Windows, dy: Array
) -> Array:
    """The sum of `slope(x, *windows) * dy` over the windows of each element: the transpose of `gather`."""
    loop, _ = _loop(window)
    padded = slices.pad_input(x, loop, 0)

    def shares_at(tap: Any) -> Array:
        share = slope(tap_loop.element_at(padded, loop, tap), *windows) * dy
        back = jax.linear_transpose(lambda x: tap_loop.element_at(x, loop, tap), padded)
        shares: Array = back(share)[0]
        return shares

    dx: Array = tap_loop.join_taps(loop, shares_at, lax.add)
    return jax.linear_transpose(lambda x: slices.pad_input(x, loop, 0), x)(dx)[0]
