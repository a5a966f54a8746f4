"""Public sum and average pooling. An average is a sum pool with a divisor: a count of elements, or a number."""

from __future__ import annotations

from typing import Literal

from jax import Array
from jax import numpy as jnp

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, checked_float, wrong_dtype_error
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding, check_bool
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels import dtypes
from jaxpool._ops import sum_pool as ops
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.masked import fill_masked, masked_mean
from jaxpool._shards.windowed import sum_pool_of_shard


@public
def sum_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the sum of each window.

    `y[b, i, j, c] = sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of
    `max_pool`. Padding counts as 0.

    Gradient: each element gets the sum of the cotangents of the windows that contain the element.

    {x}, not bool.
    {geometry}
      where: the elements to include, as in `max_pool`. Excluded elements count as 0, even NaN, and get no gradient.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    {result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.sum_pool(jnp.arange(5.0)[:, None], (3,)).ravel()
      Array([3., 6., 9.], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    checked = check_input(x, arguments, autodiff=autodiff, allow_long_axes=True)
    x = checked.x
    if x.dtype == jnp.bool_:
        rule, hint = "an array of floats or integers", "Use x.astype(jnp.int32) to count."
        raise wrong_dtype_error("x", rule, x, hint)
    mask = checked.checked_mask(where)
    x = x if mask is None else fill_masked(x, mask, 0)
    return checked.run(ops.sum_pool, sum_pool_of_shard, x, "not", autodiff=autodiff)


def check_divisor(
    divisor: float | None, count_include_pad: bool, sum_dtype: dtypes.DType
) -> Literal["counted", "real"] | float:
    """Return "counted" (count with padding), "real" (count without padding), or `divisor`, in range of `sum_dtype`."""
    check_bool("count_include_pad", count_include_pad)
    if divisor is None:
        return "counted" if count_include_pad else "real"
    smallest, largest = float(jnp.finfo(sum_dtype).tiny), float(jnp.finfo(sum_dtype).max)
    rule = f"a number other than 0 in the range of {sum_dtype}"
    hint = "Leave it out to divide by the count."
    return checked_float("divisor", divisor, rule, hint, lambda d: smallest <= abs(d) <= largest)


@public
def avg_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    divisor: float | None = None,
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the average of each window.

    `y[b, i, j, c] = 1 / n * sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of
    `max_pool`. Padding counts as 0. n is the size of the window, the number of its real elements, or `divisor`.

    Gradient: every real element of a window gets `dy / n`, and overlapping windows add up.

    {x}, also bool.
    {geometry}
      count_include_pad: True divides by the size of the window, which includes padding but not the positions that
        `ceil_mode` adds. False divides by the number of real elements that `where` includes.
      where: the elements to include, as in `max_pool`. With `count_include_pad=False` y is their mean, 0 without any.
      divisor: a number other than 0 to divide by, instead of a count.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    {float_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 6.0])[:, None]
      >>> jaxpool.avg_pool(x, (2,), (2,)).ravel()
      Array([2., 4.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.avg_pool(x, (2,), (1,)).sum())(x).ravel()
      Array([0.5, 1. , 1. , 0.5], dtype=float32)
      >>> mask = jnp.array([True, True, True, False])[:, None]
      >>> jaxpool.avg_pool(x, (2,), (2,), count_include_pad=False, where=mask).ravel()
      Array([2., 2.], dtype=float32)

    References:
      `count_include_pad` of `torch.nn.functional.avg_pool2d` and of `flax.linen.avg_pool`.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    checked = check_input(x, arguments, autodiff=autodiff, allow_long_axes=True)
    x = dtypes.as_float(checked.x)
    sum_dtype = dtypes.accumulator_dtype(x.dtype)
    divisor_rule = check_divisor(divisor, count_include_pad, sum_dtype)
    mask = checked.checked_mask(where)
    if mask is not None and divisor_rule == "real":
        op = ops.SumPool(checked.window)
        return checked.apply(masked_mean, op, x, mask=mask, autodiff=autodiff)
    x = x if mask is None else fill_masked(x, mask, 0)
    return checked.run(ops.sum_pool, sum_pool_of_shard, x, divisor_rule, autodiff=autodiff)
