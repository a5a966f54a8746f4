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
from jaxpool._arguments.errors import calling
from jaxpool._kernels.dtypes import is_float, losing
from jaxpool._ops.apply import apply_given
from jaxpool._ops.soft_segments import Segments, SegmentSoftmax, log_of_sums

# Within these, its inverse and what is divided by it are normal numbers of float32.
TEMPERATURES = (2.0**-64, 2.0**64)


def _arguments(
    name: str,
    x: Any,
    segment_ids: Any,
    num_segments: Any,
    temperature: Any,
    where: Any,
    is_sorted: Any,
) -> tuple[Segments, float, Array, tuple[Array, ...]]:
    """The segments, the temperature, x as floats, the ids and perhaps a mask."""
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape}):
        rule, hint = "a finite number above 0", "Divide x by a temperature that is traced."
        heat = number("temperature", temperature, rule, hint, lambda t: 0 < t < math.inf)
        count, given = arguments(x, segment_ids, num_segments, where, is_sorted)
    heat = min(max(heat, TEMPERATURES[0]), TEMPERATURES[1])
    wide = x if is_float(x.dtype) else x.astype(np.float32)
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
    rounded once. Sums are in an order
    that the ids alone decide.

    {segments}
      temperature: a finite number above 0 (one beyond 2**64 or its inverse is taken as that). Divide x by one that
        is traced or differentiated.
    {row_mask} The result there is 0.

    Returns:
      Array of the shape of x; the dtype of x for floats, float32 for integers and bool. A row of no segment is 0.

    {wrong}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> scores, target = jnp.array([1.0, 3.0, 1.0, 7.0]), jnp.array([0, 1, 0, 5])
      >>> jaxpool.segment_softmax(scores, target, 3)
      Array([0.5, 1. , 0.5, 0. ], dtype=float32)

    References:
      `jraph.segment_softmax`, whose rows beyond the last segment are NaN or not by what stands there.
    """
    name, is_sorted = "segment_softmax", indices_are_sorted
    segments, heat, x, given = _arguments(
        name, x, segment_ids, num_segments, temperature, where, is_sorted
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

    `y[s, ...] = T * log(sum over n with segment_ids[n] == s of exp(x[n, ...] / T))`, with temperature T. Every element
    is taken relative to the largest of its segment, so nothing overflows.

    Gradient: the cotangent of each segment is shared out by the softmax of its rows: a gather. Kept are the
    exponentials, their sums and the ids. Forward and reverse mode, to any order. Infinities and NaN are as in
    `segment_softmax`. A segment without rows gives -inf, or the least value of a type that has none, and sends its
    cotangent nowhere. 8- and 16-bit floats are computed in float32 and rounded once.

    {segments}
      temperature: a finite number above 0 (one beyond 2**64 or its inverse is taken as that).
    {row_mask}

    Returns:
      Array (num_segments, ...) of the dtype of x; of integers and bools float32.

    {wrong}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.segment_logsumexp(jnp.log(jnp.array([1.0, 2.0, 3.0])), jnp.array([0, 2, 0]))
      Array([1.3862944,      -inf, 0.6931472], dtype=float32)

    References:
      `jax.scipy.special.logsumexp`, of an array at a time.
    """
    name, is_sorted = "segment_logsumexp", indices_are_sorted
    segments, heat, x, given = _arguments(
        name, x, segment_ids, num_segments, temperature, where, is_sorted
    )
    if 0 in (segments.count, x.shape[0]):
        return jnp.full((segments.count, *x.shape[1:]), losing(x.dtype, "max"), x.dtype)
    return gathered(functools.partial(log_of_sums, segments, heat), 1, x.ndim - 1, x, *given)
