"""Unpooling of sharded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._api.argmax import checked_unpool
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import calling
from jaxpool._shards.place import find_place
from jaxpool._shards.unpool import unpool


@public
def max_unpool(
    y: Any,
    indices: Any,
    spatial_shape: Sequence[int],
    *,
    axes: tuple[int, ...] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Puts each element of a sharded array back where `jaxpool.sharded.max_pool_with_argmax` found it, among zeros.

    `x[b, h, w, c] = y[b, i, j, c]` for the last (i, j) in row-major order whose
    `indices[b, i, j, c] == h * W + w`, letters as in `jaxpool.max_unpool`. Each device puts its own
    elements. Only if some element of some device belongs to a neighbour, as windows that overlap may
    find it there, do all get the elements of their neighbours: that is decided where the program runs,
    by an all-reduce of one number.

    Gradient: as of `jaxpool.max_unpool`: each element of y gets the cotangent found at its index.
    Forward and reverse mode, to any order.

    Args:
      y: array as `jaxpool.max_unpool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      indices: integers of the shape of y, sharded as y; positions in the whole array, flat and
        row-major over `spatial_shape`. Each belongs to the shard of its element or to one beside it,
        which what a pool found does where windows are no longer than a shard. One that belongs
        further away, or is out of range, raises where its value is known, and is dropped where it is
        traced.
      spatial_shape: the sizes of `axes` in the whole result, multiples of the number of shards.
      axes: the axes to unpool; None is the `len(spatial_shape)` axes before the last one.
      mesh: the mesh over which y is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of y; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape of y but for `axes`, which have the sizes `spatial_shape`, sharded as y; the
      dtype of y.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, shapes do not go together, shards would not be of one
        size, or an index belongs to a shard further away.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> y, where = jnp.array([[7, 5]]), {"mesh": mesh, "spec": PartitionSpec("rows")}
      >>> jaxpool.sharded.max_unpool(y, jnp.array([[3, 4]]), (2, 3), axes=(0, 1), **where)
      Array([[0, 0, 0],
             [7, 5, 0]], dtype=int32)

    References:
      `torch.nn.functional.max_unpool2d`; `jax.shard_map` and `jax.lax.ppermute`.
    """
    name = "sharded.max_unpool"
    y, indices, pooled, sizes = checked_unpool(name, y, indices, spatial_shape, axes)
    with calling(name, **{"y.shape": y.shape, "spatial_shape": spatial_shape}):
        return unpool(find_place(y, mesh, spec), y, indices, pooled, sizes)
