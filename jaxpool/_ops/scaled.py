"""Windowed sums of terms that may overflow or underflow: each sum is stored relative to a scale of its own.

A window is summed one axis at a time. At each stage an element has a scale `low`, and a window has the maximum of
these scales as its scale `high`. The terms of its sums are relative to `high`, so no term overflows.

    x           3   900    1    2 | 5    0   7  2
    high          900        2      5        7        stage 1: sums of exp(x - 900), of exp(x - 2), ...
    high               900                7           stage 2: sums of these times exp(2 - 900), exp(5 - 7)

A stage is linear in the sums, so cotangents go back by its transpose. For overlapping windows it is a loop over taps,
so the program does not grow with the window. Scales are constants for autodiff: a sum does not depend on its scale.
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


def window_max(x: Array, window: Window, fill: Any) -> Array:
    """The maximum of each window, one axis at a time. The padding value is `fill`."""
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
    """Whether an array with the rank of the output has size 1 along all pooled axes."""
    return math.prod(array.shape[axis] for axis in window.axes) == 1


@dataclasses.dataclass(frozen=True)
class _Stage:
    """Sums over `window`, from the scales `low` of the elements to the scales `high` of the windows."""

    window: Window
    low: Array
    high: Array
    rate: Any  # last argument of the moves: a number, or an array that broadcasts against `high`
    fill: float  # the scale of padding

    def gather(self, move: Move, sums: Sums) -> State:
        """The sums of each window. A float in `sums` is the value of every element."""
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
        """The transpose of `gather`, applied to cotangents of the sums of windows."""
        if not self.window.overlapping:
            spread = [spread_of(self.window, total) for total in totals]
            return _transposed(move, spread, *self._of_elements())
        padded = [tap_loop.pad_windows(self.high, self.window, np.inf)]
        padded += [tap_loop.pad_windows(total, self.window, 0) for total in totals]
        varies = varies_along(self.rate, self.window)
        rate = tap_loop.pad_windows(self._whole_rate(), self.window, 1) if varies else self.rate

        def shares_at(tap: Any) -> State:
            high, *cotangents = [tap_loop.window_at(each, self.window, tap) for each in padded]
            of_window = tap_loop.window_at(rate, self.window, tap) if varies else rate
            return _transposed(move, cotangents, self.low, high, of_window)

        return tap_loop.join_taps(self.window, shares_at, tap_loop.added)

    def _of_elements(self) -> tuple[Array, Array, Any]:
        """The scale of each element, and the scale and rate of its window; 0 and 1 for an element in no window."""
        high, rate = spread_of(self.window, self.high), self.rate
        if varies_along(rate, self.window):
            rate = spread_of(self.window, self._whole_rate())
            rate = jnp.where(rate == 0, 1, rate)
        return self.low, high, rate

    def _whole_rate(self) -> Array:
        """The rate, broadcast to the shape of the output along the pooled axes."""
        shape = list(self.rate.shape)
        for dim in self.window.dims:
            shape[dim.axis] = dim.out
        return jnp.broadcast_to(self.rate, shape)


def _transposed(
    move: Move, cotangents: Sequence[Array], low: Array, high: Array, rate: Any
) -> State:
    like = [low] * len(cotangents)
    back = jax.linear_transpose(lambda *sums: move(sums, low, high, rate), *like)
    terms: State = back(tuple(cotangents))
    return terms


def varies_along(rate: Any, window: Window) -> bool:
    """Whether the rate varies along pooled axes, so that windows cannot share partial sums."""
    known = isinstance(rate, (jax.Array, jax.ShapeDtypeStruct))
    return known and not same_along(rate, window)


@dataclasses.dataclass(frozen=True)
class Stages:
    """The stages of sums over a window. The move `first` applies to elements, `move` to the sums of later stages."""

    stages: tuple[_Stage, ...]

    @property
    def high(self) -> Array:
        """The scale of each window."""
        return self.stages[-1].high

    def ending(self, high: Array) -> Stages:
        """The same stages with other scales of the windows."""
        return Stages((*self.stages[:-1], dataclasses.replace(self.stages[-1], high=high)))

    def gather(self, sums: Sums, move: Move, first: Move | None = None) -> State:
        """The sums of each window. A float in `sums` is the value of every element."""
        totals = self.stages[0].gather(first or move, sums)
        for stage in self.stages[1:]:
            totals = stage.gather(move, totals)
        return totals

    def spread(self, totals: Sequence[Array], move: Move, first: Move | None = None) -> State:
        """The transpose of `gather`: the cotangents of the elements."""
        for stage in reversed(self.stages):
            totals = stage.spread((first or move) if stage is self.stages[0] else move, totals)
        return tuple(totals)


Highest = Callable[[Array, Window], Array]


def in_stages(
    x: Array, window: Window, rate: Any, fill: float, highest: Highest, scale: Array | None = None
) -> Stages:
    """The stages of sums over x. The scales of the elements are `scale`, by default x; padding has the scale `fill`."""
    made: list[_Stage] = []
    low = lax.stop_gradient(x if scale is None else scale)
    used = sorted((dim for dim in window.dims if not dim.idle), key=lambda dim: -dim.axis)
    groups = [Window((dim,)) for dim in used]
    if not window.overlapping or varies_along(rate, window) or not groups:
        groups = [window]
    for group in groups:
        high = lax.stop_gradient(highest(low, group))
        made.append(_Stage(group, low if made else x, high, rate, fill))
        low = high
    return Stages(tuple(made))


def largest(fill: float) -> Highest:
    """A function that returns the maximum of each window, with padding value `fill`."""
    return lambda low, window: window_max(low, window, fill)
