"""Unpooling of arrays that are sharded along unpooled axes.

A window's maximum is in the shard of its output if windows are disjoint, and may be in the adjacent shard if windows
overlap. If all target positions are in the shard of their element, each device scatters its own elements. Otherwise
each device also fetches its neighbours' elements, and scatters the elements with targets in its shard. The choice is
made at run time, for all devices. Elements with a target beyond the adjacent shard are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import ArraySharding, axes_of_type, check_divisible
from jaxpool._geometry.window import Axis
from jaxpool._kernels.positions import indices_to_positions
from jaxpool._kernels.slices import Ints, reshape_along_axis, unravel_index, zeros_like_with_sizes
from jaxpool._ops.apply import apply
from jaxpool._ops.unpool import Unpool
from jaxpool._shards.halo import Halo
from jaxpool._shards.split import on_shards


def _shard_halo(axis: int, mesh_axes: tuple[str, ...], num_shards: int, rows: int) -> Halo:
    """A halo that consists of the whole previous and next shard, for an axis with `rows` rows per shard."""
    size = rows * num_shards
    return Halo(Axis(axis, size, 2 * rows + 1, 1, 1, rows, rows, size), mesh_axes, num_shards)


def _unpool_shard(
    axes: tuple[int, ...], sizes: tuple[int, ...], halos: tuple[Halo, ...], y: Array, indices: Array
) -> Array:
    """Unpool one shard along `axes`: scatter elements of the shard and its neighbours; `sizes` is the global shape."""
    halo_of_axis = {halo.dim.axis: halo for halo in halos}
    num_shards = [halo_of_axis[axis].num_shards if axis in halo_of_axis else 1 for axis in axes]
    local_sizes = tuple(size // count for size, count in zip(sizes, num_shards, strict=True))
    out_of_range = math.prod(sizes)
    position = indices_to_positions(indices, out_of_range)

    def scatter(y: Array, position: Array) -> Array:
        return apply(Unpool(axes, local_sizes), y, position)

    if not halos:
        return scatter(y, position)

    def local_positions(position: Array) -> Array:
        """Convert flat positions in the global array to positions in the shard, or to the shard's size if outside."""
        local, is_inside = lax.full_like(position, 0), position < out_of_range
        coordinates = unravel_index(position, sizes)
        for axis, coordinate, shard_size in zip(axes, coordinates, local_sizes, strict=True):
            if halo := halo_of_axis.get(axis):
                coordinate = coordinate - halo.shard_id() * np.int32(shard_size)
                is_inside = is_inside & (coordinate >= 0) & (coordinate < shard_size)
            local = local * np.int32(shard_size) + coordinate
        return lax.select(is_inside, local, lax.full_like(local, math.prod(local_sizes)))

    def with_neighbours(y: Array, position: Array) -> Array:
        for halo in halos:
            y, position = halo.extend(y, 0), halo.extend(position, out_of_range)
        return scatter(y, local_positions(position))

    target = local_positions(position)
    is_outside = (target == math.prod(local_sizes)) & (position < out_of_range)
    any_outside = _on_any_device(lax.reduce_or(is_outside, range(is_outside.ndim)))
    x: Array = lax.cond(any_outside, with_neighbours, lambda y, _: scatter(y, target), y, position)
    return x


def _on_any_device(flag: Array) -> Array:
    """Whether `flag` is set on any device. All devices take the same branch, because one branch has collectives."""
    mesh = jax.sharding.get_abstract_mesh()
    manual_axes = axes_of_type(mesh, AxisType.Manual)
    varying = varying_mesh_axes(jax.typeof(flag))  # empty in a `shard_map` with check_vma=False
    names = [name for name in mesh.axis_names if name in (manual_axes & varying or manual_axes)]
    return lax.pmax(flag.astype(np.int32), tuple(names)) > 0


def unpool(
    sharding: ArraySharding,
    y: Array,
    indices: Array,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    values: np.ndarray | None,
) -> Array:
    """Scatter elements of y to `indices` along `axes`; `sizes` are the global sizes of the result along `axes`.

    `values` are the values of `indices`, if they are concrete. Raises `ArgumentError` if shards would
    differ in size, or if a concrete index points beyond the adjacent shard.
    """
    shape = sharding.global_shape(y.shape)
    halos, local_sizes = [], [*sizes]
    for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        count = sharding.num_shards(axis)
        check_divisible(sharding, axis, size, "spatial_shape", sizes)
        if count == 1:
            continue
        if shape[axis] == 0:
            rule = f"of at least one element along pooled axis {axis}"
            hint = "Use the plain function."
            raise ArgumentError("y", rule, 0, hint, attribute=f"shape[{axis}]")
        halos.append(_shard_halo(axis, sharding.mesh_axes[axis], count, shape[axis] // count))
        local_sizes[i] //= count if sharding.is_manual else 1
    # XLA rejects the gradient of a shard_map of arrays without elements (jax 0.10).
    if 0 in shape:
        return zeros_like_with_sizes(y, axes, local_sizes)
    if values is not None:
        _check_adjacent(values, shape, axes, sizes, halos)
    return on_shards(_unpool_shard, sharding, y, indices, settings=(axes, sizes, tuple(halos)))


def _check_adjacent(
    values: np.ndarray, shape: Ints, axes: Ints, sizes: Ints, halos: Sequence[Halo]
) -> None:
    """Raise if an index is neither in the shard of its element nor in an adjacent shard."""
    coordinates = np.unravel_index(values.astype(np.int64), sizes)
    for halo in halos:
        axis, count = halo.dim.axis, halo.num_shards
        i = axes.index(axis)
        shard = reshape_along_axis(np.arange(shape[axis]) // halo.shard_size, axis, len(shape))
        is_far = np.abs(coordinates[i] // (sizes[i] // count) - shard) > 1
        if is_far.any():
            rule = f"of the shard of its element along axis {axis}, or of one beside it"
            hint = f"Use fewer than the {count} shards, or the plain function on one device."
            raise ArgumentError("indices", rule, int(values[is_far][0]), hint)
