"""Public grey morphology: `dilate` and `erode`, max and min pooling with a kernel that is added to each window."""

from __future__ import annotations

import dataclasses

from jax import Array, lax

from jaxpool._api.max_pool import max_or_min_pool
from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import (
    ArrayArgument,
    as_array,
    concrete_values,
    replicated,
    wrong_dtype_error,
)
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding, normalise_axes
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels.dtypes import Kind, Ties, is_float
from jaxpool._kernels.slices import reshard_like
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.morphology import Morphology


@public
def dilate(
    x: ArrayArgument,
    kernel: ArrayArgument,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey dilation: the maximum over each window of its elements plus the kernel.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] + kernel[u, v, c]`, with the
    letters of `max_pool`. A kernel entry of -inf excludes its element. Padding is -inf, so +inf and NaN
    give NaN there.

    Gradient: the cotangent of each output goes to the element and to the kernel entry whose sum was selected.
    Cotangents of overlapping windows add up. NaN is larger than every number, and padding is never selected.

    {x}, not bool.
    {kernel}

    {result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
      >>> jaxpool.dilate(x, kernel).ravel()
      Array([6., 5., 2.], dtype=float32)
      >>> jax.grad(lambda k: jaxpool.dilate(x, k).sum())(kernel)
      Array([2., 1.], dtype=float32)

    References:
      `tf.nn.dilation2d`.
    """
    arguments = WindowArguments((), strides, padding, window_dilation, axes=axes)
    return _dilate_or_erode("max", x, kernel, arguments, ties, autodiff)


@public
def erode(
    x: ArrayArgument,
    kernel: ArrayArgument,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey erosion: the minimum over each window of its elements minus the kernel.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] - kernel[u, v, c]`, with the
    letters of `max_pool`. Infinite entries are as in `dilate`; padding is +inf.

    Gradient: as in `dilate`, to the selected element and, negated, to the kernel entry. NaN is the smallest.

    {x}, not bool.
    {kernel}

    {result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.erode(jnp.array([[[1], [5], [2], [0]]]), jnp.array([0, 1])).ravel()
      Array([ 1,  1, -1], dtype=int32)

    References:
      `tf.nn.erosion2d`, which reverses the kernel.
    """
    arguments = WindowArguments((), strides, padding, window_dilation, axes=axes)
    return _dilate_or_erode("min", x, kernel, arguments, ties, autodiff)


def _dilate_or_erode(
    kind: Kind,
    x: ArrayArgument,
    kernel: ArrayArgument,
    arguments: WindowArguments,
    ties: Ties,
    autodiff: Autodiff,
) -> Array:
    """The dilation (`kind` is "max") or erosion ("min") of x; `kernel` has the window shape of the pool."""
    x, original_kernel, kernel = as_array(x), kernel, as_array(kernel, "kernel")
    if bool in (x.dtype, kernel.dtype) or is_float(x.dtype) != is_float(kernel.dtype):
        rule = f"of floats as x is, or of integers as x is, x being {x.dtype}"
        raise wrong_dtype_error("kernel", rule, kernel, "Convert one of them.")
    axes = arguments.axes
    axes = None if axes is None else normalise_axes(axes, x.ndim, None)
    per_channel = kernel.ndim == (x.ndim - 1 if axes is None else len(axes) + 1)
    window_shape = kernel.shape[: kernel.ndim - per_channel]
    pooled_axes = normalise_axes(axes, x.ndim, len(window_shape))
    other_axes = set(range(x.ndim)).difference(pooled_axes) if per_channel else ()
    channel_axis = max(other_axes, default=None)
    if per_channel and (channel_axis is None or kernel.shape[-1] != x.shape[channel_axis]):
        rule = "of shape window_shape or (*window_shape, C), C the size of the channels of x"
        hint = "Pass axes=(1, 2), say, where x has no batch axis or several."
        raise ArgumentError("kernel", rule, kernel.shape, hint, attribute="shape")
    if not window_shape:
        rule, hint = "of at least one pooled axis", "Pass jnp.zeros((3, 3)), say."
        raise ArgumentError("kernel", rule, kernel.shape, hint, attribute="shape")
    arguments = dataclasses.replace(arguments, window_shape=window_shape, axes=pooled_axes)
    values = concrete_values(original_kernel)
    # Unless the kernel is all zeros, the rounding of x + kernel may make different elements tie.
    if values is not None and not values.any():
        return max_or_min_pool(kind, x, arguments, ties=ties, autodiff=autodiff)
    checked = check_input(x, arguments, ties=ties, autodiff=autodiff)
    taps = lax.collapse(replicated(kernel).astype(x.dtype), 0, len(window_shape))
    unit_axes = [1 + axis for axis in range(x.ndim) if axis != channel_axis]
    weights = reshard_like(lax.expand_dims(taps, unit_axes), x)
    window = checked.window
    op = Morphology(window, ties, range(window.size), kind, channel_axis)
    return checked.apply(apply, op, x, weights, autodiff=autodiff)
