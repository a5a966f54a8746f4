"""Pooling over the whole of sharded axes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from jaxpool._api.whole import checked
from jaxpool._arguments.errors import calling
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.compare import Ties, decode, encode
from jaxpool._kernels.dtypes import accumulator, losing
from jaxpool._ops.op import apply_given
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.scaled import departure
from jaxpool.sharded._place import Place, find_place, on_shards
from jaxpool.sharded._windowed import check_even


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A pool over the whole of `axes`; `names` are the mesh axes along which each of them lies."""

    axes: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def together(self) -> tuple[str, ...]:
        """All mesh axes along which a pooled axis lies."""
        return sum(self.names, ())

    def over_devices(self, reduction: Any, x: Array) -> Array:
        """`lax.psum` or one of its kin of x over the mesh axes, if there are any."""
        found: Array = reduction(x, self.together) if self.together else x
        return found


@dataclasses.dataclass(frozen=True)
class _Max(_Whole):
    ties: Ties

    def __call__(self, x: Array, *mask: Array) -> Array:
        sizes = tuple(x.shape[axis] for axis in self.axes)
        op = Reduction("max", self.ties, self.axes, sizes)
        own, winners = apply_given(op, x, *mask)
        best, reached = self._best(decode(lax.stop_gradient(own)))
        if self.ties == "split":
            return self._shared(own, encode(best, x.dtype), reached, winners)
        if mask:
            none = np.asarray(np.iinfo(winners.dtype).max, winners.dtype)
            reached = reached & (winners != none)
        chosen = reached & self._first(reached, winners, sizes)
        found = self.over_devices(lax.psum, jnp.where(chosen, decode(own), 0))
        if mask:
            any_counts = self.over_devices(lax.pmax, chosen.astype(np.int32)) > 0
            found = jnp.where(any_counts, found, decode(jnp.asarray(losing(x.dtype, "max"))))
        return encode(found, x.dtype)

    def _best(self, own: Array) -> tuple[Array, Array]:
        """The maximum of all devices, and whether this one's reaches it. NaN is the largest."""
        if not dtypes.is_float(own.dtype):
            best = self.over_devices(lax.pmax, own)
            return best, own == best
        nan = jnp.isnan(own)
        best = self.over_devices(lax.pmax, jnp.where(nan, -np.inf, own))
        some_nan = self.over_devices(lax.pmax, nan.astype(np.int32)) > 0
        return jnp.where(some_nan, np.nan, best), jnp.where(some_nan, nan, own == best)

    def _first(self, reached: Array, rank: Array, sizes: tuple[int, ...]) -> Array:
        """Whether this device's element comes first, or last, of those that reached the maximum.

        In row-major order of the whole array rows of several devices may take turns: the coordinates
        along each axis decide, one after another. The last element is the first from the end.
        """
        first = reached
        for which, names in enumerate(self.names):
            count = lax.axis_size(names) if names else 1
            shard = lax.axis_index(names) if names else jnp.int32(0)
            unit, size = math.prod(sizes[which + 1 :]), sizes[which]
            place = (rank // np.asarray(unit, rank.dtype)).astype(np.uint32) % np.uint32(size)
            shard = count - 1 - shard if self.ties == "last" else shard
            place = place.astype(np.int32) + shard * np.int32(size)
            place = jnp.where(first, place, np.int32(np.iinfo(np.int32).max))
            first = first & (place == self.over_devices(lax.pmin, place))
        return first

    def _shared(self, own: Array, best: Array, reached: Array, winners: Array) -> Array:
        """`best`, whose cotangent is divided equally among all elements that reach it."""
        bits = lax.population_count(winners)
        held = jnp.sum(bits, axis=self.axes, keepdims=True, dtype=np.int32)
        held = jnp.where(reached, held, 0)
        count = lax.max(self.over_devices(lax.psum, held), np.int32(1))
        if not dtypes.is_float(own.dtype):
            return best
        wide = accumulator(own.dtype)
        part = held.astype(wide) / count.astype(wide)
        moved = jnp.where(reached, departure(own.astype(wide)) * part, 0)
        return best + self.over_devices(lax.psum, moved).astype(best.dtype)


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


def _prepared(
    name: str, x: Any, axes: Any, where: Any, keepdims: Any, ties: Any, mesh: Any, spec: Any
) -> tuple[Array, tuple[int, ...], tuple[Array, ...], Place]:
    x, pooled, mask = checked(name, x, axes, where, keepdims, ties)
    with calling(name, **{"x.shape": x.shape}):
        place = find_place(x, mesh, spec)
        check_even(place, place.whole(x.shape), range(x.ndim))
    given = () if mask is None else (slices.broadcast_like(mask, x),)
    return x, pooled, given, place


def _pooled(body: _Whole, place: Place, keepdims: bool, *xs: Array) -> Array:
    entries = [None if axis in body.axes else names for axis, names in enumerate(place.names)]
    out = PartitionSpec(*[names or None for names in entries])
    y = on_shards(body, place, *xs, out=out)
    return y if keepdims else lax.squeeze(y, body.axes)


def global_max_pool(
    x: Any,
    *,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    keepdims: bool = False,
    ties: Ties = "first",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the largest element over whole axes of an array that is sharded along them.

    `y[b, c] = max over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, letters as in
    `jaxpool.global_max_pool`. Each device pools its shard; all-reduces of what they give find the
    largest, and which of those that reach it comes first in the whole array.

    Gradient: as of `jaxpool.global_max_pool`, ties on several devices included; there is no
    communication in the backward, and with `ties="split"` shares are rounded twice. Forward and
    reverse mode, to any order.

    Args:
      x: array as `jaxpool.global_max_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      axes: the pooled axes; None is all but the first and the last. Row-major order follows `axes`.
      where: array of bools that broadcasts to x, the elements that count; None is all. Inside a
        `shard_map`, those of this device's shard.
      keepdims: whether pooled axes stay, of size 1.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.global_max_pool` gives, the same on all devices along which
      pooled axes lie; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, a pooled axis has no elements, or shards would not be
        of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([[1.0, 5.0], [4.0, 2.0]])[..., None], PartitionSpec(None, "rows")
      >>> jaxpool.sharded.global_max_pool(x, mesh=mesh, spec=spec).ravel()
      Array([5., 4.], dtype=float32)

    References:
      `keras.layers.GlobalMaxPooling2D`; `jax.lax.psum`.
    """
    name = "sharded.global_max_pool"
    x, pooled, given, place = _prepared(name, x, axes, where, keepdims, ties, mesh, spec)
    names = tuple(place.names[axis] for axis in pooled)
    return _pooled(_Max(pooled, names, ties), place, keepdims, x, *given)


def global_avg_pool(
    x: Any,
    *,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    keepdims: bool = False,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the average over whole axes of an array that is sharded along them.

    `y[b, c] = 1 / n * sum over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, letters as in
    `jaxpool.global_avg_pool`. Each device adds up its shard; an all-reduce adds up what they give.

    Gradient: as of `jaxpool.global_avg_pool`; there is no communication in the backward. Forward and
    reverse mode, to any order, and `jax.linear_transpose`.

    Args:
      x: array as `jaxpool.global_avg_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      axes: the pooled axes; None is all but the first and the last.
      where: array of bools that broadcasts to x, the elements that count; None is all. Inside a
        `shard_map`, those of this device's shard.
      keepdims: whether pooled axes stay, of size 1.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.global_avg_pool` gives, the same on all devices along which
      pooled axes lie; the dtype of x for floats, float32 for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, a pooled axis has no elements, or shards would not be
        of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([[1.0, 5.0], [4.0, 2.0]])[..., None], PartitionSpec(None, "rows")
      >>> jaxpool.sharded.global_avg_pool(x, mesh=mesh, spec=spec).ravel()
      Array([3., 3.], dtype=float32)

    References:
      `keras.layers.GlobalAveragePooling2D`; `jax.lax.psum`.
    """
    name = "sharded.global_avg_pool"
    x, pooled, given, place = _prepared(name, x, axes, where, keepdims, "first", mesh, spec)
    names = tuple(place.names[axis] for axis in pooled)
    whole = place.whole(x.shape)
    dtype = x.dtype if dtypes.is_float(x.dtype) else jnp.dtype(jnp.float32)
    body = _Mean(pooled, names, math.prod(whole[axis] for axis in pooled), dtype)
    return _pooled(body, place, keepdims, x, *given)
