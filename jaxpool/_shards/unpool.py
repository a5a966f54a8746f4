"""Unpooling of arrays that are sharded along unpooled axes.

Disjoint windows have their maximum in their own shard; overlapping windows may have it in the adjacent shard. If every
position is in the shard of its element, each device scatters its own elements. Otherwise each device fetches the
elements of its neighbours and scatters all that belong to its shard. The choice is made at run time, for all devices.
Elements that belong to a shard further away are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Axis
from jaxpool._kernels.positions import checked_position
from jaxpool._kernels.slices import zeros_like
from jaxpool._ops.apply import applied
from jaxpool._ops.unpool import Unpool
from jaxpool._shards.halo import Halo
from jaxpool._shards.place import Place, on_shards
from jaxpool._shards.split import around, either


@dataclasses.dataclass(frozen=True)
class Lying:
    """An unpooled axis that is sharded along mesh axes `names` into `count` shards."""

    axis: int
    names: tuple[str, ...]
    count: int

    def neighbours(self, x: Array, fill: int) -> Array:
        """x concatenated between the shards before and after it, with `fill` beyond the ends of the array."""
        rows = x.shape[self.axis]
        size = rows * self.count
        return Halo(
            Axis(self.axis, size, 2 * rows + 1, 1, 1, rows, rows, size), self.names, self.count
        ).extended(x, fill)


@dataclasses.dataclass(frozen=True)
class Unpooled:
    """Scatter elements of a shard and its neighbours along `axes`; `sizes` are the sizes in the global result."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    lying: tuple[Lying, ...]

    @property
    def local_sizes(self) -> tuple[int, ...]:
        """The sizes of `axes` in a shard."""
        counts = {each.axis: each.count for each in self.lying}
        pairs = zip(self.axes, self.sizes, strict=True)
        return tuple(size // counts.get(axis, 1) for axis, size in pairs)

    def __call__(self, y: Array, indices: Array) -> Array:
        beyond = math.prod(self.sizes)
        position = checked_position(indices, beyond)
        if not self.lying:
            return self._put(y, position)
        local = self._in_shard(position)
        away = (local == math.prod(self.local_sizes)) & (position < beyond)
        any_away = _on_any_device(lax.reduce_or(away, range(away.ndim)))

        def near(y: Array, position: Array) -> Array:
            for each in self.lying:
                y, position = each.neighbours(y, 0), each.neighbours(position, beyond)
            return self._put(y, self._in_shard(position))

        return lax.cond(any_away, near, lambda y, _: self._put(y, local), y, position)

    def _put(self, y: Array, position: Array) -> Array:
        return applied(Unpool(self.axes, self.local_sizes), y, position)

    def _in_shard(self, position: Array) -> Array:
        """Convert flat positions in the global array to positions in the shard; outside it, the size of the shard."""
        lying = {each.axis: each for each in self.lying}
        local, inside, unit = lax.full_like(position, 0), lax.full_like(position, True, bool), 1
        dims = zip(self.axes, self.sizes, self.local_sizes, strict=True)
        for axis, size, rows in reversed([*dims]):
            along, position = position % np.int32(size), position // np.int32(size)
            if axis in lying:
                along = along - lax.axis_index(lying[axis].names) * np.int32(rows)
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
    shape = place.whole(y.shape)
    lying = []
    for axis, size in zip(axes, sizes, strict=True):
        count = place.count(axis)
        if size % count:
            rule = f"of a size along axis {axis} that its {count} shards divide"
            hint = f"Use {either(around(size, count, 1))} there."
            raise ArgumentError("spatial_shape", rule, sizes, hint)
        if count > 1:
            if shape[axis] == 0:
                rule = f"of at least one element along pooled axis {axis}"
                raise ArgumentError(
                    "y", rule, 0, "Use the plain function.", attribute=f"shape[{axis}]"
                )
            lying.append(Lying(axis, place.names[axis], count))
    # XLA rejects the gradient of a shard_map of arrays without elements (jax 0.10).
    if 0 in shape:
        shards = [shape[axis] // max(y.shape[axis], 1) or 1 for axis in axes]
        return zeros_like(y, axes, [n // count for n, count in zip(sizes, shards, strict=True)])
    _check_near(indices if known is None else known, shape, axes, sizes, lying)
    x: Array = on_shards(Unpooled(axes, sizes, tuple(lying)), place, y, indices)
    return x


def _check_near(
    indices: Array | np.ndarray,
    shape: Sequence[int],
    axes: Sequence[int],
    sizes: Sequence[int],
    lying: Sequence[Lying],
) -> None:
    """Raise if a concrete index is neither in the shard of its element nor in an adjacent shard."""
    if isinstance(indices, jax.core.Tracer) or not getattr(indices, "is_fully_addressable", True):
        return
    at = np.unravel_index(np.asarray(indices).astype(np.int64), sizes)
    for each in lying:
        which = axes.index(each.axis)
        target = at[which] // (sizes[which] // each.count)
        shard = np.arange(shape[each.axis]) // (shape[each.axis] // each.count)
        source = shard.reshape([-1 if axis == each.axis else 1 for axis in range(len(shape))])
        far = np.abs(target - source) > 1
        if far.any():
            rule = f"of the shard of its element along axis {each.axis}, or of one beside it"
            hint = f"Use fewer than the {each.count} shards, or the plain function on one device."
            raise ArgumentError("indices", rule, int(np.asarray(indices)[far][0]), hint)
