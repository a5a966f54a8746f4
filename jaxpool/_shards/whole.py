"""Maxima and means over whole axes that are sharded: each device reduces its shard, and all-reduces combine them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.compare import Ties, decode, encode
from jaxpool._kernels.dtypes import Kind, accumulator
from jaxpool._kernels.materialise import store_arguments
from jaxpool._kernels.reduce import attained
from jaxpool._ops.apply import Autodiff, apply_with_extra_args
from jaxpool._ops.linear_map import traced_for
from jaxpool._ops.op import Op
from jaxpool._ops.ranged import departure
from jaxpool._ops.reduction import MeanOver, Reduction
from jaxpool._plan.problem import barrier_on
from jaxpool._shards.place import Place, on_shards


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A reduction over `axes`; `names` are the mesh axes that shard each axis."""

    axes: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def together(self) -> tuple[str, ...]:
        """All mesh axes that shard a pooled axis."""
        return sum(self.names, ())

    def over_devices(self, reduction: Any, x: Array) -> Array:
        """`lax.psum`, `lax.pmax` or `lax.pmin` of x over the mesh axes, if there are any."""
        reduced: Array = reduction(x, self.together) if self.together else x
        return reduced


@dataclasses.dataclass(frozen=True)
class _Max(_Whole):
    ties: Ties

    def __call__(self, x: Array, *mask: Array) -> Array:
        sizes = tuple(x.shape[axis] for axis in self.axes)
        op = Reduction("max", self.ties, self.axes, sizes)
        local, winners = apply_with_extra_args(op, x, *mask)
        best, reached = self._best(decode(lax.stop_gradient(local)))
        y = encode(best, x.dtype)
        if not dtypes.is_float(x.dtype):
            return y
        wide = local.astype(accumulator(x.dtype))
        if self.ties == "split":
            held = store_arguments(barrier_on(traced_for()), self._held)(x, local, *mask)
            held = jnp.where(reached, held, 0)
            count = lax.max(self.over_devices(lax.psum, held), np.int32(1))
            wide = wide * (held.astype(wide.dtype) / count.astype(wide.dtype))
        else:
            if mask:
                none = np.asarray(np.iinfo(winners.dtype).max, winners.dtype)
                reached = reached & (winners != none)
            reached = self._first(reached, winners, sizes)
        shares = self.over_devices(lax.psum, jnp.where(reached, wide, 0))
        # Subtracting 0 keeps the sign of -0, adding 0 does not.
        return y - departure(-shares).astype(y.dtype)

    def _best(self, own: Array) -> tuple[Array, Array]:
        """The maximum over all devices, and whether this device attains it. NaN is the largest value."""
        if not dtypes.is_float(own.dtype):
            best = self.over_devices(lax.pmax, own)
            return best, own == best
        nan = jnp.isnan(own)
        best = self.over_devices(lax.pmax, jnp.where(nan, -np.inf, own))
        some_nan = self.over_devices(lax.pmax, nan.astype(np.int32)) > 0
        return jnp.where(some_nan, np.nan, best), jnp.where(some_nan, nan, own == best)

    def _first(self, reached: Array, rank: Array, sizes: tuple[int, ...]) -> Array:
        """Whether this device's element is the first, or last, of the devices that `reached` the maximum.

        In row-major order of the global array rows of several devices may alternate, so coordinates are compared axis
        by axis. For the last element, `rank` and shards count from the end.
        """
        first = reached
        for which, names in enumerate(self.names):
            count = lax.axis_size(names) if names else 1
            shard = lax.axis_index(names) if names else jnp.int32(0)
            unit, size = math.prod(sizes[which + 1 :]), sizes[which]
            along = (rank // np.asarray(unit, rank.dtype)).astype(np.uint32) % np.uint32(size)
            shard = count - 1 - shard if self.ties == "last" else shard
            along = along.astype(np.int32) + shard * np.int32(size)
            along = jnp.where(first, along, np.int32(np.iinfo(np.int32).max))
            first = first & (along == self.over_devices(lax.pmin, along))
        return first

    def _held(self, x: Array, own: Array, mask: Array | None = None) -> Array:
        """Number of elements of this device that tie with its maximum; 0 if the mask excludes all."""
        tied = attained(lax.stop_gradient(x), lax.stop_gradient(own), mask)
        return jnp.sum(tied, axis=self.axes, keepdims=True, dtype=np.int32)


@dataclasses.dataclass(frozen=True)
class _Mean(_Whole):
    size: int
    dtype: Any

    def __call__(self, x: Array, *mask: Array) -> Array:
        wide = x.astype(self.dtype)
        wide = wide.astype(accumulator(wide.dtype))
        count: Any = np.asarray(self.size, wide.dtype)
        if mask:
            wide = jnp.where(mask[0], wide, 0)
            held = jnp.sum(mask[0], axis=self.axes, keepdims=True, dtype=np.int32)
            held = self.over_devices(lax.psum, held)
            count = lax.max(held, lax.full_like(held, 1)).astype(wide.dtype)
        total = jnp.sum(wide, axis=self.axes, keepdims=True, dtype=wide.dtype)
        return (self.over_devices(lax.psum, total) / count).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class Local:
    """An op over axes that are not sharded."""

    op: Op

    def __call__(self, x: Array, *mask: Array) -> Array:
        return apply_with_extra_args(self.op, x, *mask)[0]


def whole_pool(
    kind: Literal["max", "mean"],
    place: Place,
    x: Array,
    axes: tuple[int, ...],
    mask: Array | None = None,
    keepdims: bool = True,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Array:
    """The maximum or the mean over `axes`; `mask` is a `where` mask."""
    shape = place.whole(x.shape)
    names = tuple(place.names[axis] for axis in axes)
    sizes = tuple(shape[axis] for axis in axes)
    dtype = dtypes.float_dtype(x.dtype)
    body: Any
    if any(names) and kind == "max":
        body = _Max(axes, names, ties)
    elif any(names):
        body = _Mean(axes, names, math.prod(sizes), dtype)
    elif kind == "max":
        body = Local(Reduction("max", ties, axes, sizes))
    else:
        body, x = Local(MeanOver(axes, sizes)), x.astype(dtype)
    masks = () if mask is None else (slices.broadcast_like(mask, x),)
    out = PartitionSpec(*[None if axis in axes else part for axis, part in enumerate(place.spec)])
    y = on_shards(body, place, x, *masks, out=out, autodiff=autodiff)
    return y if keepdims else lax.squeeze(y, axes)


def _turned(x: Array, kind: Kind) -> Array:
    """x for a maximum; for a minimum, x in reversed order. Applying it twice returns x."""
    if kind == "max":
        return x
    return lax.neg(x) if dtypes.is_float(x.dtype) else lax.bitwise_not(x)


def whole_extreme(
    kind: Kind,
    place: Place,
    x: Array,
    axes: tuple[int, ...],
    mask: Array | None,
    keepdims: bool,
    ties: Ties,
    autodiff: Autodiff,
) -> Array:
    """The maximum or the minimum over `axes`; ties are in row-major order of `axes`."""
    y = whole_pool("max", place, _turned(x, kind), axes, mask, keepdims, ties, autodiff)
    return _turned(y, kind)
