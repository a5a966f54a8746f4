"""Segments of rows: their extremes, and their sums in an order that the ids alone decide.

A maximum does not depend on the order in which it is taken, nor does a sum of integers: those are
scattered. Floats are too on CPU, where XLA runs one update of a scatter after another; elsewhere,
where they may come in any order, they are added in blocks of at most `width` rows of one segment,
gathered side by side; the sums of blocks are rows again, of as many segments, until each segment
has one. Ids are those that `within` gives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

LEAST, MOST = 4, 32  # rows of a block


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


def scattered(
    join: Callable[..., Array], x: Array, ids: Array, count: int, is_sorted: bool
) -> Array:
    """The rows of x of each of `count` segments, joined by one of `jax.ops` that knows no order."""
    return join(x, ids, count, is_sorted, mode="drop")


def total(x: Array, ids: Array, count: int, is_sorted: bool, *, one_by_one: bool) -> Array:
    """The sum of the rows of each segment, (count, ...); `one_by_one` if a scatter adds them so."""
    if one_by_one:
        return scattered(jax.ops.segment_sum, x, ids, count, is_sorted)
    rows = x.shape[0]
    order = None if is_sorted else jnp.argsort(ids, stable=True).astype(np.int32)
    ranked = ids if order is None else ids[order]
    first = jnp.searchsorted(ranked, jnp.arange(count + 1, dtype=np.int32)).astype(np.int32)
    width = int(np.clip(2 ** round(np.log2(rows / count)), LEAST, MOST))
    blocks = -(-rows // width) + count

    def added(x: Array, order: Array | None, first: Array) -> tuple[Array, Array]:
        """The sum of each block, and the first block of each segment."""
        ends = jnp.cumsum(-(-jnp.diff(first) // np.int32(width)))
        start = jnp.concatenate([lax.full_like(ends, 0, shape=(1,)), ends]).astype(np.int32)
        number = jnp.arange(blocks, dtype=np.int32)
        owner = jnp.searchsorted(ends, number, side="right").astype(np.int32)
        owner = jnp.minimum(owner, np.int32(count - 1))
        place = first[owner] + (number - start[owner]) * np.int32(width)
        end, terms = first[owner + 1], []
        for _ in range(width):
            row = place if order is None else jnp.take(order, place, mode="clip")
            term = jnp.take(x, row, axis=0, mode="clip")
            here = (place < end).reshape(-1, *[1] * (x.ndim - 1))
            terms.append(jnp.where(here, term, lax.full_like(term, 0)))
            place = place + np.int32(1)
        return functools.reduce(lax.add, terms), start

    def unfinished(state: tuple[Array, Array]) -> Array:
        return jnp.max(jnp.diff(state[1])) > 1

    state = added(x, order, first)
    sums, first = lax.while_loop(unfinished, lambda state: added(state[0], None, state[1]), state)
    any_row = (jnp.diff(first) > 0).reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(any_row, jnp.take(sums, first[:-1], axis=0, mode="clip"), 0)
