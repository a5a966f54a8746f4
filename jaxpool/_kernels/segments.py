"""Reductions over segments of rows. Floats are added in an order that depends only on the segment ids.

XLA for CPU runs the updates of a scatter in order (`partial_sums.py`). On other platforms, float rows are sorted
by id and added by an associative scan that restarts at each segment. Ids are int32. Rows in no segment have other ids.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.partial_sums import segment_sums_in_order


def clip_segment_ids(segment_ids: Array, num_segments: int) -> Array:
    """Convert `segment_ids` to int32, and ids out of range to -1 or `num_segments`, so that sorted ids stay sorted."""
    if segment_ids.dtype.itemsize < 4:
        segment_ids = segment_ids.astype(np.int32)
    valid = (segment_ids >= 0) & (segment_ids < num_segments)
    int32_ids = segment_ids.astype(np.int32)
    invalid_id = jnp.where(segment_ids < 0, np.int32(-1), np.int32(num_segments))
    return jnp.where(valid, int32_ids, invalid_id)


def gather_value_or_zero(y: Array, segment_ids: Array, *, stores_copy: bool = False) -> Array:
    """For each of N rows, gather the entry of its segment from y (num_segments, ...): an array (N, ...).

    Rows in no segment get 0; with `stores_copy`, from a row of zeros at the end of a stored copy of y.
    """
    is_valid = (segment_ids >= 0) & (segment_ids < y.shape[0])
    index = jnp.where(is_valid, segment_ids, np.int32(y.shape[0]))
    if not stores_copy:
        return jnp.take(y, index, axis=0, mode="fill", fill_value=0)
    rows = lax.pad(y, jnp.zeros((), y.dtype), [(0, 1, 0), *[(0, 0, 0)] * (y.ndim - 1)])
    rows, index = lax.optimization_barrier((rows, index))
    return rows.at[index].get(mode="promise_in_bounds")


def gather_value_unchecked(y: Array, segment_ids: Array) -> Array:
    """As `gather_value_or_zero`, but rows in no segment get an arbitrary entry of y, which needs no select."""
    index = lax.clamp(np.int32(0), segment_ids, np.int32(y.shape[0] - 1))
    return y.at[index].get(mode="promise_in_bounds")


def fill_where_masked(x: Array, fill: Any, *mask: Array) -> Array:
    """Replace elements of x by `fill` where the optional mask is False."""
    return jnp.where(mask[0], x, jnp.asarray(fill, x.dtype)) if mask else x


def reduce_segments(
    jax_segment_op: Callable[..., Array],
    x: Array,
    segment_ids: Array,
    num_segments: int,
    is_sorted: bool,
) -> Array:
    """Reduce the rows of x in each segment by a function of `jax.ops` that does not depend on the order of the rows."""
    return jax_segment_op(x, segment_ids, num_segments, is_sorted, mode="drop")


def sum_segments(
    x: Array, segment_ids: Array, num_segments: int, is_sorted: bool, *, scatters_in_order: bool
) -> Array:
    """Sum of the rows of each segment, (num_segments, ...); `scatters_in_order` if scatters add in a fixed order."""
    if scatters_in_order or not is_float(x.dtype):
        return segment_sums_in_order(x, segment_ids, num_segments, is_sorted)
    if not is_sorted:
        order = jnp.argsort(segment_ids, stable=True)
        x, segment_ids = x[order], segment_ids[order]
    like = (-1, *[1] * (x.ndim - 1))
    starts = jnp.concatenate([jnp.ones(1, bool), segment_ids[1:] != segment_ids[:-1]]).reshape(like)

    def add_within_segment(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], a[1] + b[1])

    sums = lax.associative_scan(add_within_segment, (starts, x))[1]
    ids = jnp.arange(num_segments, dtype=np.int32)
    last_row = jnp.maximum(jnp.searchsorted(segment_ids, ids, side="right") - 1, 0)
    return jnp.where((segment_ids[last_row] == ids).reshape(like), sums[last_row], 0)
