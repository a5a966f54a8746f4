"""Arguments of windowed pools, and max, min, sum, average and Lp pools of a shard and its halo.

A public pool calls `checked_array_and_windows`, then `checked_window_mask` if it has a `where` argument, and runs its
op through the returned `ShardedPool`. Each pool here takes a `ShardGeometry`, the windows of a shard, and the shard.
The shard is the whole array if no pooled axis is sharded. If no window crosses an end of a shard
(`ShardGeometry.strips` is empty), no halo is fetched.

Halo rows beyond the ends of the array hold the padding value, which a kernel treats as an element. This does not affect
maxima and sums, but the choice among tied elements, the number of elements that share a cotangent, and the divisor of
an average. For these three results, the op takes an additional array that depends on the shard.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._arguments.arrays import as_array, as_broadcast_mask
from jaxpool._arguments.sizes import check_choice
from jaxpool._geometry.window import check_int32_positions, make_window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind, TieOrder, Ties, accumulator_dtype, reduction_identity
from jaxpool._kernels.positions import (
    CountKind,
    counts_along,
    flat_position_of_tap,
    input_position_of_tap,
)
from jaxpool._kernels.select import edge_taps_inside
from jaxpool._kernels.slices import is_sharded, outer_broadcast
from jaxpool._kernels.split_ties import bits_of_taps_inside
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._ops.op import Op
from jaxpool._ops.power_pool import norm
from jaxpool._ops.select_pool import FindTiesPool, SelectPool, TieBitsPool, pool_op
from jaxpool._ops.sum_pool import SumPool, constant_count
from jaxpool._plan.tuning import LIMITS
from jaxpool._shards.halo import ShardGeometry
from jaxpool._shards.split import ShardedPool, shard_pool_by_type, shard_pool_by_window
from jaxpool._shards.strips import StripPool, fetch_halos

Divisor = Literal["not", "counted", "real"] | float


def select_pool(
    geometry: ShardGeometry, kind: Kind, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> Array:
    """The max or min pool of the shard x and its halo."""
    if geometry.strips == ():
        return apply(pool_op(geometry.local_window, kind, ties), x, autodiff=autodiff)
    op, *args = _select_op_and_args(geometry, kind, ties, x)
    return apply(op, *args)


def select_pool_with_tap(
    geometry: ShardGeometry, kind: Kind, ties: TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max or min pool, and for each window the flat index of the selected element within the window."""
    if geometry.strips == ():
        op = SelectPool(geometry.local_window, kind, ties)
        return apply_with_residual(op, x, autodiff=autodiff)
    op, *args = _select_op_and_args(geometry, kind, ties, x)
    return apply_with_residual(op, *args)


