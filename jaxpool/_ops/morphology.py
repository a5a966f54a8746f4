"""Grey dilation and erosion: the maximum of window elements plus a kernel, or the minimum of elements minus a kernel.

A small kernel unrolls to one term per tap (window index), a large kernel runs a loop over the taps.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import Window
from jaxpool._kernels import rank, rolled, slices, sums
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    Ties,
    accumulator_dtype,
    cast,
    full_like,
    is_float,
    is_tied_with,
    reduction_identity,
    scalar_like,
)
from jaxpool._kernels.slices import materialise
from jaxpool._kernels.split_ties import (
    BITS_PER_WORD,
    divide_among_tied_taps,
    tie_bits_of_tap_values,
)
from jaxpool._ops.chosen import pick_selected, pick_selected_transpose
from jaxpool._ops.op import Op, Residual
from jaxpool._plan.problem import Platform, barrier_of, taps_per_loop_step, unrolls_morphology


@dataclasses.dataclass(frozen=True)
class Morphology(Op):
    """Maximum of elements plus a kernel ("max"), or minimum of elements minus a kernel ("min").

    The kernel has the shape `(window.size, *shape)`; `shape` has the rank of x, and size 1 except along `channel_axis`.
    `taps` has the flat window indices that take part, ascending; all indices for ties "split". Residual: the selected
    tap, or for ties "split" one bit per tap. With ties "split", a large kernel instead saves x, the kernel and y.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    kind: Kind
    channel_axis: int | None = None  # the axis of x with a kernel per channel
    num_inputs = 2
    materialises_inputs = True

    @property
    def _is_large(self) -> bool:
        return not unrolls_morphology(self.window)

    @property
    def materialises_residual(self) -> bool:
        return self._is_large and self.ties == "split"

    def _weights(self, kernel: Array, dtype: DType) -> Array:
        """The terms to add to the elements at each window index: the kernel, negated for a minimum."""
        weights = cast(kernel, dtype)
        return weights if self.kind == "max" else -weights

    def _wide_dtype_and_fill(self, dtype: DType) -> tuple[DType, ArrayLike]:
        """The dtype of element plus kernel, at least 32 bits wide, and the identity of the operation."""
        is_small = not is_float(dtype) and dtype.itemsize < 4
        wide_dtype = jnp.dtype(np.int32) if is_small else accumulator_dtype(dtype)
        return wide_dtype, reduction_identity(wide_dtype, self.kind)

    def _term(self, tap_weights: Array, tap: ArrayLike, element: Array) -> Array:
        """`element + tap_weights` at the window index `tap`, which may be traced; the identity in integer padding."""
        term = element + slices.broadcast_like(tap_weights, element)
        if not self.window.is_padded or is_float(term.dtype):
            return term
        # Adding a weight changes the fill value of integer padding.
        is_inside = slices.broadcast_like(sums.tap_inside_mask(self.window, tap, term.ndim), term)
        fill = full_like(term, reduction_identity(term.dtype, self.kind))
        return lax.select(is_inside, term, fill)

    def _terms(self, x: Array, kernel: Array) -> list[Array]:
        dtype, fill = self._wide_dtype_and_fill(x.dtype)
        weights = self._weights(kernel, dtype)
        padded = slices.pad_input(cast(x, dtype), self.window, fill)
        terms = []
        for tap in self.taps:
            view = slices.elements_at_tap(padded, self.window, tap)
            terms.append(self._term(weights[tap], np.int32(tap), view))
        return terms

    def _tap_loop(self, taps: Sequence[int] | None = None) -> rolled.TapLoop:
        """Return a loop over the window indices `taps`, by default over all indices."""
        return rolled.TapLoop(self.window, taps_per_loop_step(has_weights=True), flat_taps=taps)

    def _planes_and_weights(self, x: Array, kernel: Array) -> tuple[Array, Array]:
        """The planes of x for `_tap_loop` (see `TapLoop`), and the kernel terms to add at each window index."""
        dtype, fill = self._wide_dtype_and_fill(x.dtype)
        planes = self._tap_loop(self.taps).to_planes(cast(x, dtype), fill)
        return planes, self._weights(kernel, dtype)

    def _extremum(self, x: Array, kernel: Array) -> Array:
        max_or_min = lax.max if self.kind == "max" else lax.min
        if not self._is_large:
            return functools.reduce(max_or_min, self._terms(x, kernel))
        planes, weights = self._planes_and_weights(x, kernel)
        like = slices.elements_at_tap(slices.pad_input(x, self.window, 0), self.window, 0)
        start = full_like(like, self._wide_dtype_and_fill(x.dtype)[1], planes.dtype)

        def join(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
            return (max_or_min(state[0], self._term(_tap_row(weights, tap), tap, *elements)),)

        loop = self._tap_loop(self.taps)
        return loop.fold_over_taps(join, [start], [planes], x.shape, weights)[0]

    def value(self, platform: Platform, x: Array, kernel: Array) -> Array:
        return cast(self._extremum(x, kernel), x.dtype)

    def primal(self, platform: Platform, x: Array, kernel: Array) -> tuple[Array, Residual]:
        split, last = self.ties == "split", self.ties == "last"

        def value_and_ties(x: Array, kernel: Array) -> tuple[Array, Residual]:
            y = materialise(barrier_of(platform), self._extremum, x, kernel)
            bits = tie_bits_of_tap_values(self._terms(x, kernel), y, self.window, self.taps)
            wide_y = cast(y, x.dtype)
            return wide_y, bits if split else rank.first_or_last_tied_tap(bits, self.window, last)

        if not self._is_large:
            outputs: tuple[Array, Residual]
            outputs = materialise(barrier_of(platform), value_and_ties, x, kernel)
            return outputs
        wide_y = self._extremum(x, kernel)
        y = cast(wide_y, x.dtype)
        if split:
            return y, (x, kernel, wide_y)
        tied = self._tied_taps(x, kernel, wide_y)
        return y, tied.first_or_last_selected_tap(take_last=last)

    def _tied_taps(self, x: Array, kernel: Array, y: Array) -> rolled.Selection:
        """The tied elements of each window, for a large kernel."""
        planes, weights = self._planes_and_weights(x, kernel)

        def is_tied(tap: Array, y: Array, element: Array) -> Array:
            return is_tied_with(element + slices.broadcast_like(_tap_row(weights, tap), element), y)

        loop, is_padded = self._tap_loop(self.taps), self.window.is_padded
        return rolled.Selection(
            loop, is_tied, [y], [planes], splits_ties=True, excludes_padding=is_padded
        )

    def _selection(self, residual: Residual) -> rolled.Selection:
        """The selected or tied elements of each window, for a large kernel."""
        if self.ties == "split":
            return self._tied_taps(*residual)
        return rolled.tap_selection(self._tap_loop(), residual)

    def _is_selected(self, residual: Residual, tap: ArrayLike) -> Array:
        """True where the window index `tap`, which may be traced, is selected or tied, for a small kernel."""
        if self.ties != "split":
            return slices.is_tap_chosen(tap, residual)
        masks = []
        for i, word in enumerate(residual):
            shift = jnp.asarray(tap - np.int32(i * BITS_PER_WORD)).astype(np.uint32)
            # 0 if the bit of the tap is in another word
            bit = lax.full_like(word, lax.shift_left(np.uint32(1), shift).astype(word.dtype))
            masks.append(lax.ne(lax.bitwise_and(word, bit), scalar_like(word, 0)))
        return functools.reduce(lax.bitwise_or, masks)

    def linear(
        self, platform: Platform, residual: Residual, x_dot: Array | None, kernel_dot: Array | None
    ) -> Array:
        dtype = next(dot.dtype for dot in (x_dot, kernel_dot) if dot is not None)
        sum_dtype = accumulator_dtype(dtype)
        xs = [] if x_dot is None else [cast(x_dot, sum_dtype)]
        weights = [] if kernel_dot is None else [self._weights(kernel_dot, sum_dtype)]
        if self._is_large:
            selection = self._selection(residual)
            (like, *_) = selection.window_arrays

            def term(tap: Array, *elements: Array) -> Array:
                rows = [slices.broadcast_like(_tap_row(w, tap), like) for w in weights]
                return functools.reduce(lax.add, [*elements, *rows])

            planes = [self._tap_loop().to_planes(x, 0) for x in xs]
            return cast(selection.mean_over_selected_taps(term, sum_dtype, planes, *weights), dtype)
        parts = [pick_selected(self.window, x, residual, platform) for x in xs]
        for weight in weights:
            masks = [self._is_selected(residual, tap) for tap in self.taps]
            terms = [
                slices.where_or_zero(mask, slices.broadcast_like(weight[tap], mask))
                for tap, mask in zip(self.taps, masks, strict=True)
            ]
            total = functools.reduce(lax.add, terms)
            parts.append(divide_among_tied_taps(total, residual) if self.ties == "split" else total)
        return cast(functools.reduce(lax.add, parts), dtype)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array, Array]:
        share = cast(dy, accumulator_dtype(dy.dtype))
        if self._is_large:
            selection = self._selection(residual)
            share = selection.divide_among_selected_taps(share)
            dx = selection.add_to_selected_elements(share, dy.dtype)
            return dx, self._kernel_ct(selection.mask_at_tap, share, dy.dtype)
        if self.ties == "split":
            share = divide_among_tied_taps(share, residual)
        selects = functools.partial(self._is_selected, residual)
        dx = pick_selected_transpose(self.window, dy, residual, platform)
        return dx, self._kernel_ct(selects, share, dy.dtype)

    def _kernel_ct(self, selects: Callable[[Array], Array], share: Array, dtype: DType) -> Array:
        """Cotangent of the kernel: for each window index, the sum of `share` over the outputs that select the index."""
        summed_axes = tuple(axis for axis in range(share.ndim) if axis != self.channel_axis)

        def scan_step(_: None, tap: Array) -> tuple[None, Array]:
            term = slices.where_or_zero(selects(tap), share)
            return None, jnp.sum(term, axis=summed_axes, keepdims=True, dtype=term.dtype)

        dk: Array = lax.scan(scan_step, None, jnp.arange(self.window.size, dtype=np.int32))[1]
        return cast(dk if self.kind == "max" else -dk, dtype)


def _tap_row(weights: Array, tap: Array) -> Array:
    """The kernel terms at a traced window index `tap`."""
    return lax.dynamic_index_in_dim(weights, tap, keepdims=False)
