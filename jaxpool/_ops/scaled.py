"""Windowed sums of terms too large or too small to be written down: each sum carries its own scale.

A state `(scale, total, ...)` stands for `total * weight(scale)`, the weight being an exponential or
a power that would overflow. Joining two states weighs the smaller one against the larger, with a
factor of at most 1, so nothing ever does. A sum is the same whatever scales it is written with:
they are constants to AD, and jax differentiates what is left, to any order and in both modes.
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

from jaxpool._geometry.window import Window, full_window
from jaxpool._kernels import patches, slices
from jaxpool._kernels.dtypes import DType, accumulator
from jaxpool._kernels.fold import State, window_fold, window_max
from jaxpool._kernels.keep import keep as keep_apart
from jaxpool._ops.linear_map import linear_map
from jaxpool._ops.op import Op, apply
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, keep_on

Weigh = Callable[[Array, Array], Array]  # what 1 at a low scale amounts to at a higher one

POLYNOMIAL = 16  # up to here |x|^p of an integer p is multiplied out, so that it is smooth at 0


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros whose derivative is 1, also where x is infinite."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def divided(x: Array, by: Any) -> Array:
    """`x / by`. The derivative divides twice: the square of `by`, as jax has it, may leave the type."""
    return x / by


@divided.defjvp
def _divided_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    ratio, by = divided(*primals), primals[1]
    return ratio, divided(tangents[0] - ratio * tangents[1], by)


@dataclasses.dataclass(frozen=True)
class _Kept(Op):
    """As many arrays as there are `inputs`, computed once; their tangents and cotangents likewise."""

    inputs: int

    linear_in_x = True

    def linear(self, on: Platform, residual: tuple[()], *xs: Array | None) -> State:
        like = next(x for x in xs if x is not None)
        every = [lax.full_like(like, 0) if x is None else x for x in xs]
        kept: State = keep_apart(keep_on(on), lambda *arrays: arrays, *every)
        return kept

    def transpose(self, on: Platform, residual: tuple[()], *dys: Array) -> State:
        return self.linear(on, residual, *dys)


def keep(state: State) -> State:
    """The state, computed once, however many read it."""
    return tuple(linear_map(_Kept(len(state)), (), state, given=(True,) * len(state)))


def widened(x: Array, window: Window) -> Array:
    """x in the type to compute in; an element that no window reaches is 0, lest it be NaN."""
    x = x.astype(accumulator(x.dtype))
    for dim in window.dims:
        reached = np.isin(np.arange(dim.size), dim.sources())
        if not reached.all():
            x = jnp.where(slices.along(reached, dim.axis, x.ndim), x, 0)
    return x


def within(value: Any, dtype: DType, largest: float = 2.0**-32) -> Any:
    """`value` in `dtype`; a number too small or too large to be inverted there is brought back.

    Back to 2^32 times the least normal number, and to the part `largest` of the largest.
    """
    if isinstance(value, jax.Array):
        return value.astype(dtype)
    info = jnp.finfo(dtype)
    size = min(max(abs(value), float(info.tiny) * 2**32), float(info.max) * largest)
    return math.copysign(size, value)


def exponential(heat: Any) -> Weigh:
    """Scales are exponents: a low one weighs `exp((low - high) / heat)`."""

    def weigh(low: Array, high: Array) -> Array:
        info, depth = jnp.finfo(low.dtype), _rise(low, high)
        limit = math.log(2) * (info.nmant - info.minexp)  # exp(-limit) is the least number above 0
        far = jnp.greater(depth / lax.stop_gradient(heat), limit)
        return jnp.where(far, 0, lax.exp(-divided(jnp.where(far, 0, depth), heat)))

    return weigh


def power(rate: Any) -> Weigh:
    """Scales are factors, not negative: a low one weighs `(low / high)^rate`."""

    def weigh(low: Array, high: Array) -> Array:
        return size_to(jnp.where(low == high, 1, low / high), rate)

    return weigh


def size(x: Array) -> Array:
    """`|x|`, with derivative 0 at 0."""
    return jnp.where(x == 0, 0, lax.abs(x))


def size_to(x: Array, p: Any) -> Array:
    """`|x|^p`; where that has no derivative at 0, 0 stands in for it."""
    if isinstance(p, float) and p == int(p) <= POLYNOMIAL:
        return lax.integer_pow(x if p % 2 == 0 else lax.abs(x), int(p))
    none = lax.abs(x) < jnp.finfo(x.dtype).tiny
    return jnp.where(none, 0, lax.exp(p * lax.log(lax.abs(jnp.where(none, 1, x)))))


def scaled_sums(
    scale: Array, sums: Sequence[Array], window: Window, weigh: Weigh, lowest: float
) -> State:
    """The largest scale of each window and its sums at that scale; padding counts as nothing.

    `sums[0]` holds terms, each written at its own scale. `sums[1]`, with scales that are exponents,
    may hold each term times the height of its element above the scale, 0 at first.
    """
    scale = lax.stop_gradient(scale)
    if not window.overlapping:
        highest = window_max(scale, window, lowest)
        spread = linear_map(SumPool(window), (), [highest], given=(True,), turned=True)[0]
        around = lax.max(spread, scale)  # what no window reaches
        terms = _rewritten((scale, *sums), around, weigh)
        return highest, *(apply(SumPool(window), "jvp", term) for term in terms)

    def join(a: State, b: State) -> State:
        behind, high = lax.lt(a[0], b[0]), lax.max(a[0], b[0])
        ahead = [lax.select(behind, q, p) for p, q in zip(a[1:], b[1:], strict=True)]
        other = [lax.select(behind, p, q) for p, q in zip(a[1:], b[1:], strict=True)]
        moved = _rewritten((lax.min(a[0], b[0]), *other), high, weigh)
        return high, *(p + q for p, q in zip(ahead, moved, strict=True))

    return window_fold((scale, *sums), (lowest, *[0] * len(sums)), window, join, keep)


def _rewritten(state: State, high: Array, weigh: Weigh) -> State:
    """The sums of a state, written at a scale at least as high as its own."""
    factor = weigh(state[0], high)
    if len(state) == 2:
        return (factor * state[1],)
    rise = jnp.where(factor == 0, 0, _rise(state[0], high))
    return factor * state[1], factor * (state[2] - rise * state[1])


def _rise(low: Array, high: Array) -> Array:
    """How far `high` is above `low`; equal infinities are level."""
    return jnp.where(low == high, 0, high - low)


def lay_out(x: Array, window: Window, rate: Any) -> tuple[Array, Window, Any, Any]:
    """x, its window and rate as `scaled_sums` takes them, and which elements are no padding.

    Outputs that share an element share its sums too, but not if each has a rate of its own: then
    every window is laid out apart, as many elements as all windows have together.
    """
    if not isinstance(rate, jax.Array) or all(rate.shape[axis] == 1 for axis in window.axes):
        return x, window, rate, np.ones((1,) * x.ndim, bool)
    wide, taps = patches.lay_out(x, window, 1), patches.tap_axes(window)
    real = patches.split(patches.real_taps(window, x.ndim), window)
    return wide, full_window(wide.shape, taps), lax.expand_dims(rate, taps), real
