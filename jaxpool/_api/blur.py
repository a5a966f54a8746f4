"""Averages with binomial weights, against aliasing."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax import numpy as jnp

from jaxpool._api.max_pool import max_pool
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.errors import calling
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels.dtypes import is_float
from jaxpool._ops.blur_pool import BlurPool
from jaxpool._ops.op import apply


def blur_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "SAME",
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the average of each window with binomial weights, x being reflected at its border.

    `y[b, i, j, c] = sum over (u, v) of w[u] * w[v] * x[b, i * s - p + u, j * s - p + v, c]` with
    `w[u] = C(k - 1, u) / 2^(k - 1)`, where k is the window along the axis, C a binomial coefficient, and other letters
    as in `max_pool`. What lies beyond the border is x mirrored at its outermost element: 2 1 | 0 1 2.

    Gradient: each cotangent goes to the elements of its window, weighted as they were; what overlaps
    or was reflected is added. Nothing is kept. 8- and 16-bit floats add in float32 and are rounded
    once. Forward and reverse mode, to any order; no scatter.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `max_pool`; it says how far windows reach beyond the border.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x, but float32 for integers or bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.blur_pool(jnp.array([0.0, 4.0, 0.0, 8.0])[:, None], (3,)).ravel()
      Array([2., 2., 3., 4.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486, whose windows
      `padding=(k - 1) // 2` centres at any stride; "SAME" puts what is odd at the end.
    """
    x, window = _checked("blur_pool", x, window_shape, strides, padding, axes)
    return _blurred(x, window)


def _checked(
    name: str, x: Any, window_shape: Any, strides: Any, padding: Any, axes: Any
) -> tuple[Array, Window]:
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "window_shape": window_shape}):
        return x, make_window(x.shape, window_shape, strides, padding, axes=axes)


def _blurred(x: Array, window: Window) -> Array:
    x = x if is_float(x.dtype) else x.astype(jnp.float32)
    sides = [(0, 0)] * x.ndim
    for dim in window.dims:
        sides[dim.axis] = (dim.low, max(0, dim.tail))
    x = jnp.pad(x, sides, "reflect")
    geometry = (window.window_shape, [dim.stride for dim in window.dims])
    return apply(BlurPool(make_window(x.shape, *geometry, axes=window.axes)), "jvp", x)


def max_blur_pool(
    x: Any,
    window_shape: Ints,
    blur_shape: Ints,
    strides: Ints | None,
    padding: Padding = "SAME",
    *,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the maximum of each window at stride 1, and then its `blur_pool`.

    `y = blur_pool(max_pool(x, window_shape, None, padding), blur_shape, strides, padding)`.

    Gradient: that of both: to the first of the largest elements, in the shares of the blur.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: of the maximum, one positive int a pooled axis; an int for all of `axes`.
      blur_shape: of the average, likewise.
      strides: of the average, likewise; None is 1.
      padding: of both, as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.

    Returns:
      Array of the shape that `max_pool` gives twice; the dtype of x, but float32 for integers or bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([0.0, 4.0, 0.0, 8.0])[:, None]
      >>> jaxpool.max_blur_pool(x, (2,), (3,), (2,)).ravel()
      Array([5., 8.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486; `kornia`'s `MaxBlurPool2D`,
      which pads with zeros.
    """
    name = "max_blur_pool"
    x, _ = _checked(name, x, window_shape, None, padding, axes)
    y = max_pool(x, window_shape, None, padding, axes=axes, autodiff="jvp")
    y, blur = _checked(name, y, blur_shape, strides, padding, axes)
    return _blurred(y, blur)
