"""Unpooling of arrays that are sharded along unpooled axes.

Disjoint windows have their maximum in their own shard; overlapping windows may have it in the adjacent shard. If every
position is in the shard of its element, each device scatters its own elements. Otherwise each device fetches the
elements of its neighbours and scatters all that belong to its shard. The choice is made at run time, for all devices.
Elements that belong to a shard further away are dropped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Axis
from jaxpool._kernels.positions import indices_to_positions
from jaxpool._kernels.slices import zeros_like_with_sizes
from jaxpool._ops.apply import applied
from jaxpool._ops.unpool import Unpool
from jaxpool._shards.halo import Halo
from jaxpool._shards.place import Place, on_shards
from jaxpool._shards.split import check_even


def _halo(axis: int, names: tuple[str, ...], count: int, rows: int) -> Halo:
    """The halo of an axis of `rows` rows per shard that consists of the whole shards before and after a shard."""
    size = rows * count
    return Halo(Axis(axis, size, 2 * rows + 1, 1, 1, rows, rows, size), names, count)


def _unpool_shard(
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    halos: tuple[Halo, ...],
    y: Array,
    indices: Array,
) -> Array:
    """Scatter elements of a shard and its neighbours along `axes`; `sizes` are the sizes in the global result."""
    counts = {halo.dim.axis: halo.count for halo in halos}
    pairs = zip(axes, sizes, strict=True)
    local_sizes = tuple(size // counts.get(axis, 1) for axis, size in pairs)
    beyond = math.prod(sizes)
    position = indices_to_positions(indices, beyond)

    def put(y: Array, position: Array) -> Array:
        return applied(Unpool(axes, local_sizes), y, position)

    if not halos:
        return put(y, position)
    in_shard = functools.partial(_in_shard, axes, sizes, local_sizes, halos)

    def with_neighbours(y: Array, position: Array) -> Array:
        for halo in halos:
            y, position = halo.extend(y, 0), halo.extend(position, beyond)
        return put(y, in_shard(position))

    local = in_shard(position)
    away = (local == math.prod(local_sizes)) & (position < beyond)
    any_away = _on_any_device(lax.reduce_or(away, range(away.ndim)))
    x: Array = lax.cond(any_away, with_neighbours, lambda y, _: put(y, local), y, position)
    return x


def _in_shard(
    axes: Sequence[int],
    sizes: Sequence[int],
    local_sizes: Sequence[int],
    halos: Sequence[Halo],
    position: Array,
) -> Array:
    """Convert flat positions in the global array to positions in the shard; outside it, the size of the shard."""
    by_axis = {halo.dim.axis: halo for halo in halos}
    local, inside, unit = lax.full_like(position, 0), lax.full_like(position, True, bool), 1
    dims = zip(axes, sizes, local_sizes, strict=True)
    for axis, size, rows in reversed([*dims]):
        along, position = position % np.int32(size), position // np.int32(size)
        if axis in by_axis:
            along = along - by_axis[axis].shard() * np.int32(rows)
            inside = inside & (along >= 0) & (along < rows)
        local, unit = local + along * np.int32(unit), unit * rows
    inside = inside & (position == 0)
    return lax.select(inside, local, lax.full_like(local, unit))


def _on_any_device(flag: Array) -> Array:
    """Whether the flag is set on any device. One branch has collectives, so all devices take the same branch."""
    mesh = jax.sharding.get_abstract_mesh()
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    manual = tuple(name for name, kind in pairs if kind == AxisType.Manual)
    axes = varying_mesh_axes(flag)  # empty inside a `shard_map` with check_vma=False
    names = tuple(name for name in manual if name in axes) or manual
    return lax.pmax(flag.astype(np.int32), names) > 0


def unpool(
    place: Place,
    y: Array,
    indices: Array,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    known: np.ndarray | None = None,
) -> Array:
    """Scatter elements of y to `indices` along `axes`; `sizes` are the sizes in the global result.

    `known` holds the values of `indices`, if they are concrete. Raises `ArgumentError` if shards would differ in size,
    or if a concrete index is further away than the adjacent shard.
    """
    shape = place.global_shape(y.shape)
    halos = []
    for axis, size in zip(axes, sizes, strict=True):
        count = place.count(axis)
        check_even(place, axis, size, "spatial_shape", sizes)
        if count > 1:
            if shape[axis] == 0:
                rule = f"of at least one element along pooled axis {axis}"
                raise ArgumentError(
                    "y", rule, 0, "Use the plain function.", attribute=f"shape[{axis}]"
                )
            halos.append(_halo(axis, place.names[axis], count, shape[axis] // count))
    # XLA rejects the gradient of a shard_map of arrays without elements (jax 0.10).
    if 0 in shape:
        shards = [shape[axis] // max(y.shape[axis], 1) or 1 for axis in axes]
        return zeros_like_with_sizes(
            y, axes, [n // count for n, count in zip(sizes, shards, strict=True)]
        )
    _check_near(indices if known is None else known, shape, axes, sizes, halos)
    return on_shards(_unpool_shard, place, y, indices, settings=(axes, sizes, tuple(halos)))


def _check_near(
    indices: Array | np.ndarray,
    shape: Sequence[int],
    axes: Sequence[int],
    sizes: Sequence[int],
    halos: Sequence[Halo],
) -> None:
    """Raise if a concrete index is neither in the shard of its element nor in an adjacent shard."""
    if isinstance(indices, jax.core.Tracer) or not getattr(indices, "is_fully_addressable", True):
        return
    at = np.unravel_index(np.asarray(indices).astype(np.int64), sizes)
    for halo in halos:
        which, pooled = axes.index(halo.dim.axis), halo.dim.axis
        target = at[which] // (sizes[which] // halo.count)
        shard = np.arange(shape[pooled]) // halo.own
        source = shard.reshape([-1 if axis == pooled else 1 for axis in range(len(shape))])
        far = np.abs(target - source) > 1
        if far.any():
            rule = f"of the shard of its element along axis {pooled}, or of one beside it"
            hint = f"Use fewer than the {halo.count} shards, or the plain function on one device."
            raise ArgumentError("indices", rule, int(np.asarray(indices)[far][0]), hint)
