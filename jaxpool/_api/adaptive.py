"""Public adaptive pooling: the caller chooses the number of windows, for any size of the input."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Axes, check_choice, check_fits_int32_indices
from jaxpool._geometry.adaptive import OutputSizes, adaptive_window
from jaxpool._kernels.dtypes import Ties
from jaxpool._ops.apply import Autodiff
from jaxpool._shards.adaptive import adaptive_pool
from jaxpool._shards.split import sharding_from_type


def _adaptive_pool(
    kind: Any, x: Any, output_shape: Any, axes: Any, autodiff: Any, ties: Any = "first"
) -> Any:
    """The adaptive pool of x of a `kind` that `_shards.adaptive.adaptive_pool` names."""
    x = as_array(x)
    sharding = sharding_from_type(x)
    shape = sharding.global_shape(x.shape) if sharding else x.shape
    window = adaptive_window(shape, output_shape, axes)
    check_choice("ties", ties, ("first", "last", "split"))
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    if kind == "argmax":
        check_fits_int32_indices("x", window.input_shape)
    return adaptive_pool(kind, sharding, x, window, ties, autodiff)


@public
def adaptive_max_pool(
    x: Any,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = max of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and `floor(j * W / M) <=
    w < ceil((j + 1) * W / M)`, with B batch, H W spatial, C channels, and N M the `output_shape`. Any number of axes
    can be pooled. Windows cover the input; neighbours may overlap, by one position if there are no more windows than
    positions. If N divides H and M divides W, this is `max_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: as in `max_pool`, to the selected element. NaN is larger than every number; -inf is an ordinary value.

    {x}, also bool (max is "or").
        Pooled axes have a known size of at least 1; batch and channel axes may have size 0.
      output_shape: the number of windows along each pooled axis, a positive int of at most the size of the axis plus
        2**20. None keeps the size of an axis. A single int needs `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last, in row-major order of `axes`.
    {selection}

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x.

    {empty}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])[:, None]
      >>> jaxpool.adaptive_max_pool(x, (3,)).ravel()
      Array([3., 5., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_max_pool(x, (3,)).sum())(x).ravel()
      Array([0., 1., 0., 2., 0.], dtype=float32)

    References:
      `torch.nn.functional.adaptive_max_pool2d` has the same windows, but selects the last NaN of a window.
    """
    y: Array = _adaptive_pool("max", x, output_shape, axes, autodiff, ties)
    return y


@public
def adaptive_max_pool_with_argmax(
    x: Any,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each window and its position, for `output_shape` windows per axis.

    y is the result of `adaptive_max_pool`, and `indices[b, i, j, c] = h * W + w` for the selected element
    `x[b, h, w, c]`, with B batch, H W spatial, C channels. `max_unpool` takes these indices.

    Gradient: y has the gradient of `adaptive_max_pool`; the integers `indices` have no gradient. In a window with a
    NaN, `ties` selects a NaN and its index.

    {x}, also bool. The pooled axes have fewer than 2**31 positions.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes, as in `adaptive_max_pool`. Indices are row-major in the order of `axes`.
      ties: as in `max_pool_with_argmax`: the "first", the "last" or "split", for the cotangent and the index.
    {autodiff}

    Returns:
      y, the result of `adaptive_max_pool`, and `indices`, an int32 array of the same shape.

    {empty}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 6]])
      >>> y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (1, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 6]], dtype=int32), Array([[3, 5]], dtype=int32))

    References:
      `torch.nn.functional.adaptive_max_pool2d` with `return_indices=True`.
    """
    y, indices = _adaptive_pool("argmax", x, output_shape, axes, autodiff, ties)
    return y, indices


@public
def adaptive_avg_pool(
    x: Any, output_shape: OutputSizes, *, axes: Axes = None, autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the average of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = mean of x[b, h, w, c]` over the windows of `adaptive_max_pool`. If N divides H and M divides W,
    with the letters used there, this is `avg_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up.

    {x}, also bool. Pooled axes have a known size of at least 1.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x, or of
      `jnp.mean(x)` for integers and bool.

    {empty}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.adaptive_avg_pool(x, (4,)).ravel()
      Array([1., 3., 6., 8.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_avg_pool(x, (2,)).sum())(x[:4]).ravel()
      Array([0.5, 0.5, 0.5, 0.5], dtype=float32)

    References:
      `torch.nn.functional.adaptive_avg_pool2d` has the same windows; `equinox.nn.AdaptiveAvgPool2d` has other windows
      if N does not divide H.
    """
    y: Array = _adaptive_pool("mean", x, output_shape, axes, autodiff)
    return y
