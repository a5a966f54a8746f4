"""Grey dilation and erosion: the maximum of window elements plus a kernel, or the minimum of elements minus it.

`morphology_op` chooses between one expression per tap and, for large windows, loops over the taps.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import rank, rolled, slices, tap_loop
from jaxpool._kernels.compare import Ties, ties_with
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    accumulator,
    cast,
    identity_of,
    index_dtype,
    is_float,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.split_ties import pick_tied, route_tied, share, tied_taps
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.others import joins_taps_in_a_loop
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.rank_pool import plan_rank
from jaxpool._plan.stages import OpPlan, of_steps, taps

TO_KERNEL = "to the kernel"


def wide_dtype(dtype: DType) -> DType:
    """The dtype of sums, at least 32 bits wide."""
    small = not is_float(dtype) and dtype.itemsize < 4
    return jnp.dtype(np.int32) if small else accumulator(dtype)


@dataclasses.dataclass(frozen=True)
class Morphology(Op):
    """Maximum of elements plus a kernel ("max"), or minimum of elements minus a kernel ("min").

    The kernel has the shape `(window.size, *shape)`; `shape` has the rank of x, and size 1 except along `channels`.
    Only `taps` take part, flat and ascending. Residual: the selected tap, or one bit per tied tap.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    kind: Kind
    channels: int | None  # the axis of x with a kernel per channel
    inputs = 2
    stores_inputs = True

    def plan(self, platform: Platform, x: Any, *kernel: Any) -> OpPlan:
        every, problem = taps(self.window), problem_of(self.window, x, platform)
        if self.ties == "split":
            tangent, back = every, of_steps([plan_ties(problem)], back=True)
        else:
            sent = plan_rank(problem)
            tangent, back = of_steps(sent.tangent[::-1]), of_steps(sent.backward, back=True)
        to_kernel = taps(self.window, "walked", TO_KERNEL)
        return OpPlan((*every, *every), (*tangent, *every), (*back, *to_kernel), every)

    def weights(self, kernel: Array, dtype: DType) -> Array:
        """The terms to add at each tap."""
        weights = cast(kernel, dtype)
        return weights if self.kind == "max" else -weights

    @property
    def _join(self) -> Any:
        return lax.max if self.kind == "max" else lax.min

    def _terms(self, x: Array, kernel: Array) -> list[Array]:
        wide = wide_dtype(x.dtype)
        weights, fill = self.weights(kernel, wide), identity_of(wide, self.kind)
        padded = slices.pad_input(cast(x, wide), self.window, fill)
        terms = []
        for tap in self.taps:
            view = slices.tap_of(padded, self.window, tap)
            term = view + slices.broadcast_like(weights[tap], view)
            if self.window.padded and not is_float(wide):  # a sum changes an integer fill
                is_inside = slices.broadcast_like(
                    tap_loop.real_at(self.window, np.int32(tap), x.ndim), term
                )
                term = lax.select(is_inside, term, lax.full_like(term, fill))
            terms.append(term)
        return terms

    def _best(self, x: Array, kernel: Array) -> Array:
        return functools.reduce(self._join, self._terms(x, kernel))

    def value(self, platform: Platform, x: Array, kernel: Array) -> Array:
        return cast(self._best(x, kernel), x.dtype)

    def primal(self, platform: Platform, x: Array, kernel: Array) -> tuple[Array, Any]:
        def both(x: Array, kernel: Array) -> tuple[Array, Any]:
            y = materialise(barrier_on(platform), self._best, x, kernel)
            words = tied_taps(self._terms(x, kernel), y, self.window, self.taps)
            split = self.ties == "split"
            residual = words if split else rank.one_tap(words, self.window, self.ties == "last")
            return cast(y, x.dtype), residual

        outputs: tuple[Array, Any] = materialise(barrier_on(platform), both, x, kernel)
        return outputs

    def _won(self, residual: Any, tap: Any) -> Array:
        """True where a tap, which may be traced, is selected or tied."""
        if self.ties != "split":
            return lax.eq(residual, lax.full_like(residual, jnp.asarray(tap, residual.dtype)))
        (word,) = residual  # small windows have at most 32 taps
        bit = lax.shift_left(np.ones((), word.dtype), jnp.asarray(tap, word.dtype))
        return lax.ne(lax.bitwise_and(word, lax.full_like(word, bit)), lax.full_like(word, 0))

    def linear(
        self, platform: Platform, residual: Any, x_dot: Array | None, k_dot: Array | None
    ) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        parts = []
        if x_dot is not None:
            x_dot = cast(x_dot, accumulator(dtype))
            if self.ties == "split":
                parts.append(pick_tied(x_dot, residual, self.window))
            else:
                parts.append(
                    pick(x_dot, residual, plan_rank(problem_of(self.window, x_dot, platform)))
                )
        if k_dot is not None:
            weights = self.weights(k_dot, accumulator(dtype))
            terms = []
            for tap in self.taps:
                won = self._won(residual, tap)
                weight = slices.broadcast_like(weights[tap], won)
                terms.append(lax.select(won, weight, lax.full_like(weight, 0)))
            total = functools.reduce(lax.add, terms)
            parts.append(share(total, residual) if self.ties == "split" else total)
        return cast(functools.reduce(lax.add, parts), dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array, Array]:
        problem = problem_of(self.window, dy, platform, self.window.unpooled(dy.shape))
        part = cast(dy, accumulator(dy.dtype))
        if self.ties == "split":
            dx = route_tied(dy, residual, plan_ties(problem))
            part = share(part, residual)
        else:
            dx = route(dy, residual, plan_rank(problem))
        return dx, self._sent_to_kernel(functools.partial(self._won, residual), part, dy.dtype)

    def _sent_to_kernel(self, won: Callable[[Array], Array], part: Array, dtype: DType) -> Array:
        """The cotangent of the kernel: for each tap, the sum of `part` over the outputs that select it."""
        over = tuple(axis for axis in range(part.ndim) if axis != self.channels)

        def one(_: None, tap: Array) -> tuple[None, Array]:
            term = slices.where_or_zero(won(tap), part)
            return None, jnp.sum(term, axis=over, keepdims=True, dtype=term.dtype)

        dk: Array = lax.scan(one, None, jnp.arange(self.window.size, dtype=np.int32))[1]
        return cast(dk if self.kind == "max" else -dk, dtype)


