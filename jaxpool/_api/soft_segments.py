"""Public softmax and logsumexp over segments of rows, for example for attention over the edges of a graph."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._api.segments import call_on_rows, check_segment_arguments
from jaxpool._api.shared_text import public
from jaxpool._arguments.arrays import as_array, checked_float
from jaxpool._arguments.errors import ArgumentError
from jaxpool._kernels.dtypes import accumulator_dtype, as_float, reduction_identity
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.soft_segments import Segments, SegmentSoftmax, apply_logsumexp


def _check_soft_segment_arguments(
    x: Any, temperature: Any, rescaling_hint: str, *segments: Any
) -> tuple[Segments, float, Array, tuple[Array, ...]]:
    """Return the segments, the temperature, x as floats, and the segment ids with the `where` mask, if any.

    `rescaling_hint` is the error hint for a temperature that is an array: how to scale x instead.
    """
    x, rule = as_array(x), "a finite number above 0"
    if isinstance(temperature, (Array, np.ndarray)):
        raise ArgumentError(
            "temperature", rule, temperature, rescaling_hint, TypeError, must_be_static=False
        )
    divisor = checked_float(
        "temperature", temperature, rule, "Leave it out for 1.", lambda t: 0 < t < math.inf
    )
    count, is_sorted, ids_and_mask = check_segment_arguments(x, *segments)
    float_x = as_float(x)
    # XLA turns a division by a constant into a product with its inverse, which must be a normal number too.
    info = jnp.finfo(accumulator_dtype(float_x.dtype))
    divisor = min(max(divisor, float(info.tiny)), float(info.max) / 4)
    return Segments(count, is_sorted), divisor, float_x, ids_and_mask


@public
def segment_softmax(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the softmax over the rows of each segment, element by element.

    `y[n, ...] = exp(x[n, ...] / T) / sum over m with segment_ids[m] == segment_ids[n] of exp(x[m, ...] / T)`, with N
    rows and temperature T. Exponentials are relative to the maximum of their segment, so nothing overflows.

    Gradient: `dx[n] = y[n] * (dy[n] - sum over the segment of y[m] * dy[m]) / T`. Infinities are ordinary values:
    rows of only -inf get equal parts, and so do several +inf; a NaN makes its segment NaN. An element with `y == 0`
    gets the gradient 0, and its cotangent is ignored, even a NaN. Forward and reverse mode, to any order.

    {segments} Their result is 0.
      temperature: a finite number above 0, clipped to the range from 1.2e-38 to 8.5e37 in float32. Divide x by a
        temperature that is traced or differentiated.

    Returns:
      Array of the shape of x; the dtype of x, or of `jnp.mean(x)` for integers and bool. A row of no segment is 0.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> scores, target = jnp.array([1.0, 3.0, 1.0, 7.0]), jnp.array([0, 1, 0, 5])
      >>> jaxpool.segment_softmax(scores, target, 3)
      Array([0.5, 1. , 0.5, 0. ], dtype=float32)

    References:
      `jraph.segment_softmax`, which may return NaN for a row whose id is out of range.
    """
    arguments = segment_ids, num_segments, where, indices_are_sorted
    segments, divisor, x, ids_and_mask = _check_soft_segment_arguments(
        x, temperature, "Divide x by it instead.", *arguments
    )
    if 0 in (segments.count, x.shape[0]):
        return jnp.zeros_like(x)
    op = SegmentSoftmax(segments, divisor)
    return call_on_rows(lambda *xs: apply_with_extra_args(op, *xs)[0], x, *ids_and_mask)


@public
def segment_logsumexp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes a smooth maximum of each segment, the logarithm of the sum of the exponentials of its rows.

    `y[s, ...] = T * log(sum over n with segment_ids[n] == s of exp(x[n, ...] / T))`, with temperature T. Nothing
    overflows: if a sum of exponentials leaves the range of its dtype, all are relative to the maximum of the segment.

    Gradient: each row gets its part of the cotangent, the softmax of its segment. Infinities and NaN are as in
    `segment_softmax`. A segment without rows gives -inf, or the lowest value of a dtype without -inf, and its
    cotangent is dropped. Forward and reverse mode, to any order.

    {segments}
      temperature: a finite number above 0, as in `segment_softmax`. For a traced or differentiated T, pass `x / T`
        and multiply the result by T.

    {float_row_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_logsumexp(jnp.log(jnp.array([1.0, 2.0, 3.0])), jnp.array([0, 2, 0]))
      Array([1.3862944,      -inf, 0.6931472], dtype=float32)

    References:
      `jax.scipy.special.logsumexp`, over one array.
    """
    rescaling_hint = "Divide x by it and multiply the result by it instead."
    arguments = segment_ids, num_segments, where, indices_are_sorted
    segments, divisor, x, ids_and_mask = _check_soft_segment_arguments(
        x, temperature, rescaling_hint, *arguments
    )
    if 0 in (segments.count, x.shape[0]):
        return jnp.full((segments.count, *x.shape[1:]), reduction_identity(x.dtype, "max"), x.dtype)
    return call_on_rows(functools.partial(apply_logsumexp, segments, divisor), x, *ids_and_mask)
