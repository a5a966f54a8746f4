"""Public pools of powers: `lp_pool` for p-norms and `gem_pool` for generalised means.

Both functions sum powers directly. If the sums leave the range of the dtype, both sum powers of elements divided by the
largest element.
"""

from __future__ import annotations

import math
from typing import Any

from jax import Array

from jaxpool._api.shared_text import fill_docstring_placeholders
from jaxpool._arguments.arrays import as_coefficient, checked_float
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import IntOrInts, Padding
from jaxpool._kernels import dtypes
from jaxpool._ops.masked import fill_masked
from jaxpool._ops.power_pool import MeanPool
from jaxpool._ops.ranged import apply_ranged
from jaxpool._shards.windowed import checked_array_and_windows, checked_window_mask, norm_pool


@public
@fill_docstring_placeholders
def lp_pool(
    x: Any,
    p: float,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
) -> Array:
    """Computes the p-norm of each window.

    `y[b, i, j, c] = (sum over (u, v) of |x[b, i * s - p0 + u * d, j * s - p0 + v * d, c]|^p)^(1/p)`, with B batch, H
    W spatial, C channels, strides s, low padding p0 (zeros), dilation d and offsets u, v in the window. p = 1 is the
    sum of absolute values, p = 2 the Euclidean norm, p = inf the largest absolute value. Nothing overflows or
    underflows: if a power leaves the range of the dtype anywhere in x, elements are divided by the largest of their
    window first, which is ten to thirty times slower.

    Gradient: an element gets `sign(x) * (|x| / y)^(p - 1)` of the cotangent. It gets 0 if y is 0, and also if it is 0
    itself and p <= 1; for p = inf the first largest element gets all. A window with an infinite element has gradient
    0, except for p = 1 and inf. The residual is x and y. Forward and reverse mode, to any order. A NaN makes the
    output of its windows NaN. 8- and 16-bit floats are computed in float32 and rounded once.

    {x}, also bool.
      p: a Python number above 0, or `math.inf`; use `gem_pool` for a traced p.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up; a shorter window gives the norm of its elements.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Excluded elements count as 0
        and get no gradient, even NaN.

    {float_result}

    {errors}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([3.0, -4.0, 0.0, 0.0])[:, None]
      >>> jaxpool.lp_pool(x, 2, (2,), (2,)).ravel()
      Array([5., 0.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.lp_pool(x, 2, (2,), (2,)).sum())(x).ravel()
      Array([ 0.6, -0.8,  0. ,  0. ], dtype=float32)
      >>> mask = jnp.array([True, False, True, True])[:, None]
      >>> jaxpool.lp_pool(x, 2, (2,), (2,), where=mask).ravel()
      Array([3., 0.], dtype=float32)

    References:
      `LpPool` of ONNX. `torch.nn.functional.lp_pool2d` uses powers of x itself, so that an odd p gives NaN for a
      negative sum, and scales short windows up to the full size.
    """
    x, windows = checked_array_and_windows(
        x, window_shape, strides, padding, window_dilation, ceil_mode, axes
    )
    exponent = checked_float("p", p, "a number above 0, or inf", "Pass 2, say.", lambda p: p > 0)
    mask = checked_window_mask(x, windows, where)
    x = x if mask is None else fill_masked(x, mask, 0)
    return windows.run(norm_pool, x, exponent)


@public
@fill_docstring_placeholders
def gem_pool(
    x: Any,
    p: float | Array,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    eps: float = 1e-6,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
) -> Array:
    """Computes the generalised mean of each window (GeM).

    `y[b, i, j, c] = (mean over (u, v) of max(x[b, i * s - p0 + u * d, j * s - p0 + v * d, c], eps)^p)^(1/p)`, with B
    batch, H W spatial, C channels, strides s, low padding p0, dilation d and offsets u, v in the window. The mean is
    over the real elements, without padding. p = 1 is the average, p = -1 the harmonic mean; y approaches the
    geometric mean as p goes to 0, and the maximum as p grows. Nothing overflows: if a power leaves the range of the
    dtype anywhere in x, or |p| is below 1 / 16, elements are divided by the largest element of their window first (the
    smallest if p is negative), which is ten to thirty times slower.

    Gradient: the derivative of the mean for x above eps, half of it at eps, 0 below. An array p gets a gradient too,
    so it can be learned. The residual is x, p and y. Forward and reverse mode, to any order. An infinite output has
    gradient 0. A NaN makes the output and the gradient of its windows NaN. 8- and 16-bit floats are computed in
    float32 and rounded once.

    {x}, also bool.
      p: a finite number other than 0, or an array of such numbers that broadcasts against the output: `(C,)` is one
        per channel. An array may be traced, and its values are not checked. If it varies along a pooled axis, each
        tap needs a pass over the output.
    {geometry}
      eps: a finite number above 0; smaller elements count as eps.

    {float_result}

    {errors}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
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
      Radenovic, Tolias and Chum, "Fine-tuning CNN Image Retrieval with No Human Annotation",
      arXiv:1711.02512.
    """
    x, windows = checked_array_and_windows(
        x, window_shape, strides, padding, window_dilation, ceil_mode, axes
    )
    rule, hint = "a finite number above 0", "Leave it out for 1e-6."
    min_value = checked_float("eps", eps, rule, hint, lambda e: 0 < e < math.inf)
    rule, shape = "a finite number other than 0", windows.pooled_shape(x.shape)
    exponent = as_coefficient("p", p, rule, lambda p: p != 0 and math.isfinite(p), shape)
    static_p, operands = (exponent, ()) if isinstance(exponent, float) else (None, (exponent,))
    op = MeanPool(windows.window, static_p, min_value)
    return windows.apply(apply_ranged, op, dtypes.as_float(x), *operands)
