"""Public blur pooling: averages with binomial weights against aliasing, `blur_pool` and `max_blur_pool`."""

from __future__ import annotations

from jax import Array

from jaxpool._api.max_pool import max_or_min_pool
from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding, ints_per_axis
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels.dtypes import accumulator_dtype, as_float, cast, mean_dtype
from jaxpool._ops.apply import apply
from jaxpool._ops.blur import BlurPool

MAX_BLUR_TAPS = 1024  # limit of the sum of window sizes; each element adds a traced term


@public
def blur_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "SAME",
    *,
    axes: Axes = None,
) -> Array:
    """Computes the average of each window with binomial weights, with x reflected at its border.

    `y[b, i, j, c] = sum over (u, v) of w[u] * w[v] * x[b, i * s - p + u, j * s - p + v, c]` with
    `w[u] = C(k - 1, u) / 2^(k - 1)`. k is the size of the window along the axis, C(n, m) a binomial coefficient;
    other letters are as in `max_pool`. In the padding x is mirrored at its outermost element: 2 1 | 0 1 2. The sizes
    of a window along all axes add up to at most 1024.

    Gradient: each element gets the cotangents of its windows with the weights of the forward pass, also for its
    reflections. Forward and reverse mode, to any order.

    {x}, also bool.
    {sizes}

    {float_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.blur_pool(jnp.array([0.0, 4.0, 0.0, 8.0])[:, None], (3,)).ravel()
      Array([2., 2., 3., 4.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486, with `padding=(k - 1) // 2`;
      "SAME" adds an odd position at the end.
    """
    return _checked_blur_pool(x, WindowArguments(window_shape, strides, padding, axes=axes))


@public
def max_blur_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    blur_shape: IntOrInts,
    strides: IntOrInts | None,
    padding: Padding = "SAME",
    *,
    axes: Axes = None,
) -> Array:
    """Computes the maximum of each window with stride 1, then the `blur_pool` of the maxima.

    `y = blur_pool(max_pool(x, window_shape, None, padding), blur_shape, strides, padding)`.

    Gradient: the cotangent goes through the blur to the first of the largest elements of each window.

    {x}, also bool.
    {sizes}
      blur_shape: the window of the blur, in the form of `window_shape`. Its sizes add up to at most 1024.

    {float_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([0.0, 4.0, 0.0, 8.0])[:, None]
      >>> jaxpool.max_blur_pool(x, (2,), (3,), (2,)).ravel()
      Array([5., 8.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486.
    """
    arguments = WindowArguments(window_shape, padding=padding, axes=axes)
    checked = check_input(x, arguments)
    x, axes = checked.x, checked.window.axes
    blur_sizes = ints_per_axis("blur_shape", blur_shape, len(axes))
    # The cotangents of both pools are added in the dtype of x, so x is cast to the accumulator dtype first.
    wide_x = cast(x, accumulator_dtype(x.dtype))
    y = max_or_min_pool("max", wide_x, arguments, autodiff="jvp")
    blur_arguments = WindowArguments(blur_sizes, strides, padding, axes=axes)
    return cast(_checked_blur_pool(y, blur_arguments, "blur_shape"), mean_dtype(x.dtype))


def _checked_blur_pool(
    x: ArrayArgument, arguments: WindowArguments, arg_name: str = "window_shape"
) -> Array:
    """The blur pool of x. Error messages call the argument `window_shape` `arg_name`."""
    checked = check_input(x, arguments)
    if sum(checked.window.window_shape) > MAX_BLUR_TAPS:
        hint = "Blur twice: windows of j and of k blur as one of j + k - 1."
        rule = f"of at most {MAX_BLUR_TAPS} elements along all axes together"
        raise ArgumentError(arg_name, rule, arguments.window_shape, hint)
    if checked.shards is not None:
        checked.shards.check_reflection()
    return checked.apply(apply, BlurPool(checked.window), as_float(checked.x))
