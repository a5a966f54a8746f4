"""Windows of a shard and its halo: the ops of `_ops`, told which rows are elements of the array.

A halo beyond the ends of the array holds what the pool is padded with, and to a kernel that is an element like any
other. No value depends on that, but three things do: which of equal elements is chosen, among how many a cotangent is
split, and what an average divides by. Each is given, as an array that depends on the shard.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels.compare import Order, Ties
from jaxpool._kernels.dtypes import Kind, accumulator, cast, is_float, losing
from jaxpool._kernels.select import flat_tap, real_end
from jaxpool._kernels.slices import crossed
from jaxpool._kernels.split_ties import Words, inside, pick_level, real_words, route_level
from jaxpool._kernels.sums import Epilogue, window_spread, window_sum
from jaxpool._ops.op import Op, apply_given, problem_of
from jaxpool._ops.select_pool import LevelPool, MaskPool, SelectPool
from jaxpool._ops.sum_pool import SumPool, counts_along, same_count
from jaxpool._plan.problem import Platform
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import LIMITS
from jaxpool._shards.border import pooled
from jaxpool._shards.halo import Shards


@dataclasses.dataclass(frozen=True)
class ShardSelect(SelectPool):
    """A max or min pool whose cotangent goes to one element; given the first, or last, real tap of each window."""

    def primal(self, on: Platform, x: Array, bound: Array) -> tuple[Array, Array]:
        y, index = super().primal(on, x)
        bound = jnp.broadcast_to(bound, index.shape)
        return y, (lax.min if self.ties == "last" else lax.max)(index, bound)


@dataclasses.dataclass(frozen=True)
class ShardMask(MaskPool):
    """A max or min pool whose cotangent is split; given a bit for each tap of each window, set where it is real."""

    def primal(self, on: Platform, x: Array, *real: Array) -> tuple[Array, Words]:
        y, words = super().primal(on, x)
        pairs = zip(words, real, strict=True)
        return y, tuple(
            lax.bitwise_and(word, jnp.broadcast_to(bits, word.shape)) for word, bits in pairs
        )


@dataclasses.dataclass(frozen=True)
class ShardLevel(LevelPool):
    """A max or min pool over large windows whose cotangent is split; given which elements of x are real."""

    def primal(self, on: Platform, x: Array, real: Array) -> tuple[Array, tuple[Array, ...]]:
        y, kept = super().primal(on, x)
        return y, (*kept, real)

    def linear(self, on: Platform, residual: tuple[Array, ...], x_dot: Array) -> Array:
        x, _, real = residual
        return pick_level(x_dot, x, self.window, self.kind, real)

    def transpose(self, on: Platform, residual: tuple[Array, ...], dy: Array) -> tuple[Array]:
        x, y, real = residual
        return (route_level(dy, x, y, self.window, self.kind, real),)


@dataclasses.dataclass(frozen=True)
class ShardAverage(Op):
    """The sum over each window divided by its count, which is given."""

    window: Window

    linear_in_x = True

    def linear(self, on: Platform, given: tuple[Array], x: Array) -> Array:
        plan = plan_sum(problem_of(self.window, x, on))
        return window_sum(x, plan, Epilogue(x.dtype, lambda total: total / given[0]))

    def transpose(self, on: Platform, given: tuple[Array], dy: Array) -> tuple[Array]:
        shape = self.window.unpooled(dy.shape)
        plan = plan_sum(problem_of(self.window, dy, on, shape), transposed=True)
        wide = cast(dy, accumulator(dy.dtype)) / given[0]
        return (window_spread(wide, plan, Epilogue(dy.dtype)),)


def select_pool(shards: Shards, x: Array, kind: Kind, ties: Ties | Order) -> tuple[Array, Any]:
    """The max or min pool of a shard x, and the residual."""
    window, fill, padded = shards.inside, losing(x.dtype, kind), shards.padded
    if ties != "split":
        plain = SelectPool(window, kind, ties)
        if not padded:
            return pooled(shards, x, fill, plain, plain)
        bound = _end_of_padding(shards, x.ndim, last=ties == "last")
        return pooled(shards, x, fill, plain, ShardSelect(window, kind, ties), bound)
    if window.size <= LIMITS.masked_taps:
        given = _real_taps(shards, x.ndim) if padded else ()
        across = (ShardMask if padded else MaskPool)(window, kind)
        return pooled(shards, x, fill, MaskPool(window, kind), across, *given)
    given = (_real_elements(shards, x.ndim),) if padded else ()
    op = (ShardLevel if padded else LevelPool)(shards.local, kind)
    return apply_given(op, shards.extended(x, fill), *given)


def sum_pool(
    shards: Shards, x: Array, divide: Literal["not", "counted", "real"] | float = "not"
) -> Array:
    """The sum over each window of a shard x, divided by what `divide` says of the whole array."""
    window, fetch = shards.inside, functools.partial(pooled, shards, x, 0)
    dtype = x.dtype if divide == "not" or is_float(x.dtype) else np.dtype(np.float32)
    if divide not in ("counted", "real"):
        op = SumPool(window, divide)
        return fetch(op, op, dtype=dtype)[0]
    same = same_count(shards.window, divide)
    if same is not None:
        op = SumPool(window, float(same))
        return fetch(op, op, dtype=dtype)[0]
    lines = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        values = jnp.asarray(counts_along(dim, divide), accumulator(dtype))
        if halo:
            first = halo.shard() * np.int32(halo.outs)
            values = lax.dynamic_slice_in_dim(values, first, halo.outs)
        lines.append(values)
    counts = crossed(jnp.multiply, lines, window.axes, x.ndim)
    average = ShardAverage(window)
    return fetch(average, average, counts, dtype=dtype)[0]


def _end_of_padding(shards: Shards, ndim: int, *, last: bool) -> Array:
    """The first, or last, flat tap of each window that is no padding, broadcastable to the output."""
    taps: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo:
            taps.append(halo.last_real() if last else halo.first_real())
        else:
            taps.append(real_end(dim, last=last))
    return flat_tap(taps, shards.window, ndim)


def _real_taps(shards: Shards, ndim: int) -> Words:
    """A bit for each tap of each window, set where it is no padding; as many words as `tie_masks` makes."""
    real: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo is None:
            real.append(functools.partial(inside, dim))
            continue

        real.append(functools.partial(_holds, dim, halo.window_starts()))
    return real_words(real, shards.window, ndim)


def _holds(dim: Axis, starts: Array, tap: int) -> Array:
    """Which of the windows of an axis that begin at `starts` hold an element of the array at `tap`."""
    at = starts + np.int32(tap * dim.dilation)
    return (at >= 0) & (at < dim.size)


def _real_elements(shards: Shards, ndim: int) -> Array:
    """Which elements of a shard with its halo are those of the array, broadcastable to it."""
    axes = [halo.dim.axis for halo in shards.halos]
    return crossed(jnp.logical_and, [halo.rows_exist() for halo in shards.halos], axes, ndim)
