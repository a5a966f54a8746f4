"""Soft maxima: logsumexp and softmax pooling."""

from __future__ import annotations

import math
from typing import Any

from jax import Array

from jaxpool._api.windowed import checked, masked
from jaxpool._arguments.calls import public
from jaxpool._arguments.coefficients import coefficient
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._kernels import dtypes
from jaxpool._ops.masked import soft
from jaxpool._ops.ranged import ranged
from jaxpool._ops.soft_pool import LogSumExpPool, SoftmaxPool, SoftPool


def _pool(
    op: type[SoftPool],
    x: Any,
    window_shape: Any,
    temperature: Any,
    where: Any,
    **geometry: Any,
) -> Array:
    x, window, split = checked(x, window_shape, **geometry)
    rule, shape = "a finite number above 0", (split or window).pooled(x.shape)
    heat = coefficient("temperature", temperature, rule, lambda t: 0 < t < math.inf, shape)
    x = dtypes.as_float(x)
    number, arrays = (heat, ()) if isinstance(heat, float) else (None, (heat,))
    some = masked(x, window, split, where)
    if some:
        return some.run(soft, op(window, number, masked=True), x, *arrays)
    if split:
        y: Array = split.apply(ranged, op(window, number), x, *arrays)
        return y
    return ranged(op(window, number), x, *arrays)


@public
def logsumexp_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | Array = 1.0,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
) -> Array:
    """Computes a smooth maximum of each window, the logarithm of its summed exponentials.

    `y[b, i, j, c] = T * log(sum over (u, v) of exp(x[b, i * s - p + u * d, j * s - p + v * d, c] / T))`,
    with B batch, H W spatial, C channels, temperature T, strides s, low padding p (which adds
    nothing), dilation d and taps u, v inside the window. It exceeds the maximum by at most
    `T * log(n)`, n the size of the window, and approaches it as T goes to 0. Nothing overflows:
    where exponentials would leave the range of the type anywhere in x (y / T beyond 40 in float32), all
    are taken relative to the maximum of their window, which takes ten to thirty times as long.

    Gradient: the cotangent of each output is shared out by `softmax(x / T)` over its window. Forward
    and reverse mode, to any order, for `temperature` too if it is an array. Kept for the backward
    are x and the output. An infinity is an ordinary value: a window of nothing but -inf gives -inf and its elements
    equal shares, those that are +inf share among themselves. A NaN makes the output and the
    gradient of its windows NaN. 8- and 16-bit floats are computed in float32 and rounded once.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      temperature: a finite number above 0 (float32 computes with one from 5e-29 to 8.5e37, and takes
        a number beyond as the nearer of these), or an array of such that broadcasts against the output,
        traced or not, whose values are not checked; one for each output along a pooled axis takes
        a pass over the output for each element of a window.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      where: array of bools that broadcasts to x, the elements that count; None is all. What is left
        out has no weight and no gradient, whatever stands there; a window in which nothing counts
        gives the least value of the type (-inf, if there is one).

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x for floats, that of
      `jnp.mean` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([1e4, 1e4, 0.0, 3.0])[:, None]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,)))
      [10000.69, 3.05]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,), temperature=0.01))
      [10000.01, 3.0]
      >>> rounded(jax.grad(lambda x: jaxpool.logsumexp_pool(x, (2,), (2,)).sum())(x))
      [0.5, 0.5, 0.05, 0.95]
      >>> mask = jnp.array([True, True, True, False])[:, None]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,), where=mask))
      [10000.69, 0.0]

    References:
      Pinheiro and Collobert, "From Image-level to Pixel-level Labeling with Convolutional
      Networks", arXiv:1411.6228; there the mean stands in place of the sum.
    """
    return _pool(
        LogSumExpPool,
        x,
        window_shape,
        temperature,
        strides=strides,
        padding=padding,
        window_dilation=window_dilation,
        ceil_mode=ceil_mode,
        axes=axes,
        where=where,
    )


@public
def softmax_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | Array = 1.0,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
) -> Array:
    """Computes the mean of each window, its elements weighted by their softmax: SoftPool.

    `y[b, i, j, c] = sum over (u, v) of w * x[b, i * s - p + u * d, j * s - p + v * d, c]` with
    `w = softmax(x / T)` over the window, B batch, H W spatial, C channels, temperature T, strides s,
    low padding p (of weight 0), dilation d and taps u, v inside the window. It lies between the
    mean, which it approaches as T grows, and the maximum, which it approaches as T goes to 0.

    Gradient: an element gets `w * (1 + (x - y) / T)` of the cotangent, the weights being part of
    what is differentiated. Forward and reverse mode, to any order, for `temperature` too if it is
    an array. Kept for the backward are x and the
    output. An infinity is an ordinary value: -inf has weight 0 beside
    anything larger, and a window of one infinity alone gives it and its elements equal shares. A
    NaN makes the output and the gradient of its windows NaN. 8- and 16-bit floats are computed in
    float32 and rounded once.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      temperature: a finite number above 0 (float32 computes with one from 5e-29 to 8.5e37, and takes
        a number beyond as the nearer of these), or an array of such, as in `logsumexp_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      where: array of bools that broadcasts to x, the elements that count; None is all. What is left
        out has no weight and no gradient, whatever stands there; a window in which nothing counts
        gives 0.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x for floats, that of
      `jnp.mean` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([1.0, 1.0, 0.0, 3.0])[:, None]
      >>> rounded(jaxpool.softmax_pool(x, (2,), (2,)))
      [1.0, 2.86]
      >>> rounded(jaxpool.softmax_pool(x, (2,), (2,), temperature=0.1))
      [1.0, 3.0]
      >>> mask = jnp.array([False, False, True, False])[:, None]
      >>> rounded(jaxpool.softmax_pool(x, (2,), (2,), where=mask))
      [0.0, 0.0]

    References:
      Stergiou, Poppe and Kalliatakis, "Refining activation downsampling with SoftPool",
      arXiv:2101.00440.
    """
    return _pool(
        SoftmaxPool,
        x,
        window_shape,
        temperature,
        strides=strides,
        padding=padding,
        window_dilation=window_dilation,
        ceil_mode=ceil_mode,
        axes=axes,
        where=where,
    )
