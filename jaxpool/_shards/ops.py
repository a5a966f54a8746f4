"""Windows of a shard and its halo: the ops of `_ops`, told which rows are elements of the array.

A halo beyond the ends of the array holds what the pool is padded with, and to a kernel that is an element like any
other. No value depends on that, but three things do: which of equal elements is chosen, among how many a cotangent is
split, and what an average divides by. Each is given, as an array that depends on the shard.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels.compare import Order, Ties
from jaxpool._kernels.dtypes import Kind, accumulator, float_dtype, losing
from jaxpool._kernels.select import flat_tap, real_end
from jaxpool._kernels.slices import crossed
from jaxpool._kernels.split_ties import Words, inside, real_words
from jaxpool._ops.apply import apply_given
from jaxpool._ops.select_pool import LevelPool, MaskPool, SelectPool
from jaxpool._ops.sum_pool import CountedAverage, SumPool, counts_along, same_count
from jaxpool._plan.tuning import LIMITS
from jaxpool._shards.border import pool_shard
from jaxpool._shards.halo import Shards


def select_pool(shards: Shards, x: Array, kind: Kind, ties: Ties | Order) -> tuple[Array, Any]:
    """The max or min pool of a shard x, and the residual."""
    window, fill, padded = shards.inside, losing(x.dtype, kind), shards.padded
    given: tuple[Array, ...]
    if ties != "split":
        given = (_end_of_padding(shards, x.ndim, last=ties == "last"),) if padded else ()
        return pool_shard(shards, x, fill, SelectPool(window, kind, ties), *given)
    if window.size <= LIMITS.masked_taps:
        given = _real_taps(shards, x.ndim) if padded else ()
        return pool_shard(shards, x, fill, MaskPool(window, kind), *given)
    given = (_real_elements(shards, x.ndim),) if padded else ()
    return apply_given(LevelPool(shards.local, kind), shards.extended(x, fill), *given)


def sum_pool(
    shards: Shards, x: Array, divide: Literal["not", "counted", "real"] | float = "not"
) -> Array:
    """The sum over each window of a shard x, divided by what `divide` says of the whole array."""
    window, fetch = shards.inside, functools.partial(pool_shard, shards, x, 0)
    dtype = x.dtype if divide == "not" else float_dtype(x.dtype)
    if divide not in ("counted", "real"):
        op = SumPool(window, divide)
        return fetch(op, dtype=dtype)[0]
    same = same_count(shards.window, divide)
    if same is not None:
        op = SumPool(window, float(same))
        return fetch(op, dtype=dtype)[0]
    lines = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        values = jnp.asarray(counts_along(dim, divide), accumulator(dtype))
        if halo and dim.padded:
            first = halo.shard() * np.int32(halo.outs)
            values = lax.dynamic_slice_in_dim(values, first, halo.outs)
        lines.append(values)
    counts = crossed(jnp.multiply, lines, window.axes, x.ndim)
    return fetch(CountedAverage(window), counts, dtype=dtype)[0]


def _end_of_padding(shards: Shards, ndim: int, *, last: bool) -> Array:
    """The first, or last, flat tap of each window that is no padding, broadcastable to the output."""
    taps: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo:
            taps.append(halo.last_real() if last else halo.first_real())
        else:
            taps.append(real_end(dim, last=last))
    return flat_tap(taps, shards.window, ndim)


def _real_taps(shards: Shards, ndim: int) -> Words:
    """A bit for each tap of each window, set where it is no padding; as many words as `tie_masks` makes."""
    real: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo is None:
            real.append(functools.partial(inside, dim))
            continue

        real.append(functools.partial(_holds, dim, halo.window_starts()))
    return real_words(real, shards.window, ndim)


def _holds(dim: Axis, starts: Array, tap: int) -> Array:
    """Which of the windows of an axis that begin at `starts` hold an element of the array at `tap`."""
    at = starts + np.int32(tap * dim.dilation)
    return (at >= 0) & (at < dim.size)


def _real_elements(shards: Shards, ndim: int) -> Array:
    """Which elements of a shard with its halo are those of the array, broadcastable to it."""
    axes = [halo.dim.axis for halo in shards.halos]
    return crossed(jnp.logical_and, [halo.rows_exist() for halo in shards.halos], axes, ndim)
