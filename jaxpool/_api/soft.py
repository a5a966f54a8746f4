"""Public pools between average and maximum: p-norms, generalised means, logsumexp and softmax of windows."""

from __future__ import annotations

import math

from jax import Array

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, as_coefficient, checked_float
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels import dtypes
from jaxpool._ops.masked import fill_masked, masked_soft
from jaxpool._ops.power_pool import MeanPool, norm
from jaxpool._ops.ranged import apply_ranged
from jaxpool._ops.soft_pool import LogSumExpPool, SoftmaxPool, SoftPool
from jaxpool._shards.windowed import norm_pool_of_shard


@public
def lp_pool(
    x: ArrayArgument,
    p: float,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
) -> Array:
    """Computes the p-norm of each window.

    `y[b, i, j, c] = (sum over (u, v) of |x[b, i * s - p0 + u * d, j * s - p0 + v * d, c]|^p)^(1/p)`, with low padding
    p0 (zeros) and the other letters of `max_pool`. `p = 1` is the sum of absolute values, `p = 2` the Euclidean norm,
    `p = inf` the largest absolute value. Nothing overflows or underflows. If a power leaves the range of the dtype
    anywhere in x, elements are first divided by the largest element of their window, which is slower. A NaN makes the
    output of its windows NaN. A window cut by `ceil_mode` gives the norm of its elements.

    Gradient: an element gets `sign(x) * (|x| / y)^(p - 1)` of the cotangent; for `p = inf` the first largest element
    gets the whole cotangent. The gradient is 0 if y is 0, or if `p <= 1` and the element is 0. A window with an
    infinite element has gradient 0, except for `p = 1` and `p = inf`. Forward and reverse mode, to any order.

    {x}, also bool.
      p: a Python number above 0, or `math.inf`; use `gem_pool` for a traced p.
    {geometry}
      where: the elements to include, as in `max_pool`. Excluded elements count as 0, even NaN, and get no gradient.

    {float_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([3.0, -4.0, 0.0, 0.0])[:, None]
      >>> jaxpool.lp_pool(x, 2, (2,), (2,)).ravel()
      Array([5., 0.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.lp_pool(x, 2, (2,), (2,)).sum())(x).ravel()
      Array([ 0.6, -0.8,  0. ,  0. ], dtype=float32)

    References:
      `LpPool` of ONNX. `torch.nn.functional.lp_pool2d` uses powers of x itself and scales short windows up to the
      full size. An odd p gives NaN there for a negative sum.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    checked = check_input(x, arguments)
    rule = "a number above 0 in the range of float64, or inf"
    exponent = checked_float("p", p, rule, "Pass 2, say.", lambda p: p > 0)
    mask = checked.checked_mask(where)
    x = dtypes.as_float(checked.x)
    x = x if mask is None else fill_masked(x, mask, 0)
    return checked.run(norm, norm_pool_of_shard, x, exponent)


@public
def gem_pool(
    x: ArrayArgument,
    p: float | ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    eps: float = 1e-6,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
) -> Array:
    """Computes the generalised mean of each window (GeM).

    `y[b, i, j, c] = (mean over (u, v) of max(x[b, i * s - p0 + u * d, j * s - p0 + v * d, c], eps)^p)^(1/p)`, with
    low padding p0 and the other letters of `max_pool`. The mean is over the real elements, without padding. `p = 1`
    is the average, `p = -1` the harmonic mean. y approaches the geometric mean as p goes to 0, and the maximum as p
    grows. Nothing overflows. If `|p| < 1 / 16`, or if a power leaves the range of the dtype anywhere in x, elements
    are first divided by an element of their window. The divisor is the largest element, or the smallest if p is
    negative. This evaluation is slower.

    Gradient: the derivative of the mean for x above eps, half of the derivative at eps, 0 below. An array p gets a
    gradient too. An infinite output has gradient 0, and a NaN makes the output and the gradient of its windows NaN.
    Forward and reverse mode, to any order.

    {x}, also bool.
      p: a finite number other than 0, or an array of such numbers that broadcasts against the output, such as `(C,)`
        for channels. An array may be traced, and its values are not checked. An array that varies along a pooled axis
        needs a pass over the output for each tap.
    {geometry}
      eps: a finite number above 0; smaller elements count as eps.

    {float_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
      >>> rounded(jaxpool.gem_pool(x, 1, (3,)))
      [2.0, 2.0]
      >>> p = jnp.array([3.0, 10.0])
      >>> rounded(jaxpool.gem_pool(x, p, (3,)))
      [2.29, 2.69]
      >>> rounded(jax.grad(lambda p: jaxpool.gem_pool(x, p, (3,)).sum())(p))
      [0.11, 0.03]

    References:
      Radenovic, Tolias and Chum, "Fine-tuning CNN Image Retrieval with No Human Annotation", arXiv:1711.02512.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    checked = check_input(x, arguments)
    rule, hint = "a finite number above 0 in the range of float64", "Leave it out for 1e-6."
    min_value = checked_float("eps", eps, rule, hint, lambda e: 0 < e < math.inf)
    rule, shape = "a finite number other than 0 in the range of float64", checked.output_shape
    static_p, operands = as_coefficient("p", p, rule, lambda p: p != 0 and math.isfinite(p), shape)
    op = MeanPool(checked.window, static_p, min_value)
    return checked.apply(apply_ranged, op, dtypes.as_float(checked.x), *operands)


def _soft_pool(
    op_class: type[SoftPool],
    x: ArrayArgument,
    arguments: WindowArguments,
    temperature: float | ArrayArgument,
    where: MaskArgument,
) -> Array:
    checked = check_input(x, arguments)
    rule, shape = "a finite number above 0 in the range of float64", checked.output_shape
    static_t, operands = as_coefficient(
        "temperature", temperature, rule, lambda t: 0 < t < math.inf, shape
    )
    x, mask = dtypes.as_float(checked.x), checked.checked_mask(where)
    op = op_class(checked.window, static_t, is_masked=mask is not None)
    pool = apply_ranged if mask is None else masked_soft
    return checked.apply(pool, op, x, *operands, mask=mask)


@public
def logsumexp_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | ArrayArgument = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
) -> Array:
    """Computes a smooth maximum of each window, the logarithm of the sum of its exponentials.

    `y[b, i, j, c] = T * log(sum over (u, v) of exp(x[b, i * s - p + u * d, j * s - p + v * d, c] / T))`, with
    temperature T and the other letters of `max_pool`, without padding. y exceeds the maximum by at most `T * log(n)`
    for n elements, and approaches the maximum as T goes to 0. Nothing overflows: if an exponential leaves the range
    of the dtype anywhere in x, beyond `y / T` of 40 in float32, all exponentials are relative to the maximum of their
    window, which is slower.

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
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    return _soft_pool(LogSumExpPool, x, arguments, temperature, where)


@public
def softmax_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | ArrayArgument = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
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

    References:
      Stergiou, Poppe and Kalliatakis, "Refining activation downsampling with SoftPool", arXiv:2101.00440.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    return _soft_pool(SoftmaxPool, x, arguments, temperature, where)