def max_pool_with_position(
    geometry: ShardGeometry, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max pool, and each maximum's flat position in the global array: the first position if `ties` is "split"."""
    if ties == "split":
        y = select_pool(geometry, "max", "split", x, autodiff)
        _, tap = select_pool_with_tap(geometry, "max", "first", lax.stop_gradient(x), autodiff)
    else:
        y, tap = select_pool_with_tap(geometry, "max", ties, x, autodiff)
    if not geometry.halos:
        return y, input_position_of_tap(tap, geometry.window)
    pairs = zip(geometry.window_starts(), geometry.window.axes, strict=True)
    starts = [outer_broadcast(jnp.add, [start], [axis], x.ndim) for start, axis in pairs]
    return y, flat_position_of_tap(tap, geometry.window, starts)


def sum_pool(
    geometry: ShardGeometry, divisor: Divisor, x: Array, autodiff: Autodiff = "jvp"
) -> Array:
    """The sum over each window, divided as `SumPool` does; counts are of elements of the global array."""
    x = x if divisor == "not" else dtypes.as_float(x)
    if geometry.strips == ():
        return apply(SumPool(geometry.local_window, divisor), x, autodiff=autodiff)
    if divisor in ("counted", "real"):
        common_count = constant_count(geometry.window, divisor)
        if common_count is None:
            op, counts = SumPool(geometry.local_window), _window_counts(geometry, divisor, x)
            return apply(*_op_and_args_with_halo(geometry, x, 0, op, counts))
        divisor = float(common_count)
    op = SumPool(geometry.local_window, divisor)
    return apply(*_op_and_args_with_halo(geometry, x, 0, op))


def norm_pool(geometry: ShardGeometry, p: float, x: Array) -> Array:
    """The Lp pool of the shard x and its halo."""
    return norm(geometry.extended_window, p, dtypes.as_float(geometry.extend(x, 0)))


def apply_by_type(op: Op, x: Array) -> Array:
    """`apply(op, x)`, run on the shards of x if the type of x is sharded along pooled axes.

    Raises `ArgumentError` if the shards would differ in size.
    """
    if isinstance(op, (SelectPool, SumPool)):
        split = shard_pool_by_window(x, op.window)
        if split.halos and isinstance(op, SumPool):
            return split.run(sum_pool, x, op.divisor_kind)
        if split.halos and isinstance(op, SelectPool):
            return split.run(select_pool, x, op.kind, op.ties)
    return apply(op, x)


def _op_and_args_with_halo(
    geometry: ShardGeometry, x: Array, fill: Any, pool: Any, *extra_args: Array
) -> tuple[Any, ...]:
    """The op that applies `pool`, over the windows of a shard, to the shard x and its halo, and the op's arguments."""
    if geometry.strips is None:
        op = dataclasses.replace(pool, window=geometry.extended_window)
        return op, geometry.extend(x, fill), *extra_args
    return StripPool(pool, geometry.strips), *fetch_halos(geometry.strips, x, fill), *extra_args


def _select_op_and_args(
    geometry: ShardGeometry, kind: Kind, ties: Ties | TieOrder, x: Array
) -> tuple[Any, ...]:
    """The op of a max or min pool of the shard x and its halo, and the op's arguments."""
    window, fill = geometry.local_window, reduction_identity(x.dtype, kind)
    padded = any(halo.dim.is_padded for halo in geometry.halos)
    extra: tuple[Array, ...] = ()
    if ties != "split":
        if padded:
            indices, is_last = geometry.window_indices, ties == "last"
            extra = (edge_taps_inside(geometry.window, x.ndim, indices, take_last=is_last),)
        return _op_and_args_with_halo(geometry, x, fill, SelectPool(window, kind, ties), *extra)
    if window.size <= LIMITS.max_mask_taps:
        if padded:
            extra = bits_of_taps_inside(geometry.window, geometry.window_starts(), x.ndim)
        return _op_and_args_with_halo(geometry, x, fill, TieBitsPool(window, kind), *extra)
    if padded:
        masks = [halo.element_mask() for halo in geometry.halos]
        axes = [halo.dim.axis for halo in geometry.halos]
        extra = (outer_broadcast(jnp.logical_and, masks, axes, x.ndim),)
    pool = FindTiesPool(geometry.extended_window, kind)
    return pool, geometry.extend(x, fill), *extra


def _window_counts(geometry: ShardGeometry, divisor: CountKind, x: Array) -> Array:
    """The number of elements that divides the sum of each window, broadcastable to the output."""
    dims, dtype = geometry.window.dims, accumulator_dtype(x.dtype)
    counts = [counts_along(dim, divisor, geometry.window_indices) for dim in dims]
    counts = [jnp.asarray(count, dtype) for count in counts]
    return outer_broadcast(jnp.multiply, counts, geometry.window.axes, x.ndim)


def checked_array_and_windows(
    x: Any,
    *geometry: Any,
    ties: Any = "first",
    autodiff: Any = "vjp",
    allow_long_axes: bool = False,
    **other_geometry: Any,
) -> tuple[Array, ShardedPool]:
    """Return x as an array, and the windows of the pool with the sharding of x.

    `geometry` and `other_geometry` are arguments of `make_window` after the shape. Positions along pooled axes must fit
    in int32; with `allow_long_axes` and ties that are not split, only positions along padded axes must.
    """
    x = as_array(x)
    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    windows = shard_pool_by_type(x, lambda shape: make_window(shape, *geometry, **other_geometry))
    if not allow_long_axes or ties == "split":
        check_int32_positions(windows.window)
    return x, windows


def checked_window_mask(x: Array, sharded_windows: ShardedPool, where: Any) -> Array | None:
    """`where` as a mask with the rank of x, or None. The mask may have size 1 along axes that are not pooled."""
    if where is None:
        return None
    window = sharded_windows.window
    mask = as_broadcast_mask(where, x.shape, output_shape=window.pooled_shape(x.shape))
    pooled_axes = window.axes
    shape = [size if axis in pooled_axes else mask.shape[axis] for axis, size in enumerate(x.shape)]
    mask = jnp.broadcast_to(mask, shape)
    if sharded_windows.sharding is None and is_sharded(mask):  # x is replicated
        mask = reshard(mask, NamedSharding(jax.typeof(mask).sharding.mesh, PartitionSpec()))
    return mask
