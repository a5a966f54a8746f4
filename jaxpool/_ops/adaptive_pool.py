"""Adaptive max and average pools, whose windows have nearly equal lengths.

If the lengths differ, each window is gathered into its own block of a grid (`_kernels/patches.py`), and the blocks are
reduced. Equal and short windows are an ordinary pool.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.adaptive import ragged_axes_first
from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.compare import TieOrder, Ties
from jaxpool._kernels.dtypes import DType, accumulator_dtype, reduction_identity
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.patches import (
    add_up_patches,
    attains_max,
    extract_patches,
    max_of_patches,
    one_hot_of_tap,
    patches_shape,
    tap_axes,
    tap_of_max,
)
from jaxpool._kernels.split_ties import divide_by_num_tied
from jaxpool._ops.op import Op
from jaxpool._ops.reduction import fold_of
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._ops.sum_pool import SumPool, element_counts
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.program_length import needs_no_grid
from jaxpool._plan.tuning import tuning


class LaidOut(Op):
    """Base class of ops over windows on a grid. Subclasses define the transpose, which never scatters.

    The linear map is JAX's transpose of it, a scatter with unique indices. In transposed arrays and the residual, axes
    with unequal windows come first (`ragged_axes_first`).
    """

    window: Window

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Any:
        y = slices.zeros_like_with_sizes(x_dot, self.window.axes, self.window.output_shape)
        back = functools.partial(self.transpose, platform, residual)
        return jax.linear_transpose(back, y)((x_dot,))[0]

    def transposed_window(self, ndim: int) -> Window:
        """The window of a transposed array of rank `ndim`."""
        axis_order, _ = ragged_axes_first(self.window, ndim)
        dims = [
            dataclasses.replace(dim, axis=axis_order.index(dim.axis)) for dim in self.window.dims
        ]
        return Window(tuple(dims))

    def transposed(self, x: Array) -> tuple[Array, Window]:
        """Return x and the window with the axes of unequal windows in front."""
        return lax.transpose(x, ragged_axes_first(self.window, x.ndim)[0]), self.transposed_window(
            x.ndim
        )

    def returned(self, y: Array) -> Array:
        """Undo `transposed`."""
        return lax.transpose(y, ragged_axes_first(self.window, y.ndim)[1])

    def sent(
        self, share: Array, window: Window, dtype: DType, won: Array | None = None
    ) -> tuple[Array]:
        """The cotangent of x. Each window adds its share to its elements, or to elements with `won` True."""
        wide = lax.expand_dims(share, tap_axes(window))
        laid = jnp.broadcast_to(wide, patches_shape(share.shape, window))
        if won is not None:
            laid = lax.select(won, laid, lax.full_like(laid, 0))
        return (self.returned(add_up_patches(laid, window)).astype(dtype),)


@dataclasses.dataclass(frozen=True)
class AdaptiveSelect(LaidOut):
    """Adaptive max pool. Residual: the tap of the selected element, or with ties "split" one bit per tap."""

    window: Window
    ties: Ties | TieOrder

    def value(self, platform: Platform, x: Array) -> Array:
        transposed, window = self.transposed(x)
        laid = extract_patches(transposed, window, reduction_identity(x.dtype, "max"))
        return self.returned(_greatest(platform, window, laid))

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Array]:
        by, window = barrier_on(platform), self.transposed_window(x.ndim)
        laid = materialise(
            by,
            lambda x: extract_patches(*self.transposed(x), reduction_identity(x.dtype, "max")),
            x,
        )
        y = materialise(by, functools.partial(_greatest, platform, window), laid)
        if self.ties == "split":
            axis, tied = _longest(window), attains_max(laid, y, window)
            return self.returned(y), pack_bits(lax.collapse(tied, axis, axis + 2), axis)
        find = functools.partial(tap_of_max, window=window, ties=self.ties)
        return self.returned(y), materialise(by, find, laid, y)

    def transpose(self, platform: Platform, residual: Array, dy: Array) -> tuple[Array]:
        share, window = self.transposed(dy.astype(accumulator_dtype(dy.dtype)))
        if self.ties != "split":
            return self.sent(share, window, dy.dtype, one_hot_of_tap(residual, window))
        shape, axis = patches_shape(share.shape, window), _longest(window)
        won = lax.reshape(unpack_bits(residual, shape[axis] * shape[axis + 1], axis), shape)
        count = jnp.sum(won, axis=tap_axes(window), dtype=np.int32)
        return self.sent(divide_by_num_tied(share, count), window, dy.dtype, won)


@dataclasses.dataclass(frozen=True)
class AdaptiveMean(LaidOut):
    """Adaptive average pool. No residual."""

    window: Window

    linear_in_x = True

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        transposed, window = self.transposed(x.astype(accumulator_dtype(x.dtype)))
        total = jnp.sum(
            extract_patches(transposed, window, 0), axis=tap_axes(window), dtype=transposed.dtype
        )
        return self._divided(self.returned(total)).astype(x.dtype)

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        share = self._divided(dy.astype(accumulator_dtype(dy.dtype)))
        return self.sent(*self.transposed(share), dy.dtype)

    def _divided(self, y: Array) -> Array:
        return y / element_counts(self.window, "real", y)


def _greatest(platform: Platform, window: Window, laid: Array) -> Array:
    """The maximum of each block of the grid."""
    fold = fold_of(platform, laid, tap_axes(window), ties=False)
    return max_of_patches(
        laid, window, reduction_loses_nan=tuning(platform).loses_nan, fold_plan=fold
    )


def _longest(window: Window) -> int:
    """The grid axis of windows that bits are packed along, together with its axis of taps."""
    dims = zip(window.dims, tap_axes(window), strict=True)
    return max(dims, key=lambda pair: pair[0].out * pair[0].window)[1] - 1


def adaptive_max_op(window: Window, ties: Ties | TieOrder, *, index: bool = False) -> Op:
    """The op of an adaptive max pool. With `index`, and unless ties are split, its residual is the tap."""
    if not needs_no_grid(window):
        return AdaptiveSelect(window, ties)
    # With "last", `pool_op` may choose a `Reduction`, whose index counts from the end.
    if ties == "first" or ties == "split":
        return pool_op(window, "max", ties, index=index)
    return SelectPool(window, "max", ties)


def adaptive_avg_op(window: Window) -> Op:
    """The op of an adaptive average pool."""
    return SumPool(window, "counted") if needs_no_grid(window) else AdaptiveMean(window)
