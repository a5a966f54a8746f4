"""Max, min, sum and average pools of one shard and its halo, with an array that marks rows beyond the global array.

A halo beyond the ends of the array holds the padding value, which a kernel treats as an element. Maxima and sums do not
depend on that. Three results do: the choice among tied elements, the number of elements that share a cotangent, and
the divisor of an average. So the op takes an extra argument for them, an array that depends on the shard.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels.compare import Order, Ties
from jaxpool._kernels.dtypes import Kind, accumulator, float_dtype, identity_of
from jaxpool._kernels.select import flat_tap, real_end
from jaxpool._kernels.slices import outer
from jaxpool._kernels.split_ties import Words, inside, real_words
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.select_pool import LevelPool, MaskPool, SelectPool
from jaxpool._ops.sum_pool import CountedAverage, SumPool, counts_along, same_count
from jaxpool._plan.tuning import LIMITS
from jaxpool._shards.border import pool_shard
from jaxpool._shards.halo import Shards


def select_pool(shards: Shards, x: Array, kind: Kind, ties: Ties | Order) -> tuple[Array, Any]:
    """The max or min pool of a shard x, and the residual."""
    window, fill, padded = shards.inside, identity_of(x.dtype, kind), shards.padded
    real: tuple[Array, ...]
    if ties != "split":
        real = (_end_of_padding(shards, x.ndim, last=ties == "last"),) if padded else ()
        return pool_shard(shards, x, fill, SelectPool(window, kind, ties), *real)
    if window.size <= LIMITS.masked_taps:
        real = _real_taps(shards, x.ndim) if padded else ()
        return pool_shard(shards, x, fill, MaskPool(window, kind), *real)
    real = (_real_elements(shards, x.ndim),) if padded else ()
    return apply_with_extra_args(LevelPool(shards.local, kind), shards.extended(x, fill), *real)


def sum_pool(
    shards: Shards, x: Array, divide: Literal["not", "counted", "real"] | float = "not"
) -> Array:
    """The sum over each window of a shard x, divided as in `SumPool` with counts of the global array."""
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
    counts = outer(jnp.multiply, lines, window.axes, x.ndim)
    return fetch(CountedAverage(window), counts, dtype=dtype)[0]


def _end_of_padding(shards: Shards, ndim: int, *, last: bool) -> Array:
    """The first, or last, flat tap of each window that is not padding, broadcastable to the output."""
    taps: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo:
            taps.append(halo.last_real() if last else halo.first_real())
        else:
            taps.append(real_end(dim, last=last))
    return flat_tap(taps, shards.window, ndim)


def _real_taps(shards: Shards, ndim: int) -> Words:
    """One bit per tap of each window, set where the tap is not padding; one word for each word of `tie_masks`."""
    real: list[Any] = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        if halo is None:
            real.append(functools.partial(inside, dim))
            continue

        real.append(functools.partial(_holds, dim, halo.window_starts()))
    return real_words(real, shards.window, ndim)


def _holds(dim: Axis, starts: Array, tap: int) -> Array:
    """Whether `tap` is an element of the array, for each window of an axis that begins at `starts`."""
    at = starts + np.int32(tap * dim.dilation)
    return (at >= 0) & (at < dim.size)


def _real_elements(shards: Shards, ndim: int) -> Array:
    """True for elements of the array in a shard and its halo, broadcastable to both together."""
    axes = [halo.dim.axis for halo in shards.halos]
    return outer(jnp.logical_and, [halo.rows_exist() for halo in shards.halos], axes, ndim)
