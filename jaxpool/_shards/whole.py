"""Maxima and means over whole sharded axes: each device reduces its shard, and all-reduces combine the results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.sharding import ArraySharding, MeshAxes, sharding_from_type
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.dtypes import DType, Kind, Ties, accumulator_dtype
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._ops.range_status import zeros_with_tangent
from jaxpool._ops.reduction import NumTied, Reduction, max_or_min, reduce_axes
from jaxpool._shards.split import drop_unit_axes, on_shards


def _max(axes: tuple[int, ...], mesh_axes: MeshAxes, ties: Ties, x: Array, *mask: Array) -> Array:
    sizes, mesh_names = tuple(x.shape[axis] for axis in axes), sum(mesh_axes, ())
    local, positions = apply_with_residual(Reduction("max", ties, axes, sizes), x, *mask)
    key = dtypes.to_comparison_dtype(lax.stop_gradient(local))
    best, attains_max = _global_max(key, mesh_names)
    y = dtypes.from_comparison_dtype(best, x.dtype)
    if not dtypes.is_float(x.dtype):
        return y
    wide = local.astype(accumulator_dtype(x.dtype))
    if ties == "split":
        num_tied = apply(NumTied(axes), lax.stop_gradient(x), lax.stop_gradient(local), *mask)
        local_count = jnp.where(attains_max, num_tied.astype(np.int32), 0)
        global_count = lax.max(lax.psum(local_count, mesh_names), np.int32(1))
        wide = wide * (local_count.astype(wide.dtype) / global_count.astype(wide.dtype))
    else:
        if mask:
            no_position = np.asarray(np.iinfo(positions.dtype).max, positions.dtype)
            attains_max = attains_max & (positions != no_position)
        attains_max = _is_first(attains_max, positions, mesh_axes, sizes, last=ties == "last")
    weighted_max = lax.psum(jnp.where(attains_max, wide, 0), mesh_names)
    # Subtracting 0 preserves -0; adding 0 would not.
    return y - zeros_with_tangent(-weighted_max).astype(y.dtype)


def _global_max(local_max: Array, mesh_names: tuple[str, ...]) -> tuple[Array, Array]:
    """The maximum over all devices, and whether this device attains this maximum. NaN is the largest value."""
    if not dtypes.is_float(local_max.dtype):
        best = lax.pmax(local_max, mesh_names)
        return best, local_max == best
    is_nan = jnp.isnan(local_max)
    best = lax.pmax(jnp.where(is_nan, -np.inf, local_max), mesh_names)
    any_nan = lax.pmax(is_nan.astype(np.int32), mesh_names) > 0
    return jnp.where(any_nan, np.nan, best), jnp.where(any_nan, is_nan, local_max == best)


def _is_first(
    attains_max: Array, position: Array, mesh_axes: MeshAxes, sizes: tuple[int, ...], *, last: bool
) -> Array:
    """Whether this device holds the first (or last) of all elements that attain the maximum, in row-major order.

    In the row-major order of the global array, rows of several devices may alternate, so coordinates are compared axis
    by axis. If `last` is True, `position` counts from the end of the array, and shards are counted from the end.
    """
    is_first, mesh_names = attains_max, sum(mesh_axes, ())
    for i, axis_names in enumerate(mesh_axes):
        num_shards = lax.axis_size(axis_names) if axis_names else 1
        shard_id = lax.axis_index(axis_names) if axis_names else jnp.int32(0)
        unit, size = math.prod(sizes[i + 1 :]), sizes[i]
        coord = (position // np.asarray(unit, position.dtype)).astype(np.uint32) % np.uint32(size)
        shard_id = num_shards - 1 - shard_id if last else shard_id
        coord = coord.astype(np.int32) + shard_id * np.int32(size)
        coord = jnp.where(is_first, coord, np.int32(np.iinfo(np.int32).max))
        is_first = is_first & (coord == lax.pmin(coord, mesh_names))
    return is_first


def _mean(
    axes: tuple[int, ...], mesh_axes: MeshAxes, size: int, dtype: DType, x: Array, *mask: Array
) -> Array:
    mesh_names = sum(mesh_axes, ())
    wide_x = x.astype(dtype)
    wide_x = wide_x.astype(accumulator_dtype(wide_x.dtype))
    count: np.ndarray | Array = np.asarray(size, wide_x.dtype)
    if mask:
        wide_x = jnp.where(mask[0], wide_x, 0)
        num_true = lax.psum(jnp.sum(mask[0], axis=axes, keepdims=True, dtype=np.int32), mesh_names)
        count = lax.max(num_true, dtypes.scalar_like(num_true, 1)).astype(wide_x.dtype)
    local_sum = jnp.sum(wide_x, axis=axes, keepdims=True, dtype=wide_x.dtype)
    return (lax.psum(local_sum, mesh_names) / count).astype(dtype)


def reduce_sharded(
    kind: Kind | Literal["mean"],
    sharding: ArraySharding,
    x: Array,
    axes: tuple[int, ...],
    mask: Array | None = None,
    keepdims: bool = True,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Array:
    """The maximum, minimum or mean of a sharded x over `axes`. The first tie is in row-major order of the global array.

    `mask` is a `where` mask.
    """
    if kind == "min":
        y = reduce_sharded("max", sharding, _negate(x), axes, mask, keepdims, ties, autodiff)
        return _negate(y)
    shape = sharding.global_shape(x.shape)
    mesh_axes = tuple(sharding.mesh_axes[axis] for axis in axes)
    masks = () if mask is None else (slices.broadcast_like(mask, x),)
    body: Callable[..., Array]
    settings: tuple[object, ...]
    if not any(mesh_axes):
        body, settings = reduce_axes, (kind, axes, ties)
    elif kind == "max":
        body, settings = _max, (axes, mesh_axes, ties)
    else:
        size = math.prod(shape[axis] for axis in axes)
        body, settings = _mean, (axes, mesh_axes, size, dtypes.mean_dtype(x.dtype))
    spec = sharding.replicate_axes(axes).spec
    y = on_shards(body, sharding, x, *masks, settings=settings, out_spec=spec, autodiff=autodiff)
    return y if keepdims else lax.squeeze(y, axes)


def max_or_min_by_type(
    kind: Kind,
    x: Array,
    axes: tuple[int, ...],
    ties: Ties,
    autodiff: Autodiff,
    keepdims: bool,
    mask: Array | None = None,
) -> Array:
    """The maximum or minimum over `axes`, of each shard first if the type of x is sharded along one of `axes`."""
    sharding = sharding_from_type(x)
    if sharding is None or all(sharding.num_shards(axis) == 1 for axis in axes):
        x = drop_unit_axes(sharding, x, axes)
        return max_or_min(x, axes, kind, ties, autodiff, keepdims, mask)
    return reduce_sharded(kind, sharding, x, axes, mask, keepdims, ties, autodiff)


def _negate(x: Array) -> Array:
    """x mapped to an order-reversed copy, whose maximum is the minimum of x. Two applications return x."""
    return lax.neg(x) if dtypes.is_float(x.dtype) else lax.bitwise_not(x)
