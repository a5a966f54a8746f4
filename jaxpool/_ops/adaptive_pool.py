"""Adaptive max and average pools, whose windows have nearly equal lengths.

Windows of equal, short length form an ordinary pool. For other windows, `_kernels/patches.py` copies x into patches:
each pooled axis becomes an axis of windows and an axis of taps (indices within a window). The axes of taps are reduced.
"""

import dataclasses
import functools
import operator
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import AdaptiveWindow
from jaxpool._kernels import patches, slices
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.cpu.tables import prevent_constant_folding
from jaxpool._kernels.dtypes import (
    DType,
    TieOrder,
    Ties,
    accumulator_dtype,
    as_float,
    reduction_identity,
)
from jaxpool._kernels.reduce import max_or_min_over_axes
from jaxpool._kernels.slices import materialise
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._ops.op import Op, Residual, array_problem
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_of, gathered_axes, is_ordinary_pool
from jaxpool._plan.reduce import plan_reduction
from jaxpool._plan.tuning import tuning_of


class PatchPool(Op):
    """Base class of adaptive pools over copied windows. Subclasses define `transpose`, which never scatters.

    `linear` is JAX's transpose of `transpose`: a scatter with unique indices. Patches and residuals are
    transposed: axes with padded windows are leading axes (`padded_axes_first`).
    """

    window: AdaptiveWindow

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        y = slices.zeros_like_with_sizes(x_dot, self.window.axes, self.window.output_shape)
        transpose_fn = functools.partial(self.transpose, platform, residual)
        return jax.linear_transpose(transpose_fn, y)((x_dot,))[0]

    def transposed_window(self, ndim: int) -> AdaptiveWindow:
        """The window of an array of rank `ndim` after `reorder_axes`."""
        _, new_axes = self.window.padded_axes_first(ndim)
        dims = [dataclasses.replace(dim, axis=new_axes[dim.axis]) for dim in self.window.dims]
        return AdaptiveWindow(tuple(dims))

    def reorder_axes(self, x: Array) -> Array:
        """Move the axes with padded windows to the front."""
        return lax.transpose(x, self.window.padded_axes_first(x.ndim)[0])

    def restore_axes(self, y: Array) -> Array:
        """Undo the axis permutation of `reorder_axes`."""
        return lax.transpose(y, self.window.padded_axes_first(y.ndim)[1])

    def add_shares(
        self, share: Array, dtype: DType, is_selected: Array | None = None
    ) -> tuple[Array]:
        """Cotangent of x: each window adds its entry of `share` to its elements, or only where `is_selected`."""
        window = self.transposed_window(share.ndim)
        expanded_share = lax.expand_dims(share, patches.tap_axes(window))
        dx = jnp.broadcast_to(expanded_share, patches.patches_shape(share.shape, window))
        if is_selected is not None:
            dx = slices.where_or_zero(is_selected, dx)
        dx = patches.add_up_patches(dx, window, gathered_axes(window))
        return (self.restore_axes(dx).astype(dtype),)


@dataclasses.dataclass(frozen=True)
class AdaptiveSelect(PatchPool):
    """Adaptive max pool. Residual: the window index (tap) of the selected element; for ties "split" a bit per tap."""

    window: AdaptiveWindow
    ties: Ties | TieOrder

    def _extract(self, x: Array) -> Array:
        """The patches of x, with the identity of the maximum for taps without an element."""
        fill, window = reduction_identity(x.dtype, "max"), self.transposed_window(x.ndim)
        return patches.extract_patches(self.reorder_axes(x), window, fill)

    def _maxima(self, platform: Platform, window: AdaptiveWindow, x_patches: Array) -> Array:
        """The maximum of each window of `x_patches`."""
        axes = patches.tap_axes(window)
        plan = plan_reduction(array_problem(x_patches, platform), axes, of_ties=False)
        return lax.squeeze(max_or_min_over_axes(x_patches, axes, "max", plan=plan), axes)

    def value(self, platform: Platform, x: Array) -> Array:
        window = self.transposed_window(x.ndim)
        return self.restore_axes(self._maxima(platform, window, self._extract(x)))

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Array]:
        barrier_kind, window = barrier_of(platform), self.transposed_window(x.ndim)
        x_patches = materialise(barrier_kind, self._extract, x)
        find_maxima = functools.partial(self._maxima, platform, window)
        y = materialise(barrier_kind, find_maxima, x_patches)
        if self.ties == "split":
            axis, tied = _packed_axis(window), patches.attains_max(x_patches, y, window)
            return self.restore_axes(y), pack_bits(lax.collapse(tied, axis, axis + 2), axis)
        find_tap = functools.partial(patches.tap_of_max, window=window, ties=self.ties)
        tap = materialise(barrier_kind, find_tap, x_patches, y)
        return self.restore_axes(y), tap

    def transpose(self, platform: Platform, residual: Array, dy: Array) -> tuple[Array]:
        share = self.reorder_axes(dy.astype(accumulator_dtype(dy.dtype)))
        window = self.transposed_window(dy.ndim)
        if self.ties != "split":
            return self.add_shares(share, dy.dtype, patches.one_hot_of_tap(residual, window))
        shape, axis = patches.patches_shape(share.shape, window), _packed_axis(window)
        is_selected = lax.reshape(unpack_bits(residual, shape[axis] * shape[axis + 1], axis), shape)
        num_tied = jnp.sum(is_selected, axis=patches.tap_axes(window), dtype=np.int32)
        return self.add_shares(divide_by_num_tied(share, num_tied), dy.dtype, is_selected)


