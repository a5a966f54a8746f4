"""The element of a rank: keys in a total order, comparators or counting, and which taps hold what was found.

Keys are integers: comparing them is one instruction and knows no NaN, which ranks above all numbers.
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
    """Integers in the order of x; both zeros have one key, all NaNs the same, above that of inf."""
    if not is_float(x.dtype):
        return decode(x)
    x = decode(x) if x.dtype.itemsize == 1 else x
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"int{8 * x.dtype.itemsize}"))
    order = _folded(bits)
    nan = np.asarray(np.nan, x.dtype).view(bits.dtype)
    return lax.select(lax.ne(x, x), lax.full_like(order, abs(int(nan))), order)


def _folded(bits: Array) -> Array:
    """From sign and magnitude to integers in order, and back."""
    lowest = lax.full_like(bits, jnp.iinfo(bits.dtype).min)
    return lax.select(lax.lt(bits, lax.full_like(bits, 0)), lowest - bits, bits)


def values(key: Array, dtype: DType) -> Array:
    """What has the keys, in `dtype`."""
    if not is_float(dtype):
        return encode(key, dtype)
    small = jnp.dtype(dtype).itemsize == 1
    wide = lax.bitcast_convert_type(_folded(key), jnp.float32 if small else dtype)
    return encode(wide, dtype) if small else wide


def end(dtype: DType, last: bool) -> np.ndarray:
    """A key before, or `last` after, those of all floats, and not within those of all integers."""
    info = jnp.iinfo(dtype)
    return np.asarray(info.max if last else info.min, dtype)


def counts(window: Window, ndim: int) -> Array:
    """How many elements each window has, broadcastable to the output."""
    lines = [dim.real(int32_range(dim.out if dim.padded else 1)) for dim in window.dims]
    return slices.crossed(jnp.multiply, lines, window.axes, ndim)


def by_comparators(
    terms: Sequence[Array], ranks: tuple[int, ...], window: Window, rank: Rank
) -> Array:
    """The element of `rank` of each window, from a term per tap; `ranks` are the positions that it may have."""
    lanes = [*terms]
    for low, high, less, greater in network(len(lanes), ranks):
        a, b = lanes[low], lanes[high]
        lanes[low] = lax.min(a, b) if less else a
        lanes[high] = lax.max(a, b) if greater else b
    y = lanes[ranks[0]]
    if ranks[1:]:
        place = slices.broadcast_like(place_of(rank, counts(window, y.ndim)), y)
    for each in ranks[1:]:
        y = lax.select(lax.eq(place, lax.full_like(place, each)), lanes[each], y)
    return y


def balanced(terms: Sequence[Array], counting: Sequence[Array], median: Rank) -> list[Array]:
    """The terms of each window, those that do not count put below or above all numbers.

    So many are put below that the median of those that count is the median of all. Of 5 terms, 2 of which count:

        9  .   .  3  .     the median of 3 and 9, the upper one, is 9
        9 low up  3 up     low, 3, 9, up, up: 9 is in the middle
    """
    dtype = np.dtype(np.int32)
    count = functools.reduce(lax.add, [each.astype(dtype) for each in counting])
    wanted = lax.full_like(count, place_of(median, len(terms))) - place_of(median, count)
    below, found = lax.full_like(count, 0), []
    for term, counts in zip(terms, counting, strict=True):
        low, high = [
            lax.full_like(count, end(term.dtype, last), term.dtype) for last in (False, True)
        ]
        other = lax.select(lax.lt(below, wanted), low, high)
        found.append(
            lax.select(
                slices.broadcast_like(counts, term), term, slices.broadcast_like(other, term)
            )
        )
        below = below + lax.bitwise_not(counts).astype(dtype)
    return found


def by_counting(key: Array, axes: Sequence[int], rank: Array) -> Array:
    """The key of `rank` along `axes`, which stay as axes of size 1: a bit at a time, by how many keys are below."""
    info = jnp.iinfo(key.dtype)

    def one_bit(step: Array, found: Array) -> Array:
        bit = lax.shift_left(jnp.ones((), key.dtype), (info.bits - 1 - step).astype(key.dtype))
        more = found + bit
        below = jnp.sum(key < more, axis=tuple(axes), keepdims=True, dtype=np.int32)
        return lax.select(below <= rank, more, found)

    first = jnp.min(key, axis=tuple(axes), keepdims=True)
    return lax.fori_loop(0, info.bits, one_bit, lax.full_like(first, info.min))


def one_tap(words: Words, window: Window, last: bool) -> Array:
    """The flat tap of the first or the last bit that is set."""
    dtype = index_dtype(window.size)
    found = lax.full_like(words[0], 0, dtype)
    for which, word in list(enumerate(words))[:: 1 if last else -1]:
        if last:
            bit = lax.full_like(word, jnp.iinfo(word.dtype).bits - 1) - lax.clz(word)
        else:
            below = lax.bitwise_and(lax.bitwise_not(word), word - lax.full_like(word, 1))
            bit = lax.population_count(below)
        tap = bit.astype(dtype) + lax.full_like(found, which * WORD)
        found = lax.select(lax.ne(word, lax.full_like(word, 0)), tap, found)
    return found
