"""Unpooling of arrays that lie on several devices along unpooled axes.

A pool of windows that do not meet finds each maximum in the shard that has its window; windows that overlap find some
in the shard beside it. So an element is put by its own device, or, where any element of any device belongs elsewhere,
each device gets the elements of its neighbours and puts those that belong to it. Which of the two is done is decided
where the program runs. Elements that belong further away are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType

from jaxpool._arguments.arrays import varying
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
    """An unpooled axis that lies along mesh axes `names`, in `count` shards."""

    axis: int
    names: tuple[str, ...]
    count: int

    def neighbours(self, x: Array, fill: int) -> Array:
        """x between the shards before and after it; `fill` where there is none."""
        own = x.shape[self.axis]
        size = own * self.count
        return Halo(
            Axis(self.axis, size, 2 * own + 1, 1, 1, own, own, size), self.names, self.count
        ).extended(x, fill)


@dataclasses.dataclass(frozen=True)
class Unpooled:
    """Elements of a shard, and of its neighbours, put along `axes`, of `sizes` in the whole array."""

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
        own = self._in_shard(position)
        away = (own == math.prod(self.local_sizes)) & (position < beyond)
        some = _on_any_device(lax.reduce_or(away, range(away.ndim)))

        def near(y: Array, position: Array) -> Array:
            for each in self.lying:
                y, position = each.neighbours(y, 0), each.neighbours(position, beyond)
            return self._put(y, self._in_shard(position))

        return lax.cond(some, near, lambda y, _: self._put(y, own), y, position)

    def _put(self, y: Array, position: Array) -> Array:
        return applied(Unpool(self.axes, self.local_sizes), y, position)

    def _in_shard(self, position: Array) -> Array:
        """Positions in the whole array as those in the shard; what lies elsewhere is beyond it."""
        lying = {each.axis: each for each in self.lying}
        found, inside, unit = lax.full_like(position, 0), lax.full_like(position, True, bool), 1
        dims = zip(self.axes, self.sizes, self.local_sizes, strict=True)
        for axis, size, own in reversed([*dims]):
            along, position = position % np.int32(size), position // np.int32(size)
            if axis in lying:
                along = along - lax.axis_index(lying[axis].names) * np.int32(own)
                inside = inside & (along >= 0) & (along < own)
            found, unit = found + along * np.int32(unit), unit * own
        inside = inside & (position == 0)
        return lax.select(inside, found, lax.full_like(found, unit))


def _on_any_device(flag: Array) -> Array:
    """Whether the flag is set anywhere: all devices must take the same branch, where some wait for others."""
    mesh = jax.sharding.get_abstract_mesh()
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    manual = tuple(name for name, kind in pairs if kind == AxisType.Manual)
    known = varying(flag)  # empty where a `shard_map` does not check what varies
    names = tuple(name for name in manual if name in known) or manual
    return lax.pmax(flag.astype(np.int32), names) > 0


def unpool(
    place: Place,
    y: Array,
    indices: Array,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    known: np.ndarray | None = None,
) -> Array:
    """Elements of y put at `indices`, whose values may be `known`, along `axes`, of `sizes` in the whole array.

    Raises `ArgumentError` where shards would not be of one size, or where known indices are too far away.
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
                raise ArgumentError("y", rule, 0, "Use the plain function.", of=f"shape[{axis}]")
            lying.append(Lying(axis, place.names[axis], count))
    if (
        0 in shape
    ):  # a shard_map without elements has no gradient: XLA refuses its program (jax 0.10)
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
    """Raises where indices are known, and one belongs neither to the shard of its element nor to one beside it."""
    if isinstance(indices, jax.core.Tracer) or not getattr(indices, "is_fully_addressable", True):
        return
    at = np.unravel_index(np.asarray(indices).astype(np.int64), sizes)
    for each in lying:
        which = axes.index(each.axis)
        there = at[which] // (sizes[which] // each.count)
        own = np.arange(shape[each.axis]) // (shape[each.axis] // each.count)
        here = own.reshape([-1 if axis == each.axis else 1 for axis in range(len(shape))])
        far = np.abs(there - here) > 1
        if far.any():
            rule = f"of the shard of its element along axis {each.axis}, or of one beside it"
            hint = f"Use fewer than the {each.count} shards, or the plain function on one device."
            raise ArgumentError("indices", rule, int(np.asarray(indices)[far][0]), hint)
