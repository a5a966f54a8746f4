"""Segments of rows: their extremes, and their sums in an order that the ids alone decide.

A maximum does not depend on the order in which it is taken, nor does a sum of integers: those are
scattered. Floats are too on CPU (`partial_sums.py`), where XLA runs one update of a scatter after another; elsewhere,
where they may come in any order, they are sorted and added in pairs, pairs of pairs and so on, each
sum beginning anew where a segment does. Ids are int32; those of rows in no segment are below 0, or `count` and more.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import is_float
from jaxpool._kernels.partial_sums import sums_in_order


def within(ids: Array, count: int) -> Array:
    """`ids` as int32, -1 and `count` for those that name no segment: what was sorted stays so."""
    if ids.dtype.itemsize < 4:
        ids = ids.astype(np.int32)
    known = (ids >= 0) & (ids < count)
    return jnp.where(known, ids.astype(np.int32), jnp.where(ids < 0, np.int32(-1), np.int32(count)))


def of_rows(y: Array, ids: Array, fill: Any) -> Array:
    """What the segment of each row holds, (N, ...) of y (count, ...); `fill` for a row in none."""
    at = jnp.where(ids < 0, np.int32(y.shape[0]), ids)
    return jnp.take(y, at, axis=0, mode="fill", fill_value=fill)


def with_zeros(y: Array, ids: Array) -> tuple[Array, Array]:
    """y with a row of zeros after it, and which row of that each id reads: the zeros for an id of no segment."""
    rows = lax.pad(y, jnp.zeros((), y.dtype), [(0, 1, 0), *[(0, 0, 0)] * (y.ndim - 1)])
    return rows, jnp.where((ids >= 0) & (ids < y.shape[0]), ids, np.int32(y.shape[0]))


def stored_rows(y: Array, ids: Array) -> Array:
    """What the segment of each row holds, 0 for a row in none: of rows that are stored, one of zeros among them."""
    rows, at = lax.optimization_barrier(with_zeros(y, ids))
    return rows.at[at].get(mode="promise_in_bounds")


def beside_rows(y: Array, ids: Array) -> Array:
    """What the segment of each row holds; for a row in none what another does, which saves a select."""
    at = lax.clamp(np.int32(0), ids, np.int32(y.shape[0] - 1))
    return y.at[at].get(mode="promise_in_bounds")


def masked(x: Array, fill: Any, *mask: Array) -> Array:
    """x, with `fill` where a mask that is given is False."""
    return jnp.where(mask[0], x, jnp.asarray(fill, x.dtype)) if mask else x


def scattered(
    join: Callable[..., Array], x: Array, ids: Array, count: int, is_sorted: bool
) -> Array:
    """The rows of x of each of `count` segments, joined by one of `jax.ops` that knows no order."""
    return join(x, ids, count, is_sorted, mode="drop")


def total(x: Array, ids: Array, count: int, is_sorted: bool, *, one_by_one: bool) -> Array:
    """The sum of the rows of each segment, (count, ...); `one_by_one` if a scatter adds floats so."""
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
