"""Reductions over segments of rows, and sums whose order depends on the ids alone.

Maxima and integer sums do not depend on the order, so scatters compute them. XLA for CPU runs the updates of a scatter
in a fixed order, so float sums are deterministic scatters there (`partial_sums.py`). Elsewhere rows are sorted by id
and added by an associative scan that restarts at each segment. Ids are int32. Rows in no segment have ids below 0, or
at least `count`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.partial_sums import sums_in_order


def within(ids: Array, count: int) -> Array:
    """`ids` as int32, with -1 or `count` for ids out of range, so that sorted ids stay sorted."""
    if ids.dtype.itemsize < 4:
        ids = ids.astype(np.int32)
    known = (ids >= 0) & (ids < count)
    return jnp.where(known, ids.astype(np.int32), jnp.where(ids < 0, np.int32(-1), np.int32(count)))


def of_rows(y: Array, ids: Array, fill: Any) -> Array:
    """Gather for each row the entry of its segment, (N, ...) from y (count, ...); `fill` for rows in no segment."""
    at = jnp.where(ids < 0, np.int32(y.shape[0]), ids)
    return jnp.take(y, at, axis=0, mode="fill", fill_value=fill)


def with_zeros(y: Array, ids: Array) -> tuple[Array, Array]:
    """Append a row of zeros to y, and return the row that each id reads; ids out of range read the zeros."""
    rows = lax.pad(y, jnp.zeros((), y.dtype), [(0, 1, 0), *[(0, 0, 0)] * (y.ndim - 1)])
    return rows, jnp.where((ids >= 0) & (ids < y.shape[0]), ids, np.int32(y.shape[0]))


def stored_rows(y: Array, ids: Array) -> Array:
    """`of_rows` with zeros for rows in no segment; stores y with a row of zeros before the gather."""
    rows, at = lax.optimization_barrier(with_zeros(y, ids))
    return rows.at[at].get(mode="promise_in_bounds")


def gather_rows(y: Array, ids: Array) -> Array:
    """`of_rows`, but rows in no segment read an arbitrary entry, which saves a select."""
    at = lax.clamp(np.int32(0), ids, np.int32(y.shape[0] - 1))
    return y.at[at].get(mode="promise_in_bounds")


def masked(x: Array, fill: Any, *mask: Array) -> Array:
    """x, with `fill` where the optional mask is False."""
    return jnp.where(mask[0], x, jnp.asarray(fill, x.dtype)) if mask else x


def scattered(
    join: Callable[..., Array], x: Array, ids: Array, count: int, is_sorted: bool
) -> Array:
    """Reduce the rows of x in each of `count` segments by a function of `jax.ops` that does not depend on the order."""
    return join(x, ids, count, is_sorted, mode="drop")


def total(x: Array, ids: Array, count: int, is_sorted: bool, *, one_by_one: bool) -> Array:
    """Sum of the rows of each segment, (count, ...); `one_by_one` if scatters add floats in order."""
    if one_by_one or not is_float(x.dtype):
        return sums_in_order(x, ids, count, is_sorted)
    if not is_sorted:
        order = jnp.argsort(ids, stable=True)
        x, ids = x[order], ids[order]
    like = (-1, *[1] * (x.ndim - 1))
    begins = jnp.concatenate([jnp.ones(1, bool), ids[1:] != ids[:-1]]).reshape(like)

    def added(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], a[1] + b[1])

    sums = lax.associative_scan(added, (begins, x))[1]
    number = jnp.arange(count, dtype=np.int32)
    last = jnp.maximum(jnp.searchsorted(ids, number, side="right") - 1, 0)
    return jnp.where((ids[last] == number).reshape(like), sums[last], 0)
