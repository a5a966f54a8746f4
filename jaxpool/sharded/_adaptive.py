"""Adaptive pooling of sharded arrays."""

from __future__ import annotations

from typing import Any, Literal

from jax import Array

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import calling
from jaxpool._arguments.sizes import check_countable
from jaxpool._geometry.adaptive import Sizes, adaptive_window
from jaxpool._kernels.compare import Ties
from jaxpool._ops.op import Autodiff
from jaxpool._shards.adaptive import adaptive_pool
from jaxpool._shards.place import find_place


def _pooled(
    name: str,
    kind: Literal["max", "mean", "argmax"],
    x: Any,
    output_shape: Any,
    axes: Any,
    ties: Any,
    autodiff: Any,
    mesh: Any,
    spec: Any,
) -> Any:
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "output_shape": output_shape}):
        place = find_place(x, mesh, spec)
        window = adaptive_window(place.whole(x.shape), output_shape, axes)
        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
        if kind == "argmax":
            check_countable("x", window.input_shape)
        return adaptive_pool(kind, place, x, window, ties)


@public
def adaptive_max_pool(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the largest element of each of a given number of windows of an array sharded along pooled axes.

    `y[b, i, j, c] = max of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and
    `floor(j * W / M) <= w < ceil((j + 1) * W / M)`, letters as in `jaxpool.adaptive_max_pool`. Where
    the number of shards divides N no window crosses the border of two, and nothing is sent; one
    window over all is `jaxpool.sharded.global_max_pool`.

    Gradient: as of `jaxpool.adaptive_max_pool`. Forward and reverse mode, to any order.

    Args:
      x: array as `jaxpool.adaptive_max_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      output_shape: the number of windows along each pooled axis of the whole array, positive ints;
        None keeps an axis as it is. An int counts for all of `axes`. Along a sharded axis a multiple
        of the number of shards, or 1 along every axis.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.adaptive_max_pool` gives, sharded as x, or one element of each
      channel on all devices; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, a pooled axis has no elements, or shards would not be
        of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])[:, None], PartitionSpec("rows")
      >>> jaxpool.sharded.adaptive_max_pool(x, (3,), mesh=mesh, spec=spec).ravel()
      Array([3., 5., 5.], dtype=float32)

    References:
      The windows of `torch.nn.functional.adaptive_max_pool2d`; `jax.shard_map`.
    """
    name = "sharded.adaptive_max_pool"
    y: Array = _pooled(name, "max", x, output_shape, axes, ties, autodiff, mesh, spec)
    return y


@public
def adaptive_max_pool_with_argmax(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> tuple[Array, Array]:
    """Computes the maxima of `jaxpool.sharded.adaptive_max_pool`, and where each stands in the whole array.

    `y[b, i, j, c] = x[b, h, w, c]` with `indices[b, i, j, c] = h * W + w`, letters as in
    `jaxpool.adaptive_max_pool_with_argmax`. `jaxpool.sharded.max_unpool` takes these indices.

    Gradient: of y, exactly as of `jaxpool.sharded.adaptive_max_pool`; `indices` are integers and have
    none.

    Args:
      x: array as `jaxpool.adaptive_max_pool_with_argmax` takes, sharded as
        `jaxpool.sharded.max_pool` takes it.
      output_shape: the number of windows along each pooled axis of the whole array, positive ints;
        None keeps an axis as it is. An int counts for all of `axes`. Along a sharded axis a multiple
        of the number of shards.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one. Indices are
        row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and is named by `indices`: "first" or "last" in
        row-major order. "split" divides the cotangent among all of them and names the first.
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      y, an array of the shape that `jaxpool.adaptive_max_pool` gives and of the dtype of x, and
      `indices`, an int32 array of the same shape; both sharded as x.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, a pooled axis has no elements, there are too many
        positions for int32, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, where = jnp.array([[1, 3, 2], [7, 5, 6]]), {"mesh": mesh, "spec": PartitionSpec("rows")}
      >>> jaxpool.sharded.adaptive_max_pool_with_argmax(x, (1, 2), axes=(0, 1), **where)
      (Array([[7, 6]], dtype=int32), Array([[3, 5]], dtype=int32))

    References:
      `torch.nn.functional.adaptive_max_pool2d` with `return_indices=True`; `jax.shard_map`.
    """
    name = "sharded.adaptive_max_pool_with_argmax"
    y, indices = _pooled(name, "argmax", x, output_shape, axes, ties, autodiff, mesh, spec)
    return y, indices


@public
def adaptive_avg_pool(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the average of each of a given number of windows of an array sharded along pooled axes.

    `y[b, i, j, c] = mean of x[b, h, w, c]` over the windows of `jaxpool.sharded.adaptive_max_pool`,
    computed as they are there.

    Gradient: as of `jaxpool.adaptive_avg_pool`; nothing is kept. Forward and reverse mode, to any
    order, and `jax.linear_transpose`.

    Args:
      x: array as `jaxpool.adaptive_avg_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      output_shape: the number of windows along each pooled axis of the whole array, positive ints;
        None keeps an axis as it is. An int counts for all of `axes`. Along a sharded axis a multiple
        of the number of shards, or 1 along every axis.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one.
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.adaptive_avg_pool` gives, sharded as x, or one element of each
      channel on all devices; the dtype of x for floats, float32 for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, a pooled axis has no elements, or shards would not be
        of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.arange(10.0)[:, None], PartitionSpec("rows")
      >>> jaxpool.sharded.adaptive_avg_pool(x, (4,), mesh=mesh, spec=spec).ravel()
      Array([1., 3., 6., 8.], dtype=float32)

    References:
      The windows of `torch.nn.functional.adaptive_avg_pool2d`; `jax.shard_map`.
    """
    name = "sharded.adaptive_avg_pool"
    y: Array = _pooled(name, "mean", x, output_shape, axes, "first", autodiff, mesh, spec)
    return y
