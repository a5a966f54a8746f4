"""Max and min pooling of sharded arrays."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.max_pool import pooled
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._kernels.compare import Ties
from jaxpool._ops.op import Autodiff


@public
def max_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the largest element of each window of an array that is sharded along pooled axes.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as in
    `jaxpool.max_pool`. Each device pools its shard, to which its neighbours have sent the rows that
    its windows reach: collective-permutes, forward and backward, and nothing else.

    Gradient: as of `jaxpool.max_pool`, ties at the border of two shards, NaN, -inf and padding
    included; the cotangents of rows that were sent go back to where the rows came from. What several
    shards send to an element is added in the type of x: with 8- and 16-bit floats it is rounded
    before and after. Forward and reverse mode, to any order.

    Args:
      x: array as `jaxpool.max_pool` takes. Sizes along sharded axes, and along them those of the
        output, are multiples of the number of shards. Inside a `jax.shard_map` over the axes that
        `spec` names, x is the shard of this device.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array: shards are not padded.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it from the type of x or from
        `jax.set_mesh`.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it from the type of
        x under explicit axis types, or from x itself outside `jax.jit` and `jax.grad`.

    Returns:
      Array of the shape that `jaxpool.max_pool` gives, sharded as x; the dtype of x. Inside a
      `shard_map`, the shard of this device.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import NamedSharding, PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> spec = PartitionSpec("rows")
      >>> x = jax.device_put(jnp.array([[1.0, 3.0], [2.0, 5.0]]), NamedSharding(mesh, spec))
      >>> y = jaxpool.sharded.max_pool(x, (2,), (2,), axes=(0,))
      >>> y, y.sharding.spec[0]
      (Array([[2., 5.]], dtype=float32), 'rows')

    References:
      The window arithmetic of `jax.lax.reduce_window`; `jax.shard_map` and `jax.lax.ppermute`.
    """
    geometry = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return pooled("sharded.max_pool", "max", x, window_shape, ties, autodiff, **geometry)


@public
def min_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the smallest element of each window of an array that is sharded along pooled axes.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as in
    `jaxpool.max_pool`, computed as `jaxpool.sharded.max_pool` is.

    Gradient: as of `jaxpool.min_pool`; rounded as that of `jaxpool.sharded.max_pool`. Forward and
    reverse mode, to any order.

    Args:
      x: array as `jaxpool.sharded.max_pool` takes.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.min_pool` gives, sharded as x; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([[4, 3], [1, 2], [0, 5]]), PartitionSpec("rows")
      >>> jaxpool.sharded.min_pool(x, (2,), mesh=mesh, spec=spec)
      Array([[1, 2],
             [0, 2]], dtype=int32)

    References:
      The window arithmetic of `jax.lax.reduce_window`; `jax.shard_map` and `jax.lax.ppermute`.
    """
    geometry = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return pooled("sharded.min_pool", "min", x, window_shape, ties, autodiff, **geometry)
