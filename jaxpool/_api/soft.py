"""Public smooth maxima of windows with a temperature: `logsumexp_pool` and `softmax_pool`."""

from __future__ import annotations

import math
from typing import Any

from jax import Array

from jaxpool._api.shared_text import public
from jaxpool._arguments.arrays import as_coefficient
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding
from jaxpool._kernels import dtypes
from jaxpool._ops.masked import masked_soft
from jaxpool._ops.ranged import apply_ranged
from jaxpool._ops.soft_pool import LogSumExpPool, SoftmaxPool, SoftPool
from jaxpool._shards.windowed import checked_array_and_windows, checked_window_mask


def _soft_pool(
    op_class: type[SoftPool], x: Any, *geometry: Any, temperature: Any, where: Any
) -> Array:
    x, windows = checked_array_and_windows(x, *geometry)
    is_valid, shape = lambda t: 0 < t < math.inf, windows.pooled_shape(x.shape)
    static_t, operands = as_coefficient(
        "temperature", temperature, "a finite number above 0", is_valid, shape
    )
    x = dtypes.as_float(x)
    mask = checked_window_mask(x, windows, where)
    op = op_class(windows.window, static_t, is_masked=mask is not None)
    if mask is None:
        return windows.apply(apply_ranged, op, x, *operands)
    return windows.apply(masked_soft, op, x, *operands, mask=mask)


@public
def logsumexp_pool(
    x: Any,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | Array = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: Any = None,
) -> Array:
    """Computes a smooth maximum of each window, the logarithm of the sum of its exponentials.

    `y[b, i, j, c] = T * log(sum over (u, v) of exp(x[b, i * s - p + u * d, j * s - p + v * d, c] / T))`, with
    temperature T and the other letters of `max_pool`, without padding. y exceeds the maximum by at most `T * log(n)`
    for n elements, and approaches the maximum as T goes to 0. Nothing overflows: if an exponential leaves the range
    of the dtype anywhere in x, all exponentials are relative to the maximum of their window. This evaluation, for
    `y / T` beyond 40 in float32, is ten to thirty times slower.

    Gradient: an element gets its part `softmax(x / T)` of the cotangent. Infinities are ordinary values: the elements
    of a window of -inf get equal parts, and so do several +inf. A NaN makes the output and the gradient of its
    windows NaN. Forward and reverse mode, to any order, also for an array `temperature`.

    {x}, also bool.
    {geometry}
      temperature: a finite number above 0, or an array of such numbers that broadcasts against the output. In
        float32, numbers are clipped to the range from 5e-29 to 8.5e37. An array may be traced, and its values are not
        checked. An array that varies along a pooled axis needs a pass over the output for each tap.
      where: the elements to include, as in `max_pool`. Excluded elements get no weight and no gradient, even NaN.

    {float_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([1e4, 1e4, 0.0, 3.0])[:, None]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,)))
      [10000.69, 3.05]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,), temperature=0.01))
      [10000.01, 3.0]
      >>> rounded(jax.grad(lambda x: jaxpool.logsumexp_pool(x, (2,), (2,)).sum())(x))
      [0.5, 0.5, 0.05, 0.95]

    References:
      Pinheiro and Collobert, "From Image-level to Pixel-level Labeling with Convolutional Networks", arXiv:1411.6228,
      with a mean instead of the sum.
    """
    geometry = window_shape, strides, padding, window_dilation, ceil_mode, axes
    return _soft_pool(LogSumExpPool, x, *geometry, temperature=temperature, where=where)


@public
def softmax_pool(
    x: Any,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | Array = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: Any = None,
) -> Array:
    """Computes the mean of each window, weighted by the softmax of its elements (SoftPool).

    `y[b, i, j, c] = sum over (u, v) of w * x[b, i * s - p + u * d, j * s - p + v * d, c]` with `w = softmax(x / T)`
    over the window, temperature T and the other letters of `max_pool`. Padding has weight 0. y approaches the mean as
    T grows, and the maximum as T goes to 0.

    Gradient: an element gets `w * (1 + (x - y) / T)` of the cotangent. A window of equal infinities gives this
    infinity, and equal parts to its elements; next to larger elements -inf has weight 0. A NaN makes the output and
    the gradient of its windows NaN. Forward and reverse mode, to any order, also for an array `temperature`.

    {x}, also bool.
    {geometry}
      temperature: a finite number above 0, or an array of such numbers, as in `logsumexp_pool`.
      where: the elements to include, as in `logsumexp_pool`, but a window without a True gives 0.

    {float_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
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
      Stergiou, Poppe and Kalliatakis, "Refining activation downsampling with SoftPool", arXiv:2101.00440.
    """
    geometry = window_shape, strides, padding, window_dilation, ceil_mode, axes
    return _soft_pool(SoftmaxPool, x, *geometry, temperature=temperature, where=where)
