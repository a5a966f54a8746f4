"""Rank and median pools: the element at a given position in the sorted order of each window.

`apply_rank_pool` applies a `RankPool`. `KMax` selects the largest elements along an axis.

Elements are compared as sort keys (integers). Small windows use a sorting network. Large windows find the selected key
bit by bit, by counting smaller keys; a window that spans its axes counts with reductions.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import Window
from jaxpool._kernels import keys, rank, rolled, slices
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.dtypes import (
    DType,
    Ties,
    accumulator_dtype,
    full_like,
    index_dtype,
    is_float,
    scalar_like,
    to_comparison_dtype,
    where,
    widen_to_8_bits,
)
from jaxpool._kernels.positions import elements_per_window, int32_iota, scatter_at_sorted
from jaxpool._kernels.reduce import attains_extremum
from jaxpool._kernels.slices import materialise
from jaxpool._kernels.split_ties import tie_bits_of_tap_values
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.chosen import TapResidualPool, make_tap_loop
from jaxpool._ops.op import Op, Residual, is_partitioned
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan import rank_pool as plans
from jaxpool._plan.max_pool import choose_residual
from jaxpool._plan.problem import Platform, barrier_of
from jaxpool._plan.tuning import tuning_of


def _from_keys(key: Array, dtype: DType, *, has_mask: bool) -> Array:
    """Convert sort keys to values. A window whose elements are all masked gives 0, because its key would be a NaN."""
    if has_mask and is_float(dtype):
        has_no_elements = lax.eq(key, scalar_like(key, keys.min_or_max_key(key.dtype, True)))
        key = where(has_no_elements, 0, key)
    return keys.from_zero_tied_sort_keys(key, dtype)


@dataclasses.dataclass(frozen=True)
class RankPool(TapResidualPool):
    """The element of `rank` in the sorted order of each window. A zero is +0.

    `taps` has the flat window indices that take part, ascending; all indices if windows are padded. Residual: the
    selected tap; with ties "split" one bit per tap, or for large windows x, y and the mask. Masked elements have keys
    that no float has. A window with too few elements has an arbitrary result.
    """

    window: Window
    ties: Ties
    taps: Sequence[int]
    rank: plans.Rank

    materialises_inputs = True

    @property
    def materialises_residual(self) -> bool:
        return self.ties == "split" and not plans.unrolls_taps(self.window)

    @property
    def _is_median(self) -> bool:
        return isinstance(self.rank, str)

    def _fill_key(self, key: Array) -> np.ndarray:
        return keys.min_or_max_key(key.dtype, isinstance(self.rank, str) or self.rank >= 0)

    def _keys(self, x: Array, *mask: Array) -> Array:
        key = keys.zero_tied_sort_keys(x)
        for included in mask:
            key = where(slices.broadcast_like(included, key), key, self._fill_key(key))
        return key

    def _elements_per_tap(self, x: Array, fill: ArrayLike) -> list[Array]:
        padded = slices.pad_input(x, self.window, fill)
        return [slices.elements_at_tap(padded, self.window, tap) for tap in self.taps]

    def _terms(self, key: Array, *mask: Array) -> list[Array]:
        terms = self._elements_per_tap(key, self._fill_key(key))
        if not mask or not self._is_median:
            return terms
        return rank.pad_around_median(terms, self._elements_per_tap(mask[0], False), self.rank)

    def _tap_loop(self, platform: Platform, key: Array) -> rolled.TapLoop:
        taps = None if len(self.taps) == self.window.size else tuple(self.taps)
        return dataclasses.replace(make_tap_loop(self.window, key, platform), flat_taps=taps)

    def _tied_taps(self, platform: Platform, key: Array, y: Array) -> rolled.Selection:
        """The elements of each window whose sort key equals the window's selected key y."""
        loop = self._tap_loop(platform, key)
        return rolled.equal_key_selection(loop, key, y, self._fill_key(key))

    def _find_keys(self, platform: Platform, key: Array, *mask: Array) -> Array:
        """The sort key of the selected element of each window."""
        count, window = len(self.taps), self.window
        k: Any = plans.position_of_rank(self.rank, count)
        if plans.uses_sorting_network(count, platform):
            positions: tuple[int, ...] = (k,)
            if count == window.size and not mask:
                positions = plans.possible_positions(window, self.rank)
            terms = self._terms(key, *mask)
            network = plans.sorting_network(count, positions)
            return rank.select_by_sorting_network(terms, network, positions, window, self.rank)
        if self._is_median and mask:
            num_unmasked = SumPool(window).linear(platform, (), mask[0].astype(np.int32))
            k = plans.position_of_rank(self.rank, num_unmasked)
        elif self._is_median and window.is_padded:
            counts = elements_per_window(window, "real", key.ndim, np.int32)
            k = plans.position_of_rank(self.rank, counts)
        loop = self._tap_loop(platform, key)
        return rolled.key_of_rank_in_windows(loop, key, k, self._fill_key(key))

    def value(self, platform: Platform, x: Array, *mask: Array) -> Array:
        key = self._find_keys(platform, self._keys(x, *mask), *mask)
        return _from_keys(key, x.dtype, has_mask=bool(mask))

    def primal(self, platform: Platform, x: Array, *mask: Array) -> tuple[Array, Residual]:
        barrier_kind, unrolls = barrier_of(platform), plans.unrolls_taps(self.window)
        split, last = self.ties == "split", self.ties == "last"

        def kernel(x: Array, *mask: Array) -> tuple[Array, Residual]:
            key = self._keys(x, *mask)
            y = materialise(barrier_kind, functools.partial(self._find_keys, platform), key, *mask)
            residual: Residual = ()
            if unrolls:
                bits = tie_bits_of_tap_values(self._terms(key), y, self.window, self.taps)
                residual = bits if split else rank.first_or_last_tied_tap(bits, self.window, last)
            elif not split:
                tied = self._tied_taps(platform, key, y)
                residual = tied.first_or_last_selected_tap(take_last=last)
            return _from_keys(y, x.dtype, has_mask=bool(mask)), residual

        y, residual = materialise(barrier_kind, kernel, x, *mask)
        return y, (x, y, *mask) if split and not unrolls else residual

    def _tied_taps_of_residual(self, platform: Platform, residual: Residual) -> rolled.Selection:
        x, y, *mask = residual
        return self._tied_taps(platform, self._keys(x, *mask), keys.zero_tied_sort_keys(y))

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        if self.materialises_residual:
            return self._tied_taps_of_residual(platform, residual).pick(x_dot)
        return super().linear(platform, residual, x_dot)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        if self.materialises_residual:
            return (self._tied_taps_of_residual(platform, residual).route(dy),)
        return super().transpose(platform, residual, dy)


