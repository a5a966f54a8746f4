"""Lp pooling of sharded arrays."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.power import norms
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Ints, Padding


@public
def lp_pool(
    x: Any,
    p: float,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Computes the p-norm of each window of an array that is sharded along pooled axes.

    `y[b, i, j, c] = (sum over (u, v) of |x[b, i * s - p0 + u * d, j * s - p0 + v * d, c]|^p)^(1/p)`,
    letters as in `jaxpool.lp_pool`. Each device pools its shard, to which its neighbours have sent the
    rows that its windows reach: collective-permutes, forward and backward, and nothing else.

    Gradient: as of `jaxpool.lp_pool`, rounded as that of `jaxpool.sharded.max_pool`. Forward and
    reverse mode, to any order. Kept for the backward is x with its halo.

    Args:
      x: array as `jaxpool.lp_pool` takes, sharded as `jaxpool.sharded.max_pool` takes it.
      p: a Python number above 0, or `math.inf`.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up; a window cut short is the norm of what it has.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      Array of the shape that `jaxpool.lp_pool` gives, sharded as x; the dtype of x for floats, float32
      for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or shards would not be of one size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([3.0, -4.0, 0.0, 0.0])[:, None], PartitionSpec("rows")
      >>> jaxpool.sharded.lp_pool(x, 2, (2,), (2,), mesh=mesh, spec=spec).ravel()
      Array([5., 0.], dtype=float32)

    References:
      `LpPool` of ONNX; `jax.shard_map` and `jax.lax.ppermute`.
    """
    geometry = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return norms("sharded.lp_pool", x, p, window_shape, **geometry)
