"""Maxima and means over whole axes that are sharded: each device reduces its shard, and all-reduces combine them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.compare import Ties, from_comparison_dtype, to_comparison_dtype
from jaxpool._kernels.dtypes import Kind, accumulator_dtype
from jaxpool._kernels.materialise import store_arguments
from jaxpool._kernels.reduce import attains_extremum
from jaxpool._ops.apply import Autodiff, apply_with_extra_args
from jaxpool._ops.linear_map import traced_for
from jaxpool._ops.ranged import departure
from jaxpool._ops.reduction import MeanOver, Reduction
from jaxpool._plan.problem import barrier_on
from jaxpool._shards.place import Place, on_shards, output_of

Names = tuple[tuple[str, ...], ...]  # the mesh axes that shard each pooled axis


def _max(axes: tuple[int, ...], names: Names, ties: Ties, x: Array, *mask: Array) -> Array:
    sizes, devices = tuple(x.shape[axis] for axis in axes), sum(names, ())
    local, winners = apply_with_extra_args(Reduction("max", ties, axes, sizes), x, *mask)
    best, reached = _best(to_comparison_dtype(lax.stop_gradient(local)), devices)
    y = from_comparison_dtype(best, x.dtype)
    if not dtypes.is_float(x.dtype):
        return y
    wide = local.astype(accumulator_dtype(x.dtype))
    if ties == "split":
        count_ties = store_arguments(barrier_on(traced_for()), functools.partial(_tie_count, axes))
        held = jnp.where(reached, count_ties(x, local, *mask), 0)
        count = lax.max(lax.psum(held, devices), np.int32(1))
        wide = wide * (held.astype(wide.dtype) / count.astype(wide.dtype))
    else:
        if mask:
            none = np.asarray(np.iinfo(winners.dtype).max, winners.dtype)
            reached = reached & (winners != none)
        reached = _first(reached, winners, names, sizes, last=ties == "last")
    shares = lax.psum(jnp.where(reached, wide, 0), devices)
    # Subtracting 0 keeps the sign of -0, adding 0 does not.
    return y - departure(-shares).astype(y.dtype)


def _best(own: Array, devices: tuple[str, ...]) -> tuple[Array, Array]:
    """The maximum over all devices, and whether this device attains it. NaN is the largest value."""
    if not dtypes.is_float(own.dtype):
        best = lax.pmax(own, devices)
        return best, own == best
    nan = jnp.isnan(own)
    best = lax.pmax(jnp.where(nan, -np.inf, own), devices)
    some_nan = lax.pmax(nan.astype(np.int32), devices) > 0
    return jnp.where(some_nan, np.nan, best), jnp.where(some_nan, nan, own == best)


def _first(
    reached: Array, rank: Array, names: Names, sizes: tuple[int, ...], *, last: bool
) -> Array:
    """Whether this device's element is the first, or last, of the devices that `reached` the maximum.

    In row-major order of the global array rows of several devices may alternate, so coordinates are compared axis by
    axis. For the last element, `rank` and shards count from the end.
    """
    first, devices = reached, sum(names, ())
    for which, along_axis in enumerate(names):
        count = lax.axis_size(along_axis) if along_axis else 1
        shard = lax.axis_index(along_axis) if along_axis else jnp.int32(0)
        unit, size = math.prod(sizes[which + 1 :]), sizes[which]
        along = (rank // np.asarray(unit, rank.dtype)).astype(np.uint32) % np.uint32(size)
        shard = count - 1 - shard if last else shard
        along = along.astype(np.int32) + shard * np.int32(size)
        along = jnp.where(first, along, np.int32(np.iinfo(np.int32).max))
        first = first & (along == lax.pmin(along, devices))
    return first


def _tie_count(axes: tuple[int, ...], x: Array, own: Array, mask: Array | None = None) -> Array:
    """Number of elements of this device that tie with its maximum; 0 if the mask excludes all."""
    tied = attains_extremum(lax.stop_gradient(x), lax.stop_gradient(own), mask)
    return jnp.sum(tied, axis=axes, keepdims=True, dtype=np.int32)


def _mean(
    axes: tuple[int, ...], names: Names, size: int, dtype: Any, x: Array, *mask: Array
) -> Array:
    devices = sum(names, ())
    wide = x.astype(dtype)
    wide = wide.astype(accumulator_dtype(wide.dtype))
    count: Any = np.asarray(size, wide.dtype)
    if mask:
        wide = jnp.where(mask[0], wide, 0)
        held = lax.psum(jnp.sum(mask[0], axis=axes, keepdims=True, dtype=np.int32), devices)
        count = lax.max(held, lax.full_like(held, 1)).astype(wide.dtype)
    total = jnp.sum(wide, axis=axes, keepdims=True, dtype=wide.dtype)
    return (lax.psum(total, devices) / count).astype(dtype)


def whole_pool(
    kind: Kind | Literal["mean"],
    place: Place,
    x: Array,
    axes: tuple[int, ...],
    mask: Array | None = None,
    keepdims: bool = True,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Array:
    """The maximum, minimum or mean over `axes`; ties are in row-major order of `axes`, and `mask` is a `where` mask."""
    if kind == "min":
        y = whole_pool("max", place, _reversed(x), axes, mask, keepdims, ties, autodiff)
        return _reversed(y)
    shape = place.global_shape(x.shape)
    names = tuple(place.names[axis] for axis in axes)
    sizes = tuple(shape[axis] for axis in axes)
    dtype = dtypes.mean_dtype(x.dtype)
    masks = () if mask is None else (slices.broadcast_like(mask, x),)
    body: Callable[..., Array]
    settings: tuple[Any, ...]
    if not any(names):
        x = x if kind == "max" else x.astype(dtype)
        op = Reduction("max", ties, axes, sizes) if kind == "max" else MeanOver(axes, sizes)
        body, settings = output_of, (op,)
    elif kind == "max":
        body, settings = _max, (axes, names, ties)
    else:
        body, settings = _mean, (axes, names, math.prod(sizes), dtype)
    out = place.reduced(axes).spec
    y = on_shards(body, place, x, *masks, settings=settings, out=out, autodiff=autodiff)
    return y if keepdims else lax.squeeze(y, axes)


def _reversed(x: Array) -> Array:
    """x in reversed order, so that its maximum is the minimum of x. Applying it twice returns x."""
    return lax.neg(x) if dtypes.is_float(x.dtype) else lax.bitwise_not(x)
