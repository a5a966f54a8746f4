"""Grey dilation and erosion: the maximum of window elements plus a kernel, or the minimum of elements minus it.

A small kernel is one expression with a term per tap, a large kernel a loop over the taps.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import rank, rolled, slices, tap_loop
from jaxpool._kernels.compare import Ties, is_tied_with
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    accumulator_dtype,
    cast,
    is_float,
    reduction_identity,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.split_ties import divide_among_tied_taps, tie_bits_of_tap_values
from jaxpool._ops.chosen import pick, send
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.program_length import joins_taps_in_a_loop


def wide_dtype(dtype: DType) -> DType:
    """The dtype of sums, at least 32 bits wide."""
    small = not is_float(dtype) and dtype.itemsize < 4
    return jnp.dtype(np.int32) if small else accumulator_dtype(dtype)


@dataclasses.dataclass(frozen=True)
class Morphology(Op):
    """Maximum of elements plus a kernel ("max"), or minimum of elements minus a kernel ("min").

    The kernel has the shape `(window.size, *shape)`; `shape` has the rank of x, and size 1 except along `channels`.
    Only `taps` take part, flat and ascending; all of them with ties "split". Residual: the selected tap, or one bit
    per tied tap. With ties "split", a large kernel saves x, the kernel and y.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    kind: Kind
    channels: int | None = None  # the axis of x with a kernel per channel
    inputs = 2
    stores_inputs = True

    @property
    def _is_large(self) -> bool:
        return joins_taps_in_a_loop(self.window.size)

    @property
    def stores_residual(self) -> bool:
        return self._is_large and self.ties == "split"

    def weights(self, kernel: Array, dtype: DType) -> Array:
        """The terms to add at each tap."""
        weights = cast(kernel, dtype)
        return weights if self.kind == "max" else -weights

    @property
    def _join(self) -> Any:
        return lax.max if self.kind == "max" else lax.min

    def _term(self, row: Array, tap: Any, element: Array) -> Array:
        """The sum of the elements and weights of a tap, which may be traced; in the padding the identity."""
        term = element + slices.broadcast_like(row, element)
        if not self.window.padded or is_float(term.dtype):
            return term
        # A sum changes an integer fill.
        is_inside = slices.broadcast_like(
            tap_loop.tap_inside_mask(self.window, tap, term.ndim), term
        )
        fill = lax.full_like(term, reduction_identity(term.dtype, self.kind))
        return lax.select(is_inside, term, fill)

    def _terms(self, x: Array, kernel: Array) -> list[Array]:
        wide = wide_dtype(x.dtype)
        weights, fill = self.weights(kernel, wide), reduction_identity(wide, self.kind)
        padded = slices.pad_input(cast(x, wide), self.window, fill)
        terms = []
        for tap in self.taps:
            view = slices.elements_at_tap(padded, self.window, tap)
            terms.append(self._term(weights[tap], np.int32(tap), view))
        return terms

    def _walk(self, taps: Sequence[int] | None = None) -> rolled.TapLoop:
        """Return a loop over `taps`, by default over all taps."""
        return rolled.TapLoop(self.window, flat_taps=taps, has_weights=True)

    def _planes(self, x: Array, kernel: Array) -> tuple[Array, Array]:
        """The planes of x for `_walk`, and the terms to add at each tap."""
        wide = wide_dtype(x.dtype)
        planes = self._walk(self.taps).split_into_planes(
            cast(x, wide), reduction_identity(wide, self.kind)
        )
        return planes, self.weights(kernel, wide)

    def _best(self, x: Array, kernel: Array) -> Array:
        if not self._is_large:
            return functools.reduce(self._join, self._terms(x, kernel))
        planes, weights = self._planes(x, kernel)
        like = slices.elements_at_tap(slices.pad_input(x, self.window, 0), self.window, 0)

        def join(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            return (self._join(state[0], self._term(_row(weights, tap), tap, *elements)),)

        start = lax.full_like(like, reduction_identity(planes.dtype, self.kind), planes.dtype)
        return self._walk(self.taps).fold_over_taps(join, [start], [planes], x.shape, weights)[0]

    def value(self, platform: Platform, x: Array, kernel: Array) -> Array:
        return cast(self._best(x, kernel), x.dtype)

    def primal(self, platform: Platform, x: Array, kernel: Array) -> tuple[Array, Any]:
        split, last = self.ties == "split", self.ties == "last"
        if self._is_large:
            y = self._best(x, kernel)
            saved = x, kernel, y
            return cast(y, x.dtype), saved if split else self._tied(
                *saved
            ).first_or_last_selected_tap(take_last=last)

        def both(x: Array, kernel: Array) -> tuple[Array, Any]:
            y = materialise(barrier_on(platform), self._best, x, kernel)
            words = tie_bits_of_tap_values(self._terms(x, kernel), y, self.window, self.taps)
            return cast(y, x.dtype), words if split else rank.first_or_last_tied_tap(
                words, self.window, last
            )

        outputs: tuple[Array, Any] = materialise(barrier_on(platform), both, x, kernel)
        return outputs

    def _tied(self, x: Array, kernel: Array, y: Array) -> rolled.Selection:
        """The tied taps of a large kernel."""
        planes, weights = self._planes(x, kernel)

        def won(tap: Array, y: Array, element: Array) -> Array:
            return is_tied_with(element + slices.broadcast_like(_row(weights, tap), element), y)

        walk, padded = self._walk(self.taps), self.window.padded
        return rolled.Selection(walk, won, [y], [planes], splits_ties=True, excludes_padding=padded)

    def _selection(self, residual: Any) -> rolled.Selection:
        """The selected or tied taps of a large kernel."""
        if self.ties == "split":
            return self._tied(*residual)
        return rolled.selection_of_tap(self._walk(), residual)

    def _won(self, residual: Any, tap: Any) -> Array:
        """True where a tap of a small kernel, which may be traced, is selected or tied."""
        if self.ties != "split":
            return slices.is_tap_chosen(tap, residual)
        (word,) = residual  # small windows have at most 32 taps
        bit = lax.shift_left(np.ones((), word.dtype), jnp.asarray(tap, word.dtype))
        return lax.ne(lax.bitwise_and(word, lax.full_like(word, bit)), lax.full_like(word, 0))

    def linear(
        self, platform: Platform, residual: Any, x_dot: Array | None, k_dot: Array | None
    ) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, k_dot) if dot is not None)
        wide = accumulator_dtype(dtype)
        xs = [] if x_dot is None else [cast(x_dot, wide)]
        weights = [] if k_dot is None else [self.weights(k_dot, wide)]
        if self._is_large:
            selection = self._selection(residual)

            def term(tap: Array, *elements: Array) -> Array:
                rows = [
                    slices.broadcast_like(_row(w, tap), selection.window_arrays[0]) for w in weights
                ]
                return functools.reduce(lax.add, [*elements, *rows])

            planes = [self._walk().split_into_planes(x, 0) for x in xs]
            return cast(selection.mean_over_selected_taps(term, wide, planes, *weights), dtype)
        parts = [pick(self.window, x, residual, platform) for x in xs]
        for each in weights:
            masks = [(tap, self._won(residual, tap)) for tap in self.taps]
            terms = [
                slices.where_or_zero(won, slices.broadcast_like(each[tap], won))
                for tap, won in masks
            ]
            total = functools.reduce(lax.add, terms)
            parts.append(divide_among_tied_taps(total, residual) if self.ties == "split" else total)
        return cast(functools.reduce(lax.add, parts), dtype)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array, Array]:
        part = cast(dy, accumulator_dtype(dy.dtype))
        if self._is_large:
            selection = self._selection(residual)
            part = selection.divide_among_selected_taps(part)
            return selection.add_to_selected_elements(part, dy.dtype), self._to_kernel(
                selection.selected_at_tap, part, dy.dtype
            )
        if self.ties == "split":
            part = divide_among_tied_taps(part, residual)
        won = functools.partial(self._won, residual)
        dx = send(self.window, dy, residual, platform)
        return dx, self._to_kernel(won, part, dy.dtype)

    def _to_kernel(self, won: Callable[[Array], Array], part: Array, dtype: DType) -> Array:
        """The cotangent of the kernel: for each tap, the sum of `part` over the outputs that select it."""
        over = tuple(axis for axis in range(part.ndim) if axis != self.channels)

        def one(_: None, tap: Array) -> tuple[None, Array]:
            term = slices.where_or_zero(won(tap), part)
            return None, jnp.sum(term, axis=over, keepdims=True, dtype=term.dtype)

        dk: Array = lax.scan(one, None, jnp.arange(self.window.size, dtype=np.int32))[1]
        return cast(dk if self.kind == "max" else -dk, dtype)


def _row(weights: Array, tap: Array) -> Array:
    """The weights of a traced tap."""
    return lax.dynamic_index_in_dim(weights, tap, keepdims=False)
