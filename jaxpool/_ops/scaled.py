"""Windowed sums of terms too large or too small to be written down: each sum carries its own scale.

A window is summed an axis after another. At each stage an element has a scale, `low`, and a window the largest of
those, `high`: its sums are of terms written at `high`, which no term exceeds.

    x           3   900    1    2 | 5    0   7  2
    high          900        2      5        7        stage 1: sums of exp(x - 900), of exp(x - 2), ...
    high               900                7           stage 2: those times exp(2 - 900), exp(5 - 7), added up

What a stage makes of sums is linear in them; cotangents go back through its stages by the transpose. Each is a loop
over taps, so a program does not grow with the window. Scales are constants to AD: a sum is the same whatever
scales it is written with.
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
from jaxpool._ops.moves import Move, State
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.stages import OpPlan, linear_plan

Sums = Sequence[Array | float]


@dataclasses.dataclass(frozen=True)
class _StoredSum(SumPool):
    """Sums that are computed once, however many read them: else XLA adds up a window in every reader."""

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


def widened(x: Array, window: Window) -> Array:
    """x in the type to compute in; an element that no window reaches is 0, lest it be NaN."""
    x = x.astype(accumulator(x.dtype))
    for dim in window.dims:
        real = reached(dim)
        if real is not None:
            x = jnp.where(slices.along(real, dim.axis, x.ndim), x, 0)
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


def spread_of(window: Window, dy: Array, *, stored: bool = False) -> Array:
    """The transposed sum over `window`; if `stored`, computed once."""
    op = _StoredSum(window) if stored else SumPool(window)
    return linear_map(op, (), [dy], given=(True,), transposed=True)[0]


def sum_of(window: Window, x: Array, *, stored: bool = False) -> Array:
    """The sum over each window; if `stored`, computed once."""
    return apply(_StoredSum(window) if stored else SumPool(window), "jvp", x)


def summed_as(value: Array, like: Array) -> Array:
    """`value` added up along the axes that `like` has one number for."""
    axes = tuple(axis for axis, length in enumerate(like.shape) if length == 1)
    return jnp.sum(value, axis=axes, keepdims=True)


def window_max(x: Array, window: Window, fill: Any) -> Array:
    """The maximum of each window, an axis after another; padding holds `fill`."""
    for dim in window.dims:
        along = Window((dim,))
        if dim.whole:
            x = jnp.max(x, axis=dim.axis, keepdims=True)
        elif not dim.idle:
            x = _max_along(slices.pad_input(x, along, fill), along)
    return x


def _max_along(padded: Array, along: Window) -> Array:
    return tap_loop.join_taps(along, lambda tap: tap_loop.element_at(padded, along, tap), lax.max)


def same_along(array: Array, window: Window) -> bool:
    """Whether an array of the rank of the output has one number along all pooled axes."""
    return math.prod(array.shape[axis] for axis in window.axes) == 1


@dataclasses.dataclass(frozen=True)
class _Stage:
    """Sums over `window`, from the scales `low` of its elements to those of the windows, `high`."""

    window: Window
    low: Array
    high: Array
    rate: Any  # what the moves are told beside: a number, or what broadcasts against `high`
    fill: float  # the scale of padding

    def gather(self, move: Move, sums: Sums) -> State:
        """The sums of each window; a number stands for itself at each element."""
        if not self.window.overlapping:
            terms = move(sums, *self._of_elements())
            return tuple(sum_of(self.window, term) for term in terms)
        low = slices.pad_input(self.low, self.window, self.fill)
        padded = [
            each if isinstance(each, float) else slices.pad_input(each, self.window, 0)
            for each in sums
        ]

        def at_tap(each: Array | float, tap: Any) -> Any:
            if not isinstance(each, float):
                return tap_loop.element_at(each, self.window, tap)
            real = tap_loop.real_at(self.window, tap, low.ndim)
            return each and jnp.where(real, each, 0).astype(low.dtype)

        def terms_at(tap: Any) -> State:
            elements = [at_tap(each, tap) for each in padded]
            return move(elements, at_tap(low, tap), self.high, self.rate)

        return tap_loop.join_taps(self.window, terms_at, tap_loop.added)

    def spread(self, move: Move, totals: Sequence[Array]) -> State:
        """The transpose of `gather`: of cotangents of the sums of windows."""
        if not self.window.overlapping:
            spread = [spread_of(self.window, total) for total in totals]
            return _transposed(move, spread, *self._of_elements())
        padded = [tap_loop.pad_windows(self.high, self.window, np.inf)]
        padded += [tap_loop.pad_windows(total, self.window, 0) for total in totals]
        own = varies_along(self.rate, self.window)
        rate = tap_loop.pad_windows(self._whole_rate(), self.window, 1) if own else self.rate

        def shares_at(tap: Any) -> State:
            high, *cotangents = [tap_loop.window_at(each, self.window, tap) for each in padded]
            of_window = tap_loop.window_at(rate, self.window, tap) if own else rate
            return _transposed(move, cotangents, self.low, high, of_window)

        return tap_loop.join_taps(self.window, shares_at, tap_loop.added)

    def _of_elements(self) -> tuple[Array, Array, Any]:
        """The scale of each element, and the scale and the rate of its window; of one without a window 0 and 1."""
        high, rate = spread_of(self.window, self.high), self.rate
        if varies_along(rate, self.window):
            rate = spread_of(self.window, self._whole_rate())
            rate = jnp.where(rate == 0, 1, rate)
        return self.low, high, rate

    def _whole_rate(self) -> Array:
        """The rate in the shape of the output along the pooled axes."""
        shape = list(self.rate.shape)
        for dim in self.window.dims:
            shape[dim.axis] = dim.out
        return jnp.broadcast_to(self.rate, shape)


def _transposed(
    move: Move, cotangents: Sequence[Array], low: Array, high: Array, rate: Any
) -> State:
    like = [low] * len(cotangents)
    back = jax.linear_transpose(lambda *sums: move(sums, low, high, rate), *like)
    found: State = back(tuple(cotangents))
    return found


def varies_along(rate: Any, window: Window) -> bool:
    """Whether windows have rates of their own along pooled axes: then no two share a sum."""
    known = isinstance(rate, (jax.Array, jax.ShapeDtypeStruct))
    return known and not same_along(rate, window)


@dataclasses.dataclass(frozen=True)
class Stages:
    """The stages of sums over a window: `first` moves the elements, another move the sums of the stages after it."""

    stages: tuple[_Stage, ...]

    @property
    def high(self) -> Array:
        """The scale of each window."""
        return self.stages[-1].high

    def ending(self, high: Array) -> Stages:
        """The same with other scales of the windows."""
        return Stages((*self.stages[:-1], dataclasses.replace(self.stages[-1], high=high)))

    def gather(self, sums: Sums, move: Move, first: Move | None = None) -> State:
        """The sums of each window; a number stands for itself at each element."""
        found = self.stages[0].gather(first or move, sums)
        for stage in self.stages[1:]:
            found = stage.gather(move, found)
        return found

    def spread(self, totals: Sequence[Array], move: Move, first: Move | None = None) -> State:
        """What each element gets of cotangents of the sums of windows."""
        for stage in reversed(self.stages):
            totals = stage.spread((first or move) if stage is self.stages[0] else move, totals)
        return tuple(totals)


Highest = Callable[[Array, Window], Array]


def in_stages(
    x: Array, window: Window, rate: Any, fill: float, highest: Highest, scale: Array | None = None
) -> Stages:
    """The stages of sums of x, whose scales are x itself unless `scale` is given; padding has the scale `fill`."""
    found: list[_Stage] = []
    low = lax.stop_gradient(x if scale is None else scale)
    used = sorted((dim for dim in window.dims if not dim.idle), key=lambda dim: -dim.axis)
    groups = [Window((dim,)) for dim in used]
    if not window.overlapping or varies_along(rate, window) or not groups:
        groups = [window]
    for group in groups:
        high = lax.stop_gradient(highest(low, group))
        found.append(_Stage(group, low if found else x, high, rate, fill))
        low = high
    return Stages(tuple(found))


def largest(fill: float) -> Highest:
    """The maximum of each window, where padding holds `fill`."""
    return lambda low, window: window_max(low, window, fill)