@dataclasses.dataclass(frozen=True)
class RankReduction(Reduction):
    """The element of `rank` in sorted order over whole axes, with an optional mask.

    Residual with ties "split": one bit per element of x. Saving x would often keep a temporary cast of x in memory.
    """

    rank: plans.Rank = "higher"  # a position in sorted order, or the lower or higher median

    materialises_residual = False  # the residual is bits

    @property
    def _packed_axis(self) -> int:
        """The axis whose tie bits are packed into words: the longest reduced axis."""
        return max(zip(self.sizes, self.axes, strict=True))[1]

    def primal(
        self, platform: Platform, x: Array, mask: Array | None = None
    ) -> tuple[Array, Residual]:
        if self.ties != "split":
            return super().primal(platform, x, mask)
        y = self.value(platform, x, mask)
        return y, pack_bits(attains_extremum(x, y, mask), self._packed_axis)

    def is_selected(self, platform: Platform, residual: Residual, shape: Sequence[int]) -> Array:
        if self.ties != "split":
            return super().is_selected(platform, residual, shape)
        return unpack_bits(residual, shape[self._packed_axis], self._packed_axis)

    def num_tied(self, platform: Platform, residual: Residual) -> Array:
        bits = lax.population_count(residual)
        return jnp.sum(bits, axis=self.axes, keepdims=True, dtype=np.int32)

    def value(self, platform: Platform, x: Array, mask: Array | None = None) -> Array:
        key = keys.zero_tied_sort_keys(x)
        takes_part = full_like(key, True, np.bool_) if mask is None else mask
        k = self._position(x, takes_part)
        key = where(takes_part, key, keys.min_or_max_key(key.dtype, True))
        key = rank.key_of_rank_over_axes(key, self.axes, k)
        return _from_keys(key, x.dtype, has_mask=mask is not None)

    def _count(self, mask: Array) -> Array:
        return jnp.sum(mask, axis=self.axes, keepdims=True, dtype=np.int32)

    def _position(self, x: Array, mask: Array) -> Array:
        """The sorted position of the selected element among the elements where `mask` is True."""
        return plans.position_of_rank(self.rank, self._count(mask))


