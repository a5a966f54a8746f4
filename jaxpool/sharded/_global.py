"""Pooling over the whole of sharded axes."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.whole import checked
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import calling
from jaxpool._kernels.compare import Ties
from jaxpool._shards.place import find_place
from jaxpool._shards.whole import whole_pool


@public
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
    x, pooled, mask = checked(name, x, axes, where, keepdims, ties)
    with calling(name, **{"x.shape": x.shape}):
        place = find_place(x, mesh, spec)
        return whole_pool("max", place, x, pooled, mask, keepdims, ties)


@public
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
    x, pooled, mask = checked(name, x, axes, where, keepdims)
    with calling(name, **{"x.shape": x.shape}):
        return whole_pool("mean", find_place(x, mesh, spec), x, pooled, mask, keepdims)
