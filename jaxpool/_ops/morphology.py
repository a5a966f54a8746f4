"""Grey morphology: the best sum of the elements of each window and a kernel."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import rank, slices, tap_loop
from jaxpool._kernels.compare import Ties, level
from jaxpool._kernels.dtypes import DType, Kind, accumulator, cast, index_dtype, is_float, losing
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
    """The type in which sums are made and compared: four bytes or more."""
    small = not is_float(dtype) and dtype.itemsize < 4
    return jnp.dtype(np.int32) if small else accumulator(dtype)


@dataclasses.dataclass(frozen=True)
class Morphology(Op):
    """The maximum of elements plus a kernel ("max"), or the minimum of elements minus it ("min").

    The kernel has the taps of the window along the first axis and after that the axes of x: of size 1,
    but for that of the channels, where it has one for each. `taps`, flat and ascending, take part.
    Keeps which tap was chosen, or a bit for each that ties.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    kind: Kind
    channels: int | None  # the axis along which kernels differ
    inputs = 2

    def plan(self, on: Platform, x: Any, *kernel: Any) -> OpPlan:
        every, problem = taps(self.window), problem_of(self.window, x, on)
        if self.ties == "split":
            tangent, back = every, of_steps([plan_ties(problem)], back=True)
        else:
            sent = plan_rank(problem)
            tangent, back = of_steps(sent.tangent[::-1]), of_steps(sent.backward, back=True)
        to_kernel = taps(self.window, "walked", TO_KERNEL)
        return OpPlan((*every, *every), (*tangent, *every), (*back, *to_kernel), every)

    def weights(self, kernel: Array, dtype: DType) -> Array:
        """What is added at each tap."""
        weights = cast(kernel, dtype)
        return weights if self.kind == "max" else -weights

    @property
    def _join(self) -> Any:
        return lax.max if self.kind == "max" else lax.min

    def _terms(self, x: Array, kernel: Array) -> list[Array]:
        wide = wide_dtype(x.dtype)
        weights, fill = self.weights(kernel, wide), losing(wide, self.kind)
        padded = slices.pad_input(cast(x, wide), self.window, fill)
        terms = []
        for tap in self.taps:
            view = slices.tap_of(padded, self.window, tap)
            term = view + slices.broadcast_like(weights[tap], view)
            if self.window.padded and not is_float(wide):  # no integer stays what it is
                here = slices.broadcast_like(
                    tap_loop.real_at(self.window, np.int32(tap), x.ndim), term
                )
                term = lax.select(here, term, lax.full_like(term, fill))
            terms.append(term)
        return terms

    def _best(self, x: Array, kernel: Array) -> Array:
        return functools.reduce(self._join, self._terms(x, kernel))

    def value(self, on: Platform, x: Array, kernel: Array) -> Array:
        return cast(self._best(x, kernel), x.dtype)

    def primal(self, on: Platform, x: Array, kernel: Array) -> tuple[Array, Any]:
        def both(x: Array, kernel: Array) -> tuple[Array, Any]:
            y = materialise(barrier_on(on), self._best, x, kernel)
            words = tied_taps(self._terms(x, kernel), y, self.window, self.taps)
            split = self.ties == "split"
            kept = words if split else rank.one_tap(words, self.window, self.ties == "last")
            return cast(y, x.dtype), kept

        found: tuple[Array, Any] = materialise(barrier_on(on), both, x, kernel)
        return found

    def _won(self, kept: Any, tap: Any) -> Array:
        """Where a tap, which may be traced, was chosen or ties."""
        if self.ties != "split":
            return lax.eq(kept, lax.full_like(kept, jnp.asarray(tap, kept.dtype)))
        (word,) = kept  # of so few taps one is enough
        bit = lax.shift_left(np.ones((), word.dtype), jnp.asarray(tap, word.dtype))
        return lax.ne(lax.bitwise_and(word, lax.full_like(word, bit)), lax.full_like(word, 0))

    def linear(self, on: Platform, kept: Any, x_dot: Array | None, k_dot: Array | None) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        parts = []
        if x_dot is not None:
            x_dot = cast(x_dot, accumulator(dtype))
            if self.ties == "split":
                parts.append(pick_tied(x_dot, kept, self.window))
            else:
                parts.append(pick(x_dot, kept, plan_rank(problem_of(self.window, x_dot, on))))
        if k_dot is not None:
            weights = self.weights(k_dot, accumulator(dtype))
            terms = []
            for tap in self.taps:
                won = self._won(kept, tap)
                weight = slices.broadcast_like(weights[tap], won)
                terms.append(lax.select(won, weight, lax.full_like(weight, 0)))
            total = functools.reduce(lax.add, terms)
            parts.append(share(total, kept) if self.ties == "split" else total)
        return cast(functools.reduce(lax.add, parts), dtype)

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array, Array]:
        problem = problem_of(self.window, dy, on, self.window.unpooled(dy.shape))
        part = cast(dy, accumulator(dy.dtype))
        if self.ties == "split":
            dx = route_tied(dy, kept, plan_ties(problem))
            part = share(part, kept)
        else:
            dx = route(dy, kept, plan_rank(problem))
        return dx, self._sent_to_kernel(functools.partial(self._won, kept), part, dy.dtype)

    def _sent_to_kernel(self, won: Callable[[Array], Array], part: Array, dtype: DType) -> Array:
        """The cotangent of the kernel: of each tap, what the outputs that it has `won` pass on."""
        over = tuple(axis for axis in range(part.ndim) if axis != self.channels)
        dk = tap_loop.sums_of_taps(self.window.size, lambda tap: slices.only(won(tap), part), over)
        return cast(dk if self.kind == "max" else -dk, dtype)