@dataclasses.dataclass(frozen=True)
class LowerMedian(RankReduction):
    """PyTorch's median over whole axes: the lower of the two middle elements if the number of elements is even.

    The median is NaN if any element is NaN, or with `ignores_nan` only if all elements are NaN.
    """

    ignores_nan: bool = False

    def _position(self, x: Array, mask: Array) -> Array:
        num_valid, count = self._count(lax.bitwise_and(mask, lax.eq(x, x))), self._count(mask)
        middle = lax.max(num_valid - 1, scalar_like(num_valid, 0)) // 2
        if self.ignores_nan:
            return middle
        return lax.select(lax.eq(num_valid, count), middle, count - 1)  # NaNs sort last


@dataclasses.dataclass(frozen=True)
class KMax(Op):
    """The `count` largest of `size` elements along `axis`, in their original order. Residual: their indices."""

    axis: int
    size: int
    count: int

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Array]:
        def largest_indices(x: Array) -> Array:
            # `lax.top_k` orders NaNs and zeros by their bits. All NaNs have the same key, and so have +0 and -0.
            sort_keys = jnp.moveaxis(keys.zero_tied_sort_keys(x), self.axis, -1)
            if is_partitioned.value and tuning_of(platform).top_k_all_gathers:
                order = jnp.argsort(jnp.bitwise_not(sort_keys), axis=-1, stable=True)
                largest = lax.slice_in_dim(order, 0, self.count, axis=-1)
            else:
                values = to_comparison_dtype(keys.from_zero_tied_sort_keys(sort_keys, x.dtype))
                largest = lax.top_k(widen_to_8_bits(values), self.count)[1]
            index = lax.sort(largest, dimension=-1)
            return jnp.moveaxis(index, -1, self.axis).astype(index_dtype(self.size))

        index = materialise(barrier_of(platform), largest_indices, x)
        return self.linear(platform, index, x), index

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        index = index.astype(np.int32)
        return jnp.take_along_axis(x_dot, index, axis=self.axis, mode="promise_in_bounds")

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        if plans.scatters_positions(self.count, platform):
            return (scatter_at_sorted(dy, index, self.axis, self.size),)
        # Comparing positions vectorises, but the program grows with `count`.
        positions = int32_iota(self.size).astype(index.dtype)
        axis_positions = slices.reshape_along_axis(positions, self.axis, dy.ndim)
        terms = []
        for i in range(self.count):
            selected, value = (lax.slice_in_dim(x, i, i + 1, axis=self.axis) for x in (index, dy))
            is_selected = jnp.equal(selected, axis_positions)
            terms.append(jnp.where(is_selected, value, np.zeros((), dy.dtype)))
        return (functools.reduce(lax.add, terms),)


def apply_rank_pool(op: RankPool, x: Array, *mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """Apply a rank pool to x, with an optional `where` mask."""
    if choose_residual(op.window, split=op.ties == "split") == "rank":
        return _apply_rank_reduction(op, autodiff, x, *mask)
    return apply(op, x, *mask, autodiff=autodiff)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _apply_rank_reduction(op: RankPool, autodiff: Autodiff, x: Array, *mask: Array) -> Array:
    """Apply a rank pool with one large window by reductions over the axes of the window."""
    window = op.window
    reduction = RankReduction("max", op.ties, window.axes, window.window_shape, op.rank)
    wide_x = x.astype(accumulator_dtype(x.dtype))
    masks = [slices.broadcast_like(where, x) for where in mask]
    if len(op.taps) < window.size:
        takes_part = np.isin(np.arange(window.size), op.taps).reshape(window.window_shape)
        other_axes = [axis for axis in range(x.ndim) if axis not in reduction.axes]
        takes_part = np.expand_dims(takes_part.transpose(np.argsort(reduction.axes)), other_axes)
        masks = [functools.reduce(lax.bitwise_and, masks, slices.broadcast_like(takes_part, x))]
    return apply(reduction, wide_x, *masks, autodiff=autodiff).astype(x.dtype)
