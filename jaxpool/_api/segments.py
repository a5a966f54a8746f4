"""Public maxima with tie rules, means, sums, softmax and logsumexp over segments of rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._api.regions import Result, call_with_auto_sharding
from jaxpool._arguments.arrays import (
    ArrayArgument,
    MaskArgument,
    as_array,
    as_broadcast_mask,
    as_integer_array,
    checked_float,
    concrete_values,
    is_array,
    wrong_dtype_error,
)
from jaxpool._arguments.decorator import adds_e8m0fnu_in_float32, public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import check_unsharded
from jaxpool._arguments.sizes import (
    check_bool,
    check_choice,
    check_fits_int32_indices,
    checked_int,
    static_sizes,
)
from jaxpool._kernels.dtypes import Kind, Ties, accumulator_dtype, as_float, reduction_identity
from jaxpool._kernels.segments import Segments, clip_segment_ids
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool._ops.segments import SegmentSelect, SegmentSum
from jaxpool._ops.soft_segments import SegmentSoftmax, apply_logsumexp


class _Rows(NamedTuple):
    """The segments of the rows of an array; `ids_and_mask` has the segment id of each row, and the mask, if any."""

    segments: Segments
    ids_and_mask: tuple[Array, ...]

    def reduce(self, function: Callable[..., Array], x: Array, empty_value: ArrayLike) -> Array:
        """`function(x, *ids_and_mask)`, with a row per segment, or `empty_value` if x has no rows."""
        if 0 in (self.segments.count, x.shape[0]):
            return jnp.full((self.segments.count, *x.shape[1:]), empty_value, x.dtype)
        return self.call(function, x)

    def call(self, function: Callable[..., Result], x: Array) -> Result:
        """`function(x, *ids_and_mask)`, whose results have the axes of x, but other numbers of rows."""
        return call_with_auto_sharding(function, 1, x.ndim - 1, x, *self.ids_and_mask)


def _checked_rows(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None,
    where: MaskArgument,
    indices_are_sorted: bool,
) -> tuple[Array, _Rows]:
    """x as an array, and the segments of its rows."""
    x = as_array(x)
    if x.ndim < 1:
        hint = "Its rows are joined."
        raise ArgumentError("x", "an array (N, ...)", x.ndim, hint, attribute="ndim")
    check_fits_int32_indices("x", static_sizes(x.shape, (0,), min_size=0))
    check_unsharded(x, 0, checks_types=False)
    check_bool("indices_are_sorted", indices_are_sorted)
    hint = "Pass the segment of each row of x as int32."
    ids = as_integer_array("segment_ids", segment_ids, x.shape[:1], None, hint)
    if num_segments is None:
        concrete_ids = concrete_values(segment_ids)
        if concrete_ids is None:
            rule = "given where ids are traced or on several processes"
            hint = "The largest id, which tells the number of segments, is not known here."
            raise ArgumentError("num_segments", rule, None, hint)
        num_segments = max(int(concrete_ids.max()) + 1, 0) if concrete_ids.size else 0
    rule, hint = "None or an int from 0 to 2**31 - 1", "Pass the number of outputs."
    count = checked_int("num_segments", num_segments, rule, hint, range(2**31), "Pass an int.")
    # Kernels drop int32 ids that are out of range, so int32 ids need no clipping, which would read all ids once more.
    int32_ids = ids if ids.dtype == np.int32 else clip_segment_ids(ids, count)
    output_shape = count, *x.shape[1:]
    mask = () if where is None else (as_broadcast_mask(where, x.shape, output_shape=output_shape),)
    return x, _Rows(Segments(count, indices_are_sorted), (int32_ids, *mask))


def _segment_extremum(kind: Kind, ties: Ties, *arguments: Any) -> Array:
    """The maximum or minimum of each segment; `arguments` are those of `_checked_rows`."""
    check_choice("ties", ties, ("split", "first", "last"))
    x, rows = _checked_rows(*arguments)
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
    x, rows = _checked_rows(x, segment_ids, num_segments, where, indices_are_sorted)
    count, num_rows = rows.segments.count, x.shape[0]
    if 0 in (count, num_rows):
        y = jnp.full((count, *x.shape[1:]), reduction_identity(x.dtype, "max"), x.dtype)
        return y, jnp.full(y.shape, num_rows, np.int32)

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
@adds_e8m0fnu_in_float32
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
@adds_e8m0fnu_in_float32
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
    """The sum of the rows of each segment, or their mean; `arguments` are those of `_checked_rows`."""
    x, rows = _checked_rows(*arguments)
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


def _checked_soft_rows(
    temperature: object, rescaling_hint: str, *arguments: Any
) -> tuple[Array, _Rows, tuple[Segments, float]]:
    """x as floats, its rows, and the segments and temperature of an op; `rescaling_hint` is for a temperature array."""
    rule = "a finite number above 0"
    if is_array(temperature) and not isinstance(temperature, np.generic):
        raise ArgumentError(
            "temperature", rule, temperature, rescaling_hint, TypeError, must_be_static=False
        )
    divisor = checked_float(
        "temperature", temperature, rule, "Leave it out for 1.", lambda t: 0 < t < math.inf
    )
    x, rows = _checked_rows(*arguments)
    float_x = as_float(x)
    # XLA turns a division by a constant into a product with its inverse, which must be a normal number too.
    info = jnp.finfo(accumulator_dtype(float_x.dtype))
    divisor = min(max(divisor, float(info.tiny)), float(info.max) / 4)
    return float_x, rows, (rows.segments, divisor)


@public
@adds_e8m0fnu_in_float32
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
    x, rows, settings = _checked_soft_rows(temperature, "Divide x by it instead.", *arguments)
    if 0 in (rows.segments.count, x.shape[0]):
        return jnp.zeros_like(x)
    return rows.call(functools.partial(apply, SegmentSoftmax(*settings)), x)


@public
@adds_e8m0fnu_in_float32
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
    x, rows, settings = _checked_soft_rows(temperature, rescaling_hint, *arguments)
    identity = reduction_identity(x.dtype, "max")
    return rows.reduce(functools.partial(apply_logsumexp, *settings), x, identity)
