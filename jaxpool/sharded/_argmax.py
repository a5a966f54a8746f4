"""Max pooling of sharded arrays that also says where each maximum stands."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.argmax import chosen
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._kernels.compare import Ties
from jaxpool._ops.op import Autodiff


@public
def max_pool_with_argmax(
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
) -> tuple[Array, Array]:
    """Computes the largest element of each window of an array sharded along pooled axes, and where it stands.

    `y[b, i, j, c] = x[b, h, w, c]` with `indices[b, i, j, c] = h * W + w`, letters as in
    `jaxpool.max_pool_with_argmax`: positions are those in the whole array, whichever device has them.
    Computed as `jaxpool.sharded.max_pool` is.

    Gradient: of y, exactly as of `jaxpool.sharded.max_pool`; `indices` are integers and have none.

    Args:
      x: array as `jaxpool.max_pool_with_argmax` takes, sharded as `jaxpool.sharded.max_pool` takes it.
        The pooled axes of the whole array hold fewer than 2**31 positions.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `jaxpool.max_pool`, of the whole array.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one. Indices are
        row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and is named by `indices`: "first" or "last" in
        row-major order. "split" divides the cotangent among all of them and names the first.
      autodiff: "vjp" or "jvp", as the plain function takes; both modes work with either.
      mesh: the mesh over which x is sharded; None reads it.
      spec: a `jax.sharding.PartitionSpec` with one entry an axis of x; None reads it. Both as in
        `jaxpool.sharded.max_pool`.

    Returns:
      y, an array of the shape that `jaxpool.max_pool` gives and of the dtype of x, and `indices`, an
      int32 array of the same shape; both sharded as x.

    Raises:
      TypeError: an argument is of the wrong kind, or nothing says what `mesh` or `spec` is.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, there are too many positions for int32, or shards would not be of one
        size.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool.sharded
      >>> from jax.sharding import PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",))
      >>> x, spec = jnp.array([[1, 3, 2], [7, 5, 5]]), PartitionSpec("rows")
      >>> jaxpool.sharded.max_pool_with_argmax(x, (2, 2), axes=(0, 1), mesh=mesh, spec=spec)
      (Array([[7, 5]], dtype=int32), Array([[3, 4]], dtype=int32))

    References:
      `torch.nn.functional.max_pool2d` with `return_indices=True`; `jax.lax.ppermute`.
    """
    geometry: dict[str, Any] = {
        "where": (mesh, spec),
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return chosen("sharded.max_pool_with_argmax", x, window_shape, ties, autodiff, **geometry)
