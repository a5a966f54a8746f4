"""Elements of a rank, and grey morphology: what is chosen among the taps of each window."""

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
from jaxpool._kernels.dtypes import Kind, accumulator, cast, is_float, losing
from jaxpool._kernels.keep import keep
from jaxpool._kernels.reduce import attained, pack, unpack
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.split_ties import (
    pick_tied,
    route_tied,
    share,
    tied,
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
    """The element of `rank` over whole axes, None the median, of those that a mask counts.

    With "split" it keeps a bit an element: nothing else keeps what was laid out for it.
    """

    rank: int | None = None

    @property
    def _packed(self) -> int:
        """The axis along which bits are packed: the longest."""
        return max(zip(self.sizes, self.axes, strict=True))[1]

    def primal(self, on: Platform, *xs: Array) -> tuple[Array, Any]:
        if self.ties != "split":
            return super().primal(on, *xs)
        y = self.value(on, *xs)
        mask = xs[1] if xs[1:] else None
        return y, pack(attained(xs[0], y, mask), self._packed)

    def won(self, on: Platform, kept: Any, shape: Sequence[Any]) -> Array:
        if self.ties != "split":
            return super().won(on, kept, shape)
        return unpack(kept, shape[self._packed], self._packed)

    def count(self, on: Platform, kept: Any) -> Array:
        bits = lax.population_count(kept)
        count = jnp.sum(bits, axis=self.axes, keepdims=True, dtype=np.int32)
        return lax.max(count, lax.full_like(count, 1))

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


@dataclasses.dataclass(frozen=True)
class Morphology(RankPool):
    """The maximum of elements plus a kernel ("max"), or the minimum of elements minus it ("min").

    The kernel has its taps along the first axis and after that the axes of x: of size 1, but for
    that of the channels, where it has one for each.
    """

    kind: Kind
    channels: int | None  # the axis along which kernels differ
    inputs = 2

    def terms(self, x: Array, kernel: Array) -> list[Array]:
        small = not is_float(x.dtype) and x.dtype.itemsize < 4
        wide = jnp.dtype(np.int32) if small else accumulator(x.dtype)
        weights = cast(kernel, wide)
        weights = weights if self.kind == "max" else -weights
        fill = losing(wide, self.kind)
        padded = slices.pad_input(cast(x, wide), self.window, fill)
        terms, real = [], [dim.inside() for dim in self.window.dims]
        for tap in self.taps:
            view = slices.tap_of(padded, self.window, tap)
            term = view + slices.broadcast_like(weights[tap], view)
            if self.window.padded and not is_float(wide):  # no integer stays what it is
                at = zip(real, self.window.unravel(tap), strict=True)
                lines = [each[:, along] for each, along in at]
                here = slices.crossed(jnp.logical_and, lines, self.window.axes, x.ndim)
                here = slices.broadcast_like(here, term)
                term = lax.select(here, term, lax.full_like(term, fill))
            terms.append(term)
        return terms

    def chosen(self, terms: Sequence[Array]) -> Array:
        return functools.reduce(lax.max if self.kind == "max" else lax.min, terms)

    def result(self, y: Array, *xs: Array) -> Array:
        return cast(y, xs[0].dtype)

    def _won(self, kept: Any, tap: int) -> Array:
        return tied(kept, tap) if self.ties == "split" else lax.eq(kept, lax.full_like(kept, tap))

    def linear(self, on: Platform, kept: Any, x_dot: Array | None, k_dot: Array | None) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        parts = []
        if x_dot is not None:
            parts.append(super().linear(on, kept, cast(x_dot, accumulator(dtype))))
        if k_dot is not None:
            weights = cast(k_dot if self.kind == "max" else -k_dot, accumulator(dtype))
            terms = []
            for tap in self.taps:
                won = self._won(kept, tap)
                weight = slices.broadcast_like(weights[tap], won)
                terms.append(lax.select(won, weight, lax.full_like(weight, 0)))
            total = functools.reduce(lax.add, terms)
            parts.append(share(total, kept) if self.ties == "split" else total)
        return cast(functools.reduce(lax.add, parts), dtype)

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array, Array]:
        (dx,) = super().transpose(on, kept, dy)
        part = cast(dy, accumulator(dy.dtype))
        part = share(part, kept) if self.ties == "split" else part
        over = tuple(axis for axis in range(dy.ndim) if axis != self.channels)
        rows = []
        for tap in range(self.window.size):
            won = lax.select(self._won(kept, tap), part, lax.full_like(part, 0))
            rows.append(jnp.sum(won, axis=over, keepdims=True, dtype=part.dtype))
        dk = cast(jnp.stack(rows), dy.dtype)
        return dx, dk if self.kind == "max" else -dk
