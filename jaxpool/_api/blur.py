"""Averages with binomial weights, against aliasing."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.max_pool import extreme_pool
from jaxpool._api.shared_text import filled
from jaxpool._api.windowed import checked
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Ints, Padding, per_axis
from jaxpool._kernels.dtypes import as_float
from jaxpool._ops.apply import applied
from jaxpool._ops.blur import BlurPool

LONGEST = 1024  # elements along all axes of a blur, each a term of the program


@public
@filled
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
    `w[u] = C(k - 1, u) / 2^(k - 1)`, where k is the window along the axis and C(n, m) a binomial
    coefficient, other letters as in `max_pool`. Padding says how far windows reach beyond the
    border; there x is mirrored at its outermost element: 2 1 | 0 1 2. A window has at most 1024
    elements along all axes together.

    Gradient: each cotangent goes to the elements of its window, weighted as they were; what overlaps
    or was reflected is added. Nothing is kept. 8- and 16-bit floats add in float32 and are rounded
    once. Forward and reverse mode, to any order; no scatter.

    {x}
    {sizes}

    {result} Integers and bool give the dtype of `jnp.mean`.

    {errors}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.blur_pool(jnp.array([0.0, 4.0, 0.0, 8.0])[:, None], (3,)).ravel()
      Array([2., 2., 3., 4.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486, whose windows are
      those of `padding=(k - 1) // 2`; "SAME" puts what is odd at the end.
    """
    return blurred(x, window_shape, strides, padding, axes)


@public
@filled
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

    {x}
    {window}
      blur_shape: the window of the average, of at most 1024 elements along all axes together, as
        `window_shape` is that of the maximum.
    {strides}

    {result} Integers and bool give the dtype of `jnp.mean`.

    {errors}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([0.0, 4.0, 0.0, 8.0])[:, None]
      >>> jaxpool.max_blur_pool(x, (2,), (3,), (2,)).ravel()
      Array([5., 8.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486.
    """
    return max_blurred(x, window_shape, blur_shape, strides, padding, axes)


def max_blurred(
    x: Any,
    shape: Any,
    blur_shape: Any,
    strides: Any,
    padding: Any,
    axes: Any,
) -> Array:
    """The blurred maxima of x."""
    x, window, _ = checked(x, shape, padding=padding, axes=axes)
    blur = per_axis("blur_shape", blur_shape, len(window.axes))
    geometry: dict[str, Any] = {"padding": padding, "axes": window.axes}
    y = extreme_pool("max", x, shape, "first", "jvp", strides=None, **geometry)
    return blurred(y, blur, strides, **geometry, argument="blur_shape")


def blurred(
    x: Any, shape: Any, strides: Any, padding: Any, axes: Any, argument: str = "window_shape"
) -> Array:
    """The blur pool of x; `argument` names `shape` in errors."""
    geometry: dict[str, Any] = {"strides": strides, "padding": padding, "axes": axes}
    x, window, split = checked(x, shape, **geometry)
    if sum(window.window_shape) > LONGEST:
        hint = "Blur twice: windows of j and of k blur as one of j + k - 1."
        rule = f"of at most {LONGEST} elements along all axes together"
        raise ArgumentError(argument, rule, shape, hint)
    if split:
        split.check_reflected()
    op, x = BlurPool(window), as_float(x)
    if not split:
        return applied(op, x)
    y: Array = split.apply(applied, op, x)
    return y
