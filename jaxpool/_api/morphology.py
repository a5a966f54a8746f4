"""Grey morphology: dilation and erosion by a kernel."""

from __future__ import annotations

import math
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import Ints, Padding, normalise_axes
from jaxpool._geometry.window import make_window
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import Kind, is_float
from jaxpool._ops.op import Autodiff, apply
from jaxpool._ops.rank_pool import Morphology


def dilate(
    x: Any,
    kernel: Any,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey dilation: the largest sum of a window's elements and a kernel.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] + kernel[u, v, c]`,
    letters as in `max_pool`.

    Gradient: the cotangent of each output goes to the element and to the entry of the kernel whose
    sum was chosen; what overlaps is added, everything else gets zeros. NaN is larger than every number.
    Padding is never chosen. The residual is one unsigned index an output (with `ties="split"` one
    bit a tap). 8- and 16-bit floats are added and compared in float32. No scatter.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats or integers.
      kernel: array of shape `window_shape`, or of `(*window_shape, C)` with a kernel for each
        channel; floats for floats, integers for integers. Without `axes`, x has one batch axis:
        a kernel of one axis less than x is one for each channel.
      strides: an int, or one a pooled axis; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      axes: the pooled axes; channels are then the last axis that is not among them.
      ties: which of equal sums gets the cotangent: "first", "last" or "split".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, or x or the kernel is bool.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
      >>> jaxpool.dilate(x, kernel).ravel()
      Array([6., 5., 2.], dtype=float32)
      >>> jax.grad(lambda k: jaxpool.dilate(x, k).sum())(kernel)
      Array([2., 1.], dtype=float32)

    References:
      `tf.nn.dilation2d`, whose kernel has channels and whose windows are 2-D.
    """
    options = (strides, padding, window_dilation, axes, ties, autodiff)
    return _morphology("dilate", "max", x, kernel, *options)


def erode(
    x: Any,
    kernel: Any,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey erosion: the smallest difference of a window's elements and a kernel.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] - kernel[u, v, c]`,
    letters as in `max_pool`.

    Gradient: as of `dilate`, to the element that was chosen and, negative, to the entry of the
    kernel. NaN is smaller than every number.

    Args:
      x: as in `dilate`.
      kernel: as in `dilate`.
      strides: an int, or one a pooled axis; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      axes: the pooled axes; channels are then the last axis that is not among them.
      ties: which of equal differences gets the cotangent: "first", "last" or "split".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind, or x or the kernel is bool.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.erode(jnp.array([[[1], [5], [2], [0]]]), jnp.array([0, 1])).ravel()
      Array([ 1,  1, -1], dtype=int32)

    References:
      `tf.nn.erosion2d`, which reverses the kernel.
    """
    options = (strides, padding, window_dilation, axes, ties, autodiff)
    return _morphology("erode", "min", x, kernel, *options)


def _morphology(
    name: str,
    kind: Kind,
    x: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    window_dilation: Any,
    axes: Any,
    ties: Any,
    autodiff: Any,
) -> Array:
    x, kernel = as_array(name, x), as_array(name, kernel, "kernel")
    with calling(name, **{"x.shape": x.shape, "kernel.shape": kernel.shape}):
        for argument, array in (("x", x), ("kernel", kernel)):
            if array.dtype == jnp.bool_:
                rule, hint = "an array of floats or integers", "Convert it first."
                raise ArgumentError(argument, rule, array.dtype, hint, TypeError)
        if is_float(x.dtype) != is_float(kernel.dtype):
            rule = f"of {'floats' if is_float(x.dtype) else 'integers'}, as x is"
            raise ArgumentError("kernel", rule, kernel.dtype, "Convert it first.", TypeError)
        many = kernel.ndim == (x.ndim - 1 if axes is None else len(axes) + 1)
        shape = kernel.shape[: kernel.ndim - many]
        where = normalise_axes(axes, x.ndim, len(shape))
        free = [axis for axis in range(x.ndim) if axis not in where]
        if many and kernel.shape[-1:] != tuple(x.shape[axis] for axis in free[-1:]):
            rule = f"of shape window_shape or (*window_shape, C), C being {x.shape[free[-1]] if free else 'there'}"
            hint = "Pass axes=(1, 2), say, where x has no batch axis or several."
            raise ArgumentError("kernel", rule, kernel.shape, hint, of="shape")
        geometry = {"window_dilation": window_dilation, "axes": where}
        window = make_window(x.shape, shape, strides, padding, **geometry)
        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
    channels = free[-1] if many else None
    line = [1 if axis != channels else x.shape[axis] for axis in range(x.ndim)]
    flat = lax.reshape(kernel.astype(x.dtype), (math.prod(shape), *line))
    op = Morphology(window, ties, tuple(range(window.size)), kind, channels)
    return apply(op, autodiff, x, flat)
