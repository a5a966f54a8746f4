"""Softmax and logsumexp over segments of rows."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._api.regions import gathered
from jaxpool._api.segments import arguments
from jaxpool._api.shared_text import filled
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.coefficients import number
from jaxpool._arguments.errors import ArgumentError
from jaxpool._kernels.dtypes import accumulator, as_float, losing
from jaxpool._ops.apply import apply_given
from jaxpool._ops.soft_segments import Segments, SegmentSoftmax, log_of_sums


def _heat(temperature: Any, scaled: str) -> float:
    rule = "a finite number above 0"
    if isinstance(temperature, (Array, np.ndarray)):
        raise ArgumentError("temperature", rule, temperature, scaled, TypeError, static=False)
    return number(
        "temperature", temperature, rule, "Leave it out for 1.", lambda t: 0 < t < math.inf
    )


def _arguments(
    x: Any,
    segment_ids: Any,
    num_segments: Any,
    temperature: Any,
    where: Any,
    is_sorted: Any,
    scaled: str,
) -> tuple[Segments, float, Array, tuple[Array, ...]]:
    """The segments, the temperature, x as floats, the ids and perhaps a mask.

    `scaled` says what does the same for a temperature that is an array, which may be traced.
    """
    x = as_array(x)
    heat = _heat(temperature, scaled)
    count, given = arguments(x, segment_ids, num_segments, where, is_sorted)
    wide = as_float(x)
    # XLA multiplies by the inverse of a constant: both have to be normal numbers.
    info = jnp.finfo(accumulator(wide.dtype))
    heat = min(max(heat, float(info.tiny)), float(info.max) / 4)
    return Segments(count, is_sorted), heat, wide, given


@public
@filled
def segment_softmax(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the softmax over the rows of each segment, element by element: attention over the edges of a graph.

    `y[n, ...] = exp(x[n, ...] / T) / sum over m with segment_ids[m] == segment_ids[n] of exp(x[m, ...] / T)`, with N
    rows and temperature T. Every element is taken relative to the largest of its segment, so nothing overflows.

    Gradient: `dx[n] = y[n] * (dy[n] - sum over the segment of y[m] * dy[m]) / T`, one sum over segments and one gather.
    Kept are the result and the ids. Forward and reverse mode, to any order. An infinity is an
    ordinary value: rows that are all -inf have equal shares, those that are +inf share among themselves.
    A NaN makes its segment NaN. An element whose share is 0 gets the gradient 0, and its
    cotangent counts for nothing, though it were NaN. 8- and 16-bit floats are computed in float32 and
    rounded once. Sums are in an order that the ids alone decide.

    {segments}
      temperature: a finite number above 0 (float32 computes with one from 1.2e-38 to 8.5e37, and takes a number
        beyond as the nearer of these). Divide x by one that is traced or differentiated.
    {row_mask} The result there is 0.

    Returns:
      Array of the shape of x; the dtype of x for floats, that of `jnp.mean` for integers and bool.
      A row of no segment is 0.

    {wrong}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> scores, target = jnp.array([1.0, 3.0, 1.0, 7.0]), jnp.array([0, 1, 0, 5])
      >>> jaxpool.segment_softmax(scores, target, 3)
      Array([0.5, 1. , 0.5, 0. ], dtype=float32)

    References:
      `jraph.segment_softmax`, where a row whose id is out of range may be NaN.
    """
    is_sorted, scaled = indices_are_sorted, "Divide x by it instead."
    segments, heat, x, given = _arguments(
        x, segment_ids, num_segments, temperature, where, is_sorted, scaled
    )
    if 0 in (segments.count, x.shape[0]):
        return jnp.zeros_like(x)
    op = SegmentSoftmax(segments, heat)
    return gathered(lambda *xs: apply_given(op, *xs)[0], 1, x.ndim - 1, x, *given)


@public
@filled
def segment_logsumexp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes a smooth maximum of the rows of each segment, the logarithm of their summed exponentials.

    `y[s, ...] = T * log(sum over n with segment_ids[n] == s of exp(x[n, ...] / T))`, with temperature T. Exponentials
    are added up as they are where that keeps every sum within the range of its type; else every element is taken
    relative to the largest of its segment, so nothing overflows.

    Gradient: the cotangent of each segment is shared out by the softmax of its rows: a gather. Kept are x, the
    result and the ids. Forward and reverse mode, to any order. Infinities and NaN are as in
    `segment_softmax`. A segment without rows gives -inf, or the least value of a type that has none, and sends its
    cotangent nowhere. 8- and 16-bit floats are computed in float32 and rounded once.

    {segments}
      temperature: a finite number above 0, as in `segment_softmax`. For one that is traced or differentiated, divide
        x by it and multiply the result by it.
    {row_mask}

    Returns:
      Array (num_segments, ...) of the dtype of x; of integers and bools that of `jnp.mean`.

    {wrong}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.segment_logsumexp(jnp.log(jnp.array([1.0, 2.0, 3.0])), jnp.array([0, 2, 0]))
      Array([1.3862944,      -inf, 0.6931472], dtype=float32)

    References:
      `jax.scipy.special.logsumexp`, of an array at a time.
    """
    is_sorted = indices_are_sorted
    scaled = "Divide x by it and multiply the result by it instead."
    segments, heat, x, given = _arguments(
        x, segment_ids, num_segments, temperature, where, is_sorted, scaled
    )
    if 0 in (segments.count, x.shape[0]):
        return jnp.full((segments.count, *x.shape[1:]), losing(x.dtype, "max"), x.dtype)
    return gathered(functools.partial(log_of_sums, segments, heat), 1, x.ndim - 1, x, *given)
