"""Elements of a rank: what is chosen among the taps of each window."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import patches, rank, slices
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import accumulator
from jaxpool._kernels.keep import keep
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.split_ties import (
    pick_tied,
    route_tied,
    tied_taps,
)
from jaxpool._ops.op import Autodiff, Op, apply, apply_given, problem_of
from jaxpool._ops.reduction import Reduction
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.problem import Platform, keep_on
from jaxpool._plan.rank_pool import by_network, places, plan_rank


@dataclasses.dataclass(frozen=True)
class RankPool(Op):
    """The element of `rank` of each window, None the median; keeps which tap it is, or a bit for each that ties.

    `taps`, flat and ascending, take part; unless all do, windows are not padded.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    rank: int | None

    def terms(self, x: Array) -> list[Array]:
        """The terms of the taps, as they are compared."""
        key = rank.keys(x)
        last = self.rank is None or self.rank >= 0
        padded = slices.pad_input(key, self.window, rank.end(key.dtype, last))
        return [slices.tap_of(padded, self.window, tap) for tap in self.taps]

    def chosen(self, terms: Sequence[Array]) -> Array:
        """The one of the terms that is wanted."""
        count = len(terms)
        if count == self.window.size:
            return rank.by_comparators(terms, places(self.window, self.rank), self.window)
        place = count // 2 if self.rank is None else self.rank % count
        return rank.by_comparators(terms, (place,), self.window)

    def result(self, y: Array, *xs: Array) -> Array:
        """The output, from what was compared."""
        return rank.values(y, xs[0].dtype)

    def value(self, on: Platform, *xs: Array) -> Array:
        return self.result(self.chosen(self.terms(*xs)), *xs)

    def primal(self, on: Platform, *xs: Array) -> tuple[Array, Any]:
        def kernel(*xs: Array) -> tuple[Array, Any]:
            y = keep(keep_on(on), lambda *xs: self.chosen(self.terms(*xs)), *xs)
            words = tied_taps(self.terms(*xs), y, self.window, self.taps)
            split = self.ties == "split"
            kept = words if split else rank.one_tap(words, self.window, self.ties == "last")
            return self.result(y, *xs), kept

        found: tuple[Array, Any] = keep(keep_on(on), kernel, *xs)
        return found

    def linear(self, on: Platform, kept: Any, x_dot: Array) -> Array:
        if self.ties == "split":
            return pick_tied(x_dot, kept, self.window)
        return pick(x_dot, kept, plan_rank(problem_of(self.window, x_dot, on)))

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array, ...]:
        problem = problem_of(self.window, dy, on, self.window.unpooled(dy.shape))
        if self.ties == "split":
            return (route_tied(dy, kept, plan_ties(problem)),)
        return (route(dy, kept, plan_rank(problem)),)


@dataclasses.dataclass(frozen=True)
class RankOver(Reduction):
    """The element of `rank` over whole axes, None the median, of those that a mask counts."""

    rank: int | None = None

    def value(self, on: Platform, *xs: Array) -> Array:
        key = rank.keys(xs[0])
        real = xs[1] if xs[1:] else lax.full_like(key, True, np.bool_)
        count = jnp.sum(real, axis=self.axes, keepdims=True, dtype=np.int32)
        place = count // 2
        if self.rank is not None:
            place = count + self.rank if self.rank < 0 else lax.full_like(count, self.rank)
        key = lax.select(real, key, lax.full_like(key, rank.end(key.dtype, True)))
        return rank.values(rank.by_counting(key, self.axes, place), xs[0].dtype)


def ranked(op: RankPool, x: Array, autodiff: Autodiff = "jvp") -> Array:
    """What the op computes of x, with its derivative."""
    if by_network(op.window):
        return apply(op, autodiff, x)
    return _of_copies(op, autodiff, x)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _of_copies(op: RankPool, autodiff: Autodiff, x: Array) -> Array:
    """Large windows, each with a copy of its elements: the program does not grow with them."""
    window, laid = op.window, patches.lay_out(x.astype(accumulator(x.dtype)), op.window, 0)
    over = RankOver("max", op.ties, patches.tap_axes(window), window.window_shape, op.rank)
    if not window.padded and len(op.taps) == window.size:
        y = apply(over, autodiff, laid)
    else:
        real = patches.split(patches.real_taps(window, x.ndim), window)
        part = np.isin(np.arange(window.size), op.taps).reshape(window.window_shape)
        others = [axis for axis in range(laid.ndim) if axis not in over.axes]
        part = np.expand_dims(part.transpose(np.argsort(over.axes)), others)
        y = apply_given(over, laid, slices.broadcast_like(real & part, laid))[0]
    return lax.squeeze(y, over.axes).astype(x.dtype)
