"""Average and sum pooling of sharded arrays."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.avg_pool import averaged, summed
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._ops.op import Autodiff


@public
def sum_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the sum of each window of an array that is sharded along pooled axes.

    `y[b, i, j, c] = sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as in
    `jaxpool.sum_pool`. Each device pools its shard, to which its neighbours have sent the rows that
    its windows reach: collective-permutes, forward and backward, and nothing else.

    Gradient: as of `jaxpool.sum_pool`; nothing is kept. What several shards send to an element is
    added in the type of x: with 8- and 16-bit floats it is rounded before and after. Forward and
    reverse mode, to any order, and `jax.linear_transpose`.

    Args:
      x: array as `jaxpool.sum_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.sum_pool` gives, sharded as x; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, x is bool, or nothing says what `mesh` or `spec`
        is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.arange(5.0)[:, None], PartitionSpec("rows")
      >>> jaxpool.sharded.sum_pool(x, (3,), mesh=mesh, spec=spec).ravel()
      Array([3., 6., 9.], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`; `jax.shard_map` and `jax.lax.ppermute`.
    """
    geometry: dict[str, Any] = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return summed("sharded.sum_pool", x, window_shape, autodiff=autodiff, **geometry)


@public
def avg_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    divisor: float | None = None,
    autodiff: Autodiff = "vjp",
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the average of each window of an array that is sharded along pooled axes.

    `y[b, i, j, c] = 1 / n * sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`,
    letters as in `jaxpool.avg_pool`: n counts elements of the whole array, wherever they lie. Computed
    as `jaxpool.sharded.sum_pool` is.

    Gradient: as of `jaxpool.avg_pool`, rounded as that of `jaxpool.sharded.sum_pool`; nothing is
    kept. Forward and reverse mode, to any order, and `jax.linear_transpose`.

    Args:
      x: array as `jaxpool.avg_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array.
      count_include_pad: True divides by the size of the window, padding counted but a ceil overhang
        not; False by the number of real elements.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      divisor: a number other than 0 to divide by in place of a count.
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.avg_pool` gives, sharded as x; the dtype of x for floats,
      float32 for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([1.0, 3.0, 2.0, 6.0])[:, None], PartitionSpec("rows")
      >>> jaxpool.sharded.avg_pool(x, (2,), (2,), mesh=mesh, spec=spec).ravel()
      Array([2., 4.], dtype=float32)

    References:
      `count_include_pad` of `torch.nn.functional.avg_pool2d`; `jax.shard_map` and
      `jax.lax.ppermute`.
    """
    geometry: dict[str, Any] = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    division = divisor, count_include_pad
    return averaged("sharded.avg_pool", x, window_shape, division, autodiff=autodiff, **geometry)