@dataclasses.dataclass(frozen=True)
class LargeMorphology(Morphology):
    """`Morphology` of a large window, by loops over its taps.

    Residual: the selected tap, or with ties "split", where all taps take part, x, the kernel and y.
    """

    @property
    def stores_residual(self) -> bool:
        return self.ties == "split"

    def plan(self, platform: Platform, x: Any, *kernel: Any) -> OpPlan:
        walked, to_kernel = taps(self.window, "walked"), taps(self.window, "walked", TO_KERNEL)
        split = self.ties == "split"
        count_stages = walked if split else ()
        forward = walked if split else (*walked, *walked)
        return OpPlan(
            forward, (*count_stages, *walked), (*count_stages, *walked, *to_kernel), walked
        )

    def _walk(self, taps: Sequence[int] | None = None) -> rolled.Walk:
        """Return a loop over `taps`, by default over all taps."""
        return rolled.Walk(self.window, taps=taps, weighted=True)

    def _planes(self, x: Array, kernel: Array) -> tuple[Array, Array]:
        """The planes of x for `_walk`, and the terms to add at each tap."""
        wide = wide_dtype(x.dtype)
        planes = self._walk(self.taps).planes(cast(x, wide), identity_of(wide, self.kind))
        return planes, self.weights(kernel, wide)

    def _here(self, tap: Array, like: Array) -> Array:
        """True where a tap is inside the array."""
        return slices.broadcast_like(tap_loop.real_at(self.window, tap, like.ndim), like)

    def _best(self, x: Array, kernel: Array) -> Array:
        planes, weights = self._planes(x, kernel)
        fill = identity_of(planes.dtype, self.kind)
        like = slices.tap_of(slices.pad_input(x, self.window, 0), self.window, 0)

        def join(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            term = _term(weights, tap, *elements)
            if self.window.padded and not is_float(term.dtype):  # a sum changes an integer fill
                term = lax.select(self._here(tap, term), term, lax.full_like(term, fill))
            return (self._join(state[0], term),)

        start = lax.full_like(like, fill, planes.dtype)
        return self._walk(self.taps).fold(join, [start], [planes], x.shape, weights)[0]

    def _ties(self, term: Array, y: Array, tap: Array) -> Array:
        """True where `term`, the sum at `tap`, ties with the output y."""
        ties = ties_with(term, y)
        return lax.bitwise_and(ties, self._here(tap, ties)) if self.window.padded else ties

    def primal(self, platform: Platform, x: Array, kernel: Array) -> tuple[Array, Any]:
        y = self._best(x, kernel)
        if self.ties == "split":
            return cast(y, x.dtype), (x, kernel, y)
        planes, weights = self._planes(x, kernel)
        dtype = index_dtype(self.window.size)

        def find(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            ties = self._ties(_term(weights, tap, *elements), y, tap)
            (index,) = state
            return (lax.select(ties, lax.full_like(index, tap.astype(dtype)), index),)

        walk = self._walk(self.taps if self.ties == "last" else self.taps[::-1])
        start = lax.full_like(y, 0, dtype)
        (index,) = walk.fold(find, [start], [planes], x.shape, weights, y)
        return cast(y, x.dtype), index

    def _counts(self, x: Array, kernel: Array, y: Array) -> Array:
        """The number of tied taps of each window, at least 1."""
        planes, weights = self._planes(x, kernel)

        def count(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            ties = self._ties(_term(weights, tap, *elements), y, tap)
            return (state[0] + ties.astype(y.dtype),)

        start = lax.full_like(y, 0)
        (counts,) = self._walk().fold(count, [start], [planes], x.shape, weights, y)
        return lax.max(counts, lax.full_like(counts, 1))

    def linear(
        self, platform: Platform, residual: Any, x_dot: Array | None, k_dot: Array | None
    ) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        wide, walk, read = accumulator(dtype), self._walk(), []
        split = self.ties == "split"
        if split:
            x, kernel, y = residual
            planes, weights = self._planes(x, kernel)
            read.append(planes)
        if x_dot is not None:
            read.append(walk.planes(cast(x_dot, wide), 0))
        k_sent = None if k_dot is None else self.weights(k_dot, wide)

        def add(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            (total,) = state
            elements = [*elements]
            won = self._ties(_term(weights, tap, elements.pop(0)), y, tap) if split else None
            is_selected = self._won(residual, tap) if won is None else won
            parts = elements + ([] if k_sent is None else [_row(k_sent, tap, total)])
            return (total + slices.where_or_zero(is_selected, functools.reduce(lax.add, parts)),)

        like = residual[2] if split else residual
        window_arrays = [each for each in (*jax.tree.leaves(residual), k_sent) if each is not None]
        shape = self.window.unpooled(like.shape)
        (total,) = walk.fold(add, [lax.full_like(like, 0, wide)], read, shape, *window_arrays)
        if split:
            total = total / self._counts(*residual).astype(total.dtype)
        return cast(total, dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array, Array]:
        part, walk = cast(dy, accumulator(dy.dtype)), self._walk()
        if self.ties != "split":
            dx = walk.spread(slices.at_tap, [part, residual], dtype=part.dtype)
            won: Callable[[Array], Array] = functools.partial(self._won, residual)
        else:
            x, kernel, y = residual
            part = part / self._counts(*residual).astype(part.dtype)
            planes, weights = self._planes(x, kernel)

            def shared(tap: Array, part: Array, y: Array, x: Array) -> Array:
                return slices.where_or_zero(ties_with(_term(weights, tap, x), y), part)

            dx = walk.spread(shared, [part, y], planes, dtype=part.dtype)

            def ties(tap: Array) -> Array:
                return self._ties(_term(weights, tap, walk.at(planes, tap)), y, tap)

            won = ties
        dx = walk.from_planes(dx, self.window.unpooled(dy.shape))
        return cast(dx, dy.dtype), self._sent_to_kernel(won, part, dy.dtype)


def _row(weights: Array, tap: Array, like: Array) -> Array:
    """The weights of a tap with the shape of `like`."""
    return slices.broadcast_like(lax.dynamic_index_in_dim(weights, tap, keepdims=False), like)


def _term(weights: Array, tap: Array, elements: Array) -> Array:
    """The sums of elements and weights at a tap."""
    return elements + _row(weights, tap, elements)


def morphology_op(
    window: Window, ties: Ties, taps: Sequence[int], kind: Kind, channels: int | None = None
) -> Morphology:
    """The op for the number of taps of the window."""
    large = joins_taps_in_a_loop(window.size)
    return (LargeMorphology if large else Morphology)(window, ties, taps, kind, channels)
