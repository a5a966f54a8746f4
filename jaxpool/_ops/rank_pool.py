"""Rank and median pools: the element of a rank in each window. `ranked` applies them. `KMax` selects several ranks.

Elements are compared as integer keys. Small windows use a sorting network. Large windows find the key bit by bit, by
counting smaller keys, with reductions if a window spans its axes.
"""

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
from jaxpool._kernels import rank, rolled, slices
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.compare import Ties, to_comparison_dtype
from jaxpool._kernels.dtypes import DType, accumulator_dtype, index_dtype, is_float, widen_to_8_bits
from jaxpool._kernels.keys import (
    from_zero_tied_sort_keys,
    has_sign_bit,
    min_or_max_key,
    set_sign_of_zeros,
    zero_tied_sort_keys,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import int32_range, scatter_sorted
from jaxpool._kernels.reduce import attains_extremum
from jaxpool._kernels.split_ties import tie_bits_of_tap_values
from jaxpool._ops.apply import Autodiff, apply, apply_with_extra_args
from jaxpool._ops.chosen import TapPool, pick, walk_over
from jaxpool._ops.op import Op, partitioned
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.rank_pool import Rank, by_network, place_of, places, reduced, unrolled
from jaxpool._plan.tuning import tuning


def _values(key: Array, dtype: DType, *mask: Array) -> Array:
    """Convert keys to values. A masked window without elements gives 0, because its key would be a NaN."""
    if mask and is_float(dtype):
        nothing = lax.eq(key, lax.full_like(key, min_or_max_key(key.dtype, True)))
        key = lax.select(nothing, lax.full_like(key, 0), key)
    return from_zero_tied_sort_keys(key, dtype)


@dataclasses.dataclass(frozen=True)
class RankPool(TapPool):
    """The element of `rank` in each window. `value` and ties "split" return +0 for any zero.

    Only `taps` take part, flat and ascending: all of them if windows are padded. Residual: the selected tap; with ties
    "split" one bit per tap, or for large windows x, y and the mask. Masked elements have keys that no float has. A
    window with too few elements has an arbitrary result.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    rank: Rank

    stores_inputs = True

    @property
    def stores_residual(self) -> bool:
        return self.ties == "split" and not unrolled(self.window)

    @property
    def _is_median(self) -> bool:
        return isinstance(self.rank, str)

    def _fill(self, key: Array) -> np.ndarray:
        return min_or_max_key(key.dtype, isinstance(self.rank, str) or self.rank >= 0)

    def _key(self, x: Array, *mask: Array) -> Array:
        key = zero_tied_sort_keys(x)
        for each in mask:
            fill = lax.full_like(key, self._fill(key))
            key = lax.select(slices.broadcast_like(each, key), key, fill)
        return key

    def _each_tap(self, x: Array, fill: Any) -> list[Array]:
        padded = slices.pad_input(x, self.window, fill)
        return [slices.elements_at_tap(padded, self.window, tap) for tap in self.taps]

    def _terms(self, key: Array, *mask: Array) -> list[Array]:
        terms = self._each_tap(key, self._fill(key))
        if not mask or not self._is_median:
            return terms
        return rank.pad_around_median(terms, self._each_tap(mask[0], False), self.rank)

    def _walk(self, platform: Platform, key: Array) -> rolled.TapLoop:
        taps = None if len(self.taps) == self.window.size else tuple(self.taps)
        return dataclasses.replace(walk_over(self.window, key, platform), flat_taps=taps)

    def _found(self, platform: Platform, key: Array, *mask: Array) -> Array:
        """The key of the selected element of each window."""
        count, window = len(self.taps), self.window
        place: Any = place_of(self.rank, count)
        if by_network(count, platform):
            whole = count == window.size
            ranks = places(window, self.rank) if whole and not mask else (place,)
            return rank.select_by_sorting_network(self._terms(key, *mask), ranks, window, self.rank)
        if self._is_median and mask:
            place = place_of(
                self.rank, SumPool(window).linear(platform, (), mask[0].astype(np.int32))
            )
        elif self._is_median and window.padded:
            place = place_of(self.rank, rank.num_elements_inside(window, key.ndim))
        return rolled.key_of_rank_in_windows(self._walk(platform, key), key, place, self._fill(key))

    def value(self, platform: Platform, x: Array, *mask: Array) -> Array:
        return _values(self._found(platform, self._key(x, *mask), *mask), x.dtype, *mask)

    def primal(self, platform: Platform, x: Array, *mask: Array) -> tuple[Array, Any]:
        by, split, last = barrier_on(platform), self.ties == "split", self.ties == "last"

        def kernel(x: Array, *mask: Array) -> tuple[Array, Any]:
            key = self._key(x, *mask)
            y = materialise(by, functools.partial(self._found, platform), key, *mask)
            residual: Any = ()
            if unrolled(self.window):
                words = tie_bits_of_tap_values(self._terms(key), y, self.window, self.taps)
                residual = words if split else rank.first_or_last_tied_tap(words, self.window, last)
            elif not split:
                tied = rolled.selection_of_equal_keys(
                    self._walk(platform, key), key, y, self._fill(key)
                )
                residual = tied.first_or_last_selected_tap(take_last=last)
            return _values(y, x.dtype, *mask), residual

        y, residual = materialise(by, kernel, x, *mask)
        if split:
            return y, residual if unrolled(self.window) else (x, y, *mask)
        if is_float(x.dtype):
            # `pick` is a sum, which would lose the sign of a zero of x.
            picked = pick(self.window, has_sign_bit(x).astype(x.dtype), residual, platform)
            y = set_sign_of_zeros(y, lax.ne(picked, lax.full_like(picked, 0)))
        return y, residual

    def _tied(self, platform: Platform, residual: tuple[Array, ...]) -> rolled.Selection:
        x, y, *mask = residual
        key = self._key(x, *mask)
        return rolled.selection_of_equal_keys(
            self._walk(platform, key), key, zero_tied_sort_keys(y), self._fill(key)
        )

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        if self.stores_residual:
            return self._tied(platform, residual).pick(x_dot)
        return super().linear(platform, residual, x_dot)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        if self.stores_residual:
            return (self._tied(platform, residual).route(dy),)
        return super().transpose(platform, residual, dy)


@dataclasses.dataclass(frozen=True)
class RankOver(Reduction):
    """The element of `rank` over whole axes, with an optional mask.

    Residual with ties "split": one bit per element. Saving x would often store a temporary cast of it.
    """

    rank: Rank = "higher"

    stores_residual = False  # the residual is bits

    @property
    def _packed(self) -> int:
        """The axis that bits are packed along: the longest."""
        return max(zip(self.sizes, self.axes, strict=True))[1]

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, Any]:
        if self.ties != "split":
            return super().primal(platform, *xs)
        y, mask = self.value(platform, *xs), xs[1] if xs[1:] else None
        return y, pack_bits(attains_extremum(xs[0], y, mask), self._packed)

    def won(self, platform: Platform, residual: Any, shape: Sequence[Any]) -> Array:
        if self.ties != "split":
            return super().won(platform, residual, shape)
        return unpack_bits(residual, shape[self._packed], self._packed)

    def count(self, platform: Platform, residual: Any) -> Array:
        bits = lax.population_count(residual)
        return jnp.sum(bits, axis=self.axes, keepdims=True, dtype=np.int32)

    def value(self, platform: Platform, *xs: Array) -> Array:
        key = zero_tied_sort_keys(xs[0])
        real = xs[1] if xs[1:] else lax.full_like(key, True, np.bool_)
        place = self._place(xs[0], real)
        key = lax.select(real, key, lax.full_like(key, min_or_max_key(key.dtype, True)))
        return _values(rank.key_of_rank_over_axes(key, self.axes, place), xs[0].dtype, *xs[1:])

    def _count(self, real: Array) -> Array:
        return jnp.sum(real, axis=self.axes, keepdims=True, dtype=np.int32)

    def _place(self, x: Array, real: Array) -> Array:
        """The rank of the selected element among the `real` elements."""
        place: Array = place_of(self.rank, self._count(real))
        return place


@dataclasses.dataclass(frozen=True)
class LowerMedian(RankOver):
    """PyTorch's median over whole axes: the lower of the two middle elements if their number is even.

    The median is NaN if any element is NaN, or with `ignores_nan` if all are.
    """

    ignores_nan: bool = False

    def _place(self, x: Array, real: Array) -> Array:
        numbers, count = self._count(lax.bitwise_and(real, lax.eq(x, x))), self._count(real)
        middle = lax.max(numbers - 1, lax.full_like(numbers, 0)) // 2
        if self.ignores_nan:
            return middle
        return lax.select(lax.eq(numbers, count), middle, count - 1)  # NaNs rank last


@dataclasses.dataclass(frozen=True)
class KMax(Op):
    """The `count` largest of `size` elements along `axis`, in their original order. Residual: their indices."""

    axis: int
    size: int
    count: int

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Array]:
        def chosen(x: Array) -> Array:
            # top_k orders NaNs and zeros by their bits. Keys represent all NaNs by one value, and both zeros by one.
            keys = jnp.moveaxis(zero_tied_sort_keys(x), self.axis, -1)
            if partitioned.value and tuning(platform).gathers_for_top_k:
                order = jnp.argsort(jnp.bitwise_not(keys), axis=-1, stable=True)
                largest = lax.slice_in_dim(order, 0, self.count, axis=-1)
            else:
                largest = lax.top_k(
                    widen_to_8_bits(to_comparison_dtype(from_zero_tied_sort_keys(keys, x.dtype))),
                    self.count,
                )[1]
            first = lax.sort(largest, dimension=-1)
            return jnp.moveaxis(first, -1, self.axis).astype(index_dtype(self.size))

        index = materialise(barrier_on(platform), chosen, x)
        return self.linear(platform, index, x), index

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        at = index.astype(np.int32)
        return jnp.take_along_axis(x_dot, at, axis=self.axis, mode="promise_in_bounds")

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        """Each element receives the cotangent of the output with its index, or 0."""
        line = slices.reshape_along_axis(
            int32_range(self.size).astype(index.dtype), self.axis, dy.ndim
        )

        def sent(which: int) -> Array:
            at, value = (lax.slice_in_dim(x, which, which + 1, axis=self.axis) for x in (index, dy))
            return jnp.where(jnp.equal(at, line), value, np.zeros((), dy.dtype))

        # Comparisons vectorise, but the program grows with `count`.
        if self.count <= tuning(platform).compared_positions:
            return (functools.reduce(lax.add, map(sent, range(self.count))),)
        return (scatter_sorted(dy, index, self.axis, self.size),)


def ranked(op: RankPool, x: Array, *mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """Apply a rank pool to x, with an optional `where` mask."""
    if reduced(op.window):
        return _reduced(op, autodiff, x, *mask)
    return apply(op, autodiff, x, *mask)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _reduced(op: RankPool, autodiff: Autodiff, x: Array, *mask: Array) -> Array:
    """Apply a rank pool with one large window, by reductions over its axes."""
    window = op.window
    over = RankOver("max", op.ties, window.axes, window.window_shape, op.rank)
    wide = x.astype(accumulator_dtype(x.dtype))
    if len(op.taps) == window.size:
        counts = [slices.broadcast_like(each, x) for each in mask]
        return apply(over, autodiff, wide, *counts).astype(x.dtype)
    takes_part = np.isin(np.arange(window.size), op.taps).reshape(window.window_shape)
    others = [axis for axis in range(x.ndim) if axis not in over.axes]
    takes_part = np.expand_dims(takes_part.transpose(np.argsort(over.axes)), others)
    return apply_with_extra_args(over, wide, slices.broadcast_like(takes_part, x))[0].astype(
        x.dtype
    )
