"""Max, min, sum, average and Lp pools of a shard and its halo.

Each pool takes `ShardedWindows` and one shard of the array. The shard has whole pooled axes if only other axes are
sharded. If no window crosses an end of a shard (`ShardedWindows.strips` is empty), no halo is fetched.

Halo rows beyond the ends of the array hold the padding value, which a kernel treats as an element. This does not affect
maxima and sums, but the choice among tied elements, the number of elements that share a cotangent, and the divisor of
an average. For these three results, the op takes an additional array that depends on the shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._arguments.decorator import compute_e8m0fnu_in_float32
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import Kind, TieOrder, Ties, accumulator_dtype, reduction_identity
from jaxpool._kernels.positions import (
    elements_per_window,
    flat_position_of_tap,
    input_position_of_tap,
)
from jaxpool._kernels.select import edge_taps_inside
from jaxpool._kernels.slices import outer_broadcast
from jaxpool._kernels.split_ties import bits_of_taps_inside
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool._ops.power_pool import norm
from jaxpool._ops.select_pool import (
    FindTiesPool,
    SelectPool,
    TieBitsPool,
    select_pool,
    select_pool_with_tap,
)
from jaxpool._ops.sum_pool import Divisor, SumPool, constant_count, sum_pool
from jaxpool._plan.max_pool import saves_tie_bits
from jaxpool._shards.halo import ShardedWindows
from jaxpool._shards.split import R, run_on_shards, sharded_windows
from jaxpool._shards.strips import StripPool, fetch_halos


def select_pool_of_shard(
    windows: ShardedWindows, kind: Kind, ties: Ties | TieOrder, x: Array
) -> Array:
    """The max or min pool of the shard x and its halo."""
    if windows.strips == ():
        return select_pool(windows.local_window, kind, ties, x)
    op, *args = _select_op_and_args(windows, kind, ties, x)
    return apply(op, *args)


def select_pool_with_tap_of_shard(
    windows: ShardedWindows, kind: Kind, ties: Ties | TieOrder, x: Array
) -> tuple[Array, Array]:
    """The max or min pool, and the tap of each selected element; of the first element if `ties` is "split"."""
    if windows.strips == ():
        return select_pool_with_tap(windows.local_window, kind, ties, x)
    if ties == "split":
        _, tap = select_pool_with_tap_of_shard(windows, kind, "first", lax.stop_gradient(x))
        return select_pool_of_shard(windows, kind, "split", x), tap
    op, *args = _select_op_and_args(windows, kind, ties, x)
    return apply_with_residual(op, *args)


def max_pool_with_position_of_shard(
    windows: ShardedWindows, ties: Ties | TieOrder, x: Array
) -> tuple[Array, Array]:
    """The max pool, and each maximum's flat position in the global array: the first position if `ties` is "split"."""
    y, tap = select_pool_with_tap_of_shard(windows, "max", ties, x)
    if not windows.halos:
        return y, input_position_of_tap(tap, windows.window)
    pairs = zip(windows.window_starts(), windows.window.axes, strict=True)
    starts = [outer_broadcast(jnp.add, [start], [axis], x.ndim) for start, axis in pairs]
    return y, flat_position_of_tap(tap, windows.window, starts)


def sum_pool_of_shard(windows: ShardedWindows, divisor: Divisor, x: Array) -> Array:
    """The sum over each window, divided as `SumPool` does; counts are of elements of the global array."""
    if windows.strips == ():
        return sum_pool(windows.local_window, divisor, x)
    if divisor in ("counted", "real"):
        common_count = constant_count(windows.window, divisor)
        if common_count is None:
            window, dtype = windows.window, accumulator_dtype(x.dtype)
            counts = elements_per_window(window, divisor, x.ndim, dtype, windows.window_indices)
            op = SumPool(windows.local_window)
            return apply(*_op_and_args_with_halo(windows, x, 0, op, counts))
        divisor = float(common_count)
    op = SumPool(windows.local_window, divisor)
    return apply(*_op_and_args_with_halo(windows, x, 0, op))


def norm_pool_of_shard(windows: ShardedWindows, p: float, x: Array) -> Array:
    """The Lp pool of the shard x and its halo."""
    return norm(windows.extended_window, p, windows.extend(x, 0))


@compute_e8m0fnu_in_float32
def pool_by_type(
    pool: Callable[..., R],
    pool_of_shard: Callable[..., R],
    window: Window,
    x: Array,
    *settings: object,
) -> R:
    """Call `pool(window, *settings, x)`, or `pool_of_shard(windows, *settings, x)` on each shard of a sharded x.

    Raises `ArgumentError` if the shards would differ in size.
    """
    windows = sharded_windows(x, window)
    if windows is None:
        return pool(window, *settings, x)
    return run_on_shards(pool_of_shard, windows, x, *settings)


def _op_and_args_with_halo(
    windows: ShardedWindows, x: Array, fill: ArrayLike, pool: Any, *extra_args: Array
) -> tuple[Any, ...]:
    """The op that applies `pool`, over the windows of a shard, to the shard x and its halo, and the op's arguments."""
    if windows.strips is None:
        op = dataclasses.replace(pool, window=windows.extended_window)
        return op, windows.extend(x, fill), *extra_args
    return StripPool(pool, windows.strips), *fetch_halos(windows.strips, x, fill), *extra_args


def _select_op_and_args(
    windows: ShardedWindows, kind: Kind, ties: Ties | TieOrder, x: Array
) -> tuple[Any, ...]:
    """The op of a max or min pool of the shard x and its halo, and the op's arguments."""
    window, fill = windows.local_window, reduction_identity(x.dtype, kind)
    padded = any(halo.dim.is_padded for halo in windows.halos)
    extra: tuple[Array, ...] = ()
    if ties != "split":
        if padded:
            indices, is_last = windows.window_indices, ties == "last"
            extra = (edge_taps_inside(windows.window, x.ndim, indices, take_last=is_last),)
        return _op_and_args_with_halo(windows, x, fill, SelectPool(window, kind, ties), *extra)
    if saves_tie_bits(window):
        if padded:
            extra = bits_of_taps_inside(windows.window, windows.window_starts(), x.ndim)
        return _op_and_args_with_halo(windows, x, fill, TieBitsPool(window, kind), *extra)
    if padded:
        masks = [halo.element_mask() for halo in windows.halos]
        axes = [halo.dim.axis for halo in windows.halos]
        extra = (outer_broadcast(jnp.logical_and, masks, axes, x.ndim),)
    pool = FindTiesPool(windows.extended_window, kind)
    return pool, windows.extend(x, fill), *extra
