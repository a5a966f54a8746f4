"""Public maxima with tie rules, means, sums, softmax and logsumexp over segments of rows."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.segment_arguments import checked_rows, checked_soft_rows
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, wrong_dtype_error
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sizes import check_choice
from jaxpool._kernels.dtypes import Kind, Ties, as_float, full, reduction_identity
from jaxpool._kernels.segments import Segments
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool._ops.segments import SegmentSelect, SegmentSum
from jaxpool._ops.soft_segments import SegmentSoftmax, apply_logsumexp


def _segment_extremum(kind: Kind, ties: Ties, *arguments: Any) -> Array:
    """The maximum or minimum of each segment; `arguments` are those of `checked_rows`."""
    check_choice("ties", ties, ("split", "first", "last"))
    x, rows = checked_rows(*arguments)
    op = SegmentSelect(kind, ties, rows.segments)
    return rows.reduce(functools.partial(apply, op), x, reduction_identity(x.dtype, kind))


@public
def segment_max(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Array:
    """Computes the maximum of the rows of each segment, element by element.

    `y[s, ...] = max over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments; for bool, max is "or".

    Gradient: the cotangent is divided equally among the rows that attain the maximum, or goes to the row that `ties`
    selects. NaN is larger than every number; -inf is an ordinary value. A segment without rows gives the lowest value
    of the dtype, and its cotangent is dropped. Forward and reverse mode, to any order.

    {segments}
    {row_ties}

    {row_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, ids = jnp.array([1.0, 5.0, 2.0, 5.0]), jnp.array([0, 2, 0, 2])
      >>> jaxpool.segment_max(x, ids)
      Array([  2., -inf,   5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.segment_max(x, ids)[2])(x)
      Array([0. , 0.5, 0. , 0.5], dtype=float32)

    References:
      `jax.ops.segment_max`, whose gradient adds cotangents by a scatter.
    """
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    return _segment_extremum("max", ties, *arguments)


@public
def segment_min(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Array:
    """Computes the minimum of the rows of each segment, element by element.

    `y[s, ...] = min over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments ("and" for bool).

    Gradient: as in `segment_max`, to the rows that attain the minimum. NaN is smaller than every number. A segment
    without rows gives the highest value of the dtype.

    {segments}
    {row_ties}

    {row_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_min(jnp.array([4, 3, 1, 2]), jnp.array([1, 1, 0, -1]), 2)
      Array([1, 3], dtype=int32)

    References:
      `jax.ops.segment_min`.
    """
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    return _segment_extremum("min", ties, *arguments)


@public
def segment_max_with_argmax(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "first",
) -> tuple[Array, Array]:
    """Computes the maximum of the rows of each segment, element by element, and the index of its row.

    `y[s, j] = x[indices[s, j], j]`, the largest `x[n, j]` with `segment_ids[n] == s`, and j along the other axes.

    Gradient: y has the gradient of `segment_max`; the integers `indices` have no gradient. In a segment with a NaN,
    `ties` selects a NaN and its index. A segment without rows has the index N, which is out of range. jax drops an
    update at N, and a gather with `mode="fill"` fills the element.

    {segments}
      ties: which of equal rows gets the cotangent and the index: the "first" or the "last". "split" divides the
        cotangent among all equal rows and returns the index of the first row.

    Returns:
      y, an array of shape (num_segments, ...) and of the dtype of x, and `indices`, an int32 array of the same shape.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> y, indices = jaxpool.segment_max_with_argmax(jnp.array([1, 5, 2, 5]), jnp.array([0, 2, 0, 2]), 4)
      >>> y[2], indices
      (Array(5, dtype=int32), Array([2, 4, 1, 4], dtype=int32))

    References:
      `scatter_max` of PyTorch Scatter, which also returns N for an empty segment.
    """
    check_choice("ties", ties, ("first", "last", "split"))
    x, rows = checked_rows(x, segment_ids, num_segments, where, indices_are_sorted)
    count, num_rows = rows.segments.count, x.shape[0]
    if 0 in (count, num_rows):
        y = full((count, *x.shape[1:]), reduction_identity(x.dtype, "max"), x.dtype)
        return y, full(y.shape, num_rows, np.int32)

    def max_and_row_index(x: Array, *ids_and_mask: Array) -> tuple[Array, Array]:
        op = SegmentSelect("max", "last" if ties == "last" else "first", rows.segments)
        y, (_, row_index) = apply_with_residual(op, x, *ids_and_mask)
        if ties == "split":
            y = apply(SegmentSelect("max", ties, rows.segments), x, *ids_and_mask)
        return y, _valid_row_index(row_index, num_rows)

    return rows.call(max_and_row_index, x)


@functools.partial(jax.jit, static_argnums=1, inline=True)
def _valid_row_index(row_index: Array, num_rows: int) -> Array:
    """`row_index` with `num_rows` in place of an index that no row has, as in a segment without rows."""
    is_row = (row_index >= 0) & (row_index < num_rows)
    return jnp.where(is_row, row_index, np.int32(num_rows))


@public
def segment_mean(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the mean of the rows of each segment, element by element.

    `y[s, ...] = sum over n with segment_ids[n] == s of x[n, ...] / (number of these n)`.

    Gradient: each row gets an equal part of the cotangent of its segment. A segment without rows gives 0, and its
    cotangent is dropped. Forward and reverse mode, to any order.

    {segments}

    {float_row_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_mean(jnp.array([1.0, 5.0, 3.0]), jnp.array([0, 2, 0]), 4)
      Array([2., 0., 5., 0.], dtype=float32)

    References:
      `jax.ops.segment_sum` divided by the number of rows, as in graph libraries.
    """
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    return _segment_sum_or_mean(*arguments, is_mean=True)


@public
def segment_sum(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the sum of the rows of each segment, element by element.

    `y[s, ...] = sum over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments.

    Gradient: each row gets the cotangent of its segment. Without rows y is 0. Forward and reverse mode, to any order.

    {segments}

    {row_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_sum(jnp.array([1.0, 5.0, 3.0]), jnp.array([0, 2, 0]), 4)
      Array([4., 0., 5., 0.], dtype=float32)

    References:
      `jax.ops.segment_sum`, which adds the rows of a segment one after another.
    """
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    return _segment_sum_or_mean(*arguments, is_mean=False)


def _segment_sum_or_mean(*arguments: Any, is_mean: bool) -> Array:
    """The sum of the rows of each segment, or their mean; `arguments` are those of `checked_rows`."""
    x, rows = checked_rows(*arguments)
    if x.dtype == jnp.bool_ and not is_mean:
        rule, hint = "an array of floats or integers", "Use x.astype(jnp.int32) to count."
        raise wrong_dtype_error("x", rule, x, hint)

    def sum_rows(x: Array, ids: Array, *mask: Array) -> Array:
        num_rows = [_num_rows_per_segment(ids, rows.segments, *mask)] if is_mean else []
        return apply(SegmentSum(rows.segments, is_mean), x, ids, *num_rows, *mask)

    return rows.reduce(sum_rows, as_float(x) if is_mean else x, 0)


@functools.partial(jax.jit, static_argnums=1, inline=True)
def _num_rows_per_segment(segment_ids: Array, segments: Segments, *mask: Array) -> Array:
    """The number of rows of each segment, (segments.count,); with a mask, one number per position of its other axes."""
    # A row that is in no segment adds 0 to the first or last segment: checkify would report an index out of bounds.
    row_mask = lax.expand_dims(
        (segment_ids >= 0) & (segment_ids < segments.count), range(1, mask[0].ndim if mask else 1)
    )
    row_mask = row_mask & mask[0] if mask else row_mask
    clamped_ids = lax.clamp(np.int32(0), segment_ids, np.int32(segments.count - 1))
    return segments.reduce(jax.ops.segment_sum, row_mask.astype(np.int32), clamped_ids)


@public
def segment_softmax(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: MaskArgument = None,
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
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    x, rows, settings = checked_soft_rows(temperature, "Divide x by it instead.", *arguments)
    if 0 in (rows.segments.count, x.shape[0]):
        # An eager `jnp.zeros_like` would transfer a number; jit would drop x, and with it the devices of its mesh.
        return jax.jit(jnp.zeros_like, keep_unused=True)(x)
    return rows.call(functools.partial(apply, SegmentSoftmax(*settings)), x)


@public
def segment_logsumexp(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: MaskArgument = None,
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
    arguments = x, segment_ids, num_segments, where, indices_are_sorted
    x, rows, settings = checked_soft_rows(temperature, rescaling_hint, *arguments)
    identity = reduction_identity(x.dtype, "max")
    return rows.reduce(functools.partial(apply_logsumexp, *settings), x, identity)