@dataclasses.dataclass(frozen=True)
class AdaptiveMean(PatchPool):
    """Adaptive average pool. No residual."""

    window: AdaptiveWindow
    linear_in_x = True

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        y = x.astype(accumulator_dtype(x.dtype))
        # The first axis is summed first: its gather copies whole rows, and later gathers read the sums.
        for dim in sorted(self.window.dims, key=operator.attrgetter("axis")):
            y_patches = patches.extract_patches(y, AdaptiveWindow((dim,)), 0)
            y = jnp.sum(y_patches, axis=dim.axis + 1, dtype=y.dtype)
        return self._divide_sum(y).astype(x.dtype)

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        share = self._divide_sum(dy.astype(accumulator_dtype(dy.dtype)))
        if tuning_of(platform).drops_barriers:
            share = prevent_constant_folding(share)
        return self.add_shares(self.reorder_axes(share), dy.dtype)

    def _divide_sum(self, y: Array) -> Array:
        return y / patches.element_counts(self.window, y)


def _packed_axis(window: AdaptiveWindow) -> int:
    """The axis of windows whose bits are packed, collapsed with the axis of taps after it."""
    dims = zip(window.dims, patches.tap_axes(window), strict=True)
    return max(dims, key=lambda pair: pair[0].out * pair[0].window)[1] - 1


AdaptiveKind = Literal["max", "mean", "argmax"]


def adaptive_max_op(
    window: AdaptiveWindow, ties: Ties | TieOrder, *, saves_index: bool = False
) -> Op:
    """The op of an adaptive max pool. With `saves_index`, its residual is a window index, unless ties are split."""
    if not is_ordinary_pool(window):
        return AdaptiveSelect(window, ties)
    # For ties "last", `pool_op` may return a `Reduction`, whose index counts from the end of the window.
    if ties == "first" or ties == "split":
        return pool_op(window.as_window(), "max", ties, saves_index=saves_index)
    return SelectPool(window.as_window(), "max", ties)


def adaptive_avg_op(window: AdaptiveWindow) -> Op:
    """The op of an adaptive average pool."""
    if is_ordinary_pool(window):
        return SumPool(window.as_window(), "counted")
    return AdaptiveMean(window)


def adaptive_max_pool_with_position(
    window: AdaptiveWindow, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The adaptive max pool, and the flat position of each maximum; the first position if `ties` is "split"."""
    op = adaptive_max_op(window, "first" if ties == "split" else ties, saves_index=True)
    if ties == "split":
        y = apply(adaptive_max_op(window, ties), x, autodiff=autodiff)
        _, tap = apply_with_residual(op, lax.stop_gradient(x), autodiff=autodiff)
    else:
        y, tap = apply_with_residual(op, x, autodiff=autodiff)
    return y, patches.position_of_tap(tap, window)


def adaptive_pool(
    kind: AdaptiveKind,
    window: AdaptiveWindow,
    ties: Ties | TieOrder,
    x: Array,
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive max or mean pool of x; for "argmax" the maxima and their flat positions."""
    if kind == "argmax":
        return adaptive_max_pool_with_position(window, ties, x, autodiff)
    if kind == "mean":
        return apply(adaptive_avg_op(window), as_float(x), autodiff=autodiff)
    return apply(adaptive_max_op(window, ties), x, autodiff=autodiff)
