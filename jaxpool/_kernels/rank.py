"""Elements of a rank: integer keys, selection by a sorting network or by counting, and the tap of the result.

Comparing integer keys takes one instruction. The key of NaN is above the keys of all numbers.
"""

import functools
from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, encode
from jaxpool._kernels.dtypes import DType, index_dtype, is_float
from jaxpool._kernels.positions import int32_range
from jaxpool._kernels.split_ties import WORD, Words
from jaxpool._plan.rank_pool import Rank, network, place_of


def keys(x: Array) -> Array:
    """Integer keys in the order of x. -0 and +0 share a key, and all NaNs share a key above infinity."""
    if not is_float(x.dtype):
        return decode(x)
    x = decode(x) if x.dtype.itemsize == 1 else x
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"int{8 * x.dtype.itemsize}"))
    order = _folded(bits)
    nan = np.asarray(np.nan, x.dtype).view(bits.dtype)
    return lax.select(lax.ne(x, x), lax.full_like(order, abs(int(nan))), order)


def _folded(bits: Array) -> Array:
    """Convert sign and magnitude to integers in numeric order, or back; -0 becomes +0."""
    lowest = lax.full_like(bits, jnp.iinfo(bits.dtype).min)
    return lax.select(lax.lt(bits, lax.full_like(bits, 0)), lowest - bits, bits)


def values(key: Array, dtype: DType) -> Array:
    """Invert `keys` for values of `dtype`."""
    if not is_float(dtype):
        return encode(key, dtype)
    small = jnp.dtype(dtype).itemsize == 1
    wide = lax.bitcast_convert_type(_folded(key), jnp.float32 if small else dtype)
    return encode(wide, dtype) if small else wide


def end(dtype: DType, last: bool) -> np.ndarray:
    """Least value of the key dtype, or the greatest with `last`. Keys of floats never reach it; integers may."""
    info = jnp.iinfo(dtype)
    return np.asarray(info.max if last else info.min, dtype)


def counts(window: Window, ndim: int) -> Array:
    """Number of elements inside the input for each window, broadcastable to the output."""
    lines = [dim.num_taps_inside(int32_range(dim.out if dim.padded else 1)) for dim in window.dims]
    return slices.outer(jnp.multiply, lines, window.axes, ndim)


def by_comparators(
    terms: Sequence[Array], ranks: tuple[int, ...], window: Window, rank: Rank
) -> Array:
    """Element of `rank` in each window, from one term per tap; `ranks` are its possible positions."""
    lanes = [*terms]
    for low, high, less, greater in network(len(lanes), ranks):
        a, b = lanes[low], lanes[high]
        lanes[low] = lax.min(a, b) if less else a
        lanes[high] = lax.max(a, b) if greater else b
    y = lanes[ranks[0]]
    if ranks[1:]:
        place = slices.broadcast_like(place_of(rank, counts(window, y.ndim)), y)
    for position in ranks[1:]:
        y = lax.select(lax.eq(place, lax.full_like(place, position)), lanes[position], y)
    return y


def balanced(terms: Sequence[Array], counting: Sequence[Array], median: Rank) -> list[Array]:
    """Replace the terms of each window that do not count by keys below or above all numbers.

    The number of keys below is such that the median of all is the median of the terms that count. Two terms of 5 count:

        9  .   .  3  .     the median of 3 and 9, the upper one, is 9
        9 low up  3 up     low, 3, 9, up, up: 9 is in the middle
    """
    dtype = np.dtype(np.int32)
    count = functools.reduce(lax.add, [each.astype(dtype) for each in counting])
    count_below = lax.full_like(count, place_of(median, len(terms))) - place_of(median, count)
    excluded, replaced = lax.full_like(count, 0), []
    for term, counts in zip(terms, counting, strict=True):
        low, high = [
            lax.full_like(count, end(term.dtype, last), term.dtype) for last in (False, True)
        ]
        other = lax.select(lax.lt(excluded, count_below), low, high)
        replaced.append(
            lax.select(
                slices.broadcast_like(counts, term), term, slices.broadcast_like(other, term)
            )
        )
        excluded = excluded + lax.bitwise_not(counts).astype(dtype)
    return replaced


def by_counting(key: Array, axes: Sequence[int], rank: Array) -> Array:
    """Key of `rank` along `axes`, which keep size 1: a search bit by bit that counts smaller keys."""
    info = jnp.iinfo(key.dtype)

    def one_bit(step: Array, lower_bound: Array) -> Array:
        bit = lax.shift_left(jnp.ones((), key.dtype), (info.bits - 1 - step).astype(key.dtype))
        candidate = lower_bound + bit
        below = jnp.sum(key < candidate, axis=tuple(axes), keepdims=True, dtype=np.int32)
        return lax.select(below <= rank, candidate, lower_bound)

    first = jnp.min(key, axis=tuple(axes), keepdims=True)
    return lax.fori_loop(0, info.bits, one_bit, lax.full_like(first, info.min))


def one_tap(words: Words, window: Window, last: bool) -> Array:
    """Flat tap of the first or last bit that is set."""
    dtype = index_dtype(window.size)
    chosen = lax.full_like(words[0], 0, dtype)
    for which, word in list(enumerate(words))[:: 1 if last else -1]:
        if last:
            bit = lax.full_like(word, jnp.iinfo(word.dtype).bits - 1) - lax.clz(word)
        else:
            below = lax.bitwise_and(lax.bitwise_not(word), word - lax.full_like(word, 1))
            bit = lax.population_count(below)
        tap = bit.astype(dtype) + lax.full_like(chosen, which * WORD)
        chosen = lax.select(lax.ne(word, lax.full_like(word, 0)), tap, chosen)
    return chosen