@dataclasses.dataclass(frozen=True)
class LargeMorphology(Morphology):
    """`Morphology` of a large window, by loops over its taps.

    Keeps which tap was chosen; where ties are split x, the kernel and y, which are less than a bit for
    each tap, and then all taps take part.
    """

    def plan(self, on: Platform, x: Any, *kernel: Any) -> OpPlan:
        walked, to_kernel = taps(self.window, "walked"), taps(self.window, "walked", TO_KERNEL)
        split = self.ties == "split"
        counted = walked if split else ()
        forward = walked if split else (*walked, *walked)
        return OpPlan(forward, (*counted, *walked), (*counted, *walked, *to_kernel), walked)

    def _term(self, laid: Array, weights: Array, tap: Array) -> Array:
        view = tap_loop.elements(laid, self.window, tap)
        row = lax.dynamic_index_in_dim(weights, tap, keepdims=False)
        return view + slices.broadcast_like(row, view)

    def _laid_out(self, x: Array, kernel: Array) -> tuple[Array, Array]:
        wide = wide_dtype(x.dtype)
        laid = tap_loop.in_strides(cast(x, wide), self.window, losing(wide, self.kind))
        return laid, self.weights(kernel, wide)

    def _best(self, x: Array, kernel: Array) -> Array:
        laid, weights = self._laid_out(x, kernel)
        fill = losing(laid.dtype, self.kind)
        start = self._like_output(laid, fill)

        def join(tap: Array, best: Array) -> Array:
            term = self._term(laid, weights, tap)
            if self.window.padded and not is_float(term.dtype):  # no integer stays what it is
                here = slices.broadcast_like(tap_loop.real_at(self.window, tap, term.ndim), term)
                term = lax.select(here, term, lax.full_like(term, fill))
            return self._join(best, term)

        return tap_loop.over_taps(self.taps, join, start, laid, weights)

    def _like_output(self, laid: Array, value: Any, dtype: DType | None = None) -> Array:
        """The shape of the output filled with one value."""
        return lax.full_like(tap_loop.elements(laid, self.window, np.int32(0)), value, dtype)

    def _ties(self, laid: Array, weights: Array, y: Array, tap: Array) -> Array:
        """Where `tap` is one of those whose sum is y."""
        ties = level(self._term(laid, weights, tap), y)
        if self.window.padded:
            here = slices.broadcast_like(tap_loop.real_at(self.window, tap, ties.ndim), ties)
            ties = lax.bitwise_and(ties, here)
        return ties

    def primal(self, on: Platform, x: Array, kernel: Array) -> tuple[Array, Any]:
        y = self._best(x, kernel)
        if self.ties == "split":
            return cast(y, x.dtype), (x, kernel, y)
        laid, weights = self._laid_out(x, kernel)
        dtype = index_dtype(self.window.size)

        def find(tap: Array, index: Array) -> Array:
            ties = self._ties(laid, weights, y, tap)
            return lax.select(ties, lax.full_like(index, tap.astype(dtype)), index)

        in_turn = self.taps if self.ties == "last" else self.taps[::-1]
        start = self._like_output(laid, 0, dtype)
        return cast(y, x.dtype), tap_loop.over_taps(in_turn, find, start, laid, weights, y)

    def _winning(self, kept: Any) -> tuple[Any, Array | None, list[Array]]:
        """Where a tap was chosen, as a function of it; how many tie, if ties are split; the arrays that it reads."""
        if self.ties != "split":
            return functools.partial(self._won, kept), None, [kept]
        x, kernel, y = kept
        laid, weights = self._laid_out(x, kernel)
        reads = [laid, weights, y]
        won = functools.partial(self._ties, laid, weights, y)

        def count(tap: Array, found: Array) -> Array:
            return found + won(tap).astype(found.dtype)

        none = lax.full_like(y, 0)
        counts = tap_loop.over_taps(range(self.window.size), count, none, *reads)
        return won, lax.max(counts, lax.full_like(counts, 1)), reads

    def linear(self, on: Platform, kept: Any, x_dot: Array | None, k_dot: Array | None) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        won, counts, reads = self._winning(kept)
        laid = weights = None
        if x_dot is not None:
            laid = tap_loop.in_strides(cast(x_dot, accumulator(dtype)), self.window, 0)
            reads = [*reads, laid]
        if k_dot is not None:
            weights = self.weights(k_dot, accumulator(dtype))
            reads = [*reads, weights]
        start = lax.full_like(reads[0] if counts is None else counts, 0, accumulator(dtype))

        def add(tap: Array, total: Array) -> Array:
            here, parts = won(tap), []
            if laid is not None:
                parts.append(tap_loop.elements(laid, self.window, tap))
            if weights is not None:
                row = lax.dynamic_index_in_dim(weights, tap, keepdims=False)
                parts.append(slices.broadcast_like(row, total))
            return total + slices.only(here, functools.reduce(lax.add, parts))

        total = tap_loop.over_taps(range(self.window.size), add, start, *reads)
        return cast(total if counts is None else total / counts.astype(total.dtype), dtype)

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array, Array]:
        won, counts, _ = self._winning(kept)
        part = cast(dy, accumulator(dy.dtype))
        if counts is None:
            dx = tap_loop.to_elements(self.window, _sent, [part, kept])
        else:
            part = part / counts.astype(part.dtype)
            x, kernel, y = kept
            wide = cast(x, y.dtype), self.weights(kernel, y.dtype)
            dx = tap_loop.to_elements(self.window, _shared, [part, y], *wide)
        return cast(dx, dy.dtype), self._sent_to_kernel(won, part, dy.dtype)


def _sent(tap: Array, real: Array | None, dy: Array, index: Array) -> Array:
    """dy where the tap was chosen."""
    chosen = lax.eq(index, tap.astype(index.dtype))
    return slices.only(chosen if real is None else lax.bitwise_and(chosen, real), dy)


def _shared(
    tap: Array, real: Array | None, part: Array, y: Array, x: Array, weight: Array
) -> Array:
    """The share of dy where the tap is one of those whose sum is y."""
    ties = level(x + weight, y)
    return slices.only(ties if real is None else lax.bitwise_and(ties, real), part)


def morphology_op(
    window: Window, ties: Ties, taps: Sequence[int], kind: Kind, channels: int | None = None
) -> Morphology:
    """The op of a window, by how many taps it has."""
    large = joins_taps_in_a_loop(window.size)
    return (LargeMorphology if large else Morphology)(window, ties, taps, kind, channels)
