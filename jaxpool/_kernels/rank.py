"""Selection of the element of a rank, among `zero_tied_sort_keys`, by a sorting network or by counting; and its tap."""

import functools
from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import index_dtype
from jaxpool._kernels.keys import min_or_max_key
from jaxpool._kernels.positions import int32_range
from jaxpool._kernels.split_ties import BITS_PER_WORD, BitWords
from jaxpool._plan.rank_pool import Rank, network, place_of


def num_elements_inside(window: Window, ndim: int) -> Array:
    """Number of elements inside the input for each window, broadcastable to the output."""
    lines = [dim.num_taps_inside(int32_range(dim.out if dim.padded else 1)) for dim in window.dims]
    return slices.outer_broadcast(jnp.multiply, lines, window.axes, ndim)


def select_by_sorting_network(
    value_per_tap: Sequence[Array], possible_positions: tuple[int, ...], window: Window, rank: Rank
) -> Array:
    """Element of `rank` in each window, from one value per tap; `possible_positions` are its possible positions."""
    lanes = [*value_per_tap]
    for low, high, less, greater in network(len(lanes), possible_positions):
        a, b = lanes[low], lanes[high]
        lanes[low] = lax.min(a, b) if less else a
        lanes[high] = lax.max(a, b) if greater else b
    y = lanes[possible_positions[0]]
    if possible_positions[1:]:
        place = slices.broadcast_like(place_of(rank, num_elements_inside(window, y.ndim)), y)
    for position in possible_positions[1:]:
        y = lax.select(lax.eq(place, lax.full_like(place, position)), lanes[position], y)
    return y


def pad_around_median(
    value_per_tap: Sequence[Array], included_masks: Sequence[Array], median_rank: Rank
) -> list[Array]:
    """Replace the values of each window that do not take part by keys below or above all numbers.

    The number of keys below is such that the median of all is the median of the values that take part. In the
    example, 2 of 5 values take part:

        9  .   .  3  .     the median of 3 and 9, the upper one, is 9
        9 low up  3 up     low, 3, 9, up, up: 9 is in the middle
    """
    dtype = np.dtype(np.int32)
    count = functools.reduce(lax.add, [each.astype(dtype) for each in included_masks])
    count_below = lax.full_like(count, place_of(median_rank, len(value_per_tap))) - place_of(
        median_rank, count
    )
    excluded, replaced = lax.full_like(count, 0), []
    for term, counts in zip(value_per_tap, included_masks, strict=True):
        low, high = [
            lax.full_like(count, min_or_max_key(term.dtype, last), term.dtype)
            for last in (False, True)
        ]
        other = lax.select(lax.lt(excluded, count_below), low, high)
        replaced.append(
            lax.select(
                slices.broadcast_like(counts, term), term, slices.broadcast_like(other, term)
            )
        )
        excluded = excluded + lax.bitwise_not(counts).astype(dtype)
    return replaced


def key_of_rank_over_axes(key: Array, axes: Sequence[int], rank: Array) -> Array:
    """Key of `rank` along `axes`, which keep size 1: a search bit by bit that counts smaller keys."""
    info = jnp.iinfo(key.dtype)

    def search_one_bit(num_bits_done: Array, lower_bound: Array) -> Array:
        bit = lax.shift_left(
            jnp.ones((), key.dtype), (info.bits - 1 - num_bits_done).astype(key.dtype)
        )
        candidate = lower_bound + bit
        below = jnp.sum(key < candidate, axis=tuple(axes), keepdims=True, dtype=np.int32)
        return lax.select(below <= rank, candidate, lower_bound)

    first = jnp.min(key, axis=tuple(axes), keepdims=True)
    return lax.fori_loop(0, info.bits, search_one_bit, lax.full_like(first, info.min))


def first_or_last_tied_tap(bit_words: BitWords, window: Window, take_last: bool) -> Array:
    """Flat tap of the first or last bit that is set."""
    dtype = index_dtype(window.size)
    chosen = lax.full_like(bit_words[0], 0, dtype)
    for which, word in list(enumerate(bit_words))[:: 1 if take_last else -1]:
        if take_last:
            bit = lax.full_like(word, jnp.iinfo(word.dtype).bits - 1) - lax.clz(word)
        else:
            below = lax.bitwise_and(lax.bitwise_not(word), word - lax.full_like(word, 1))
            bit = lax.population_count(below)
        tap = bit.astype(dtype) + lax.full_like(chosen, which * BITS_PER_WORD)
        chosen = lax.select(lax.ne(word, lax.full_like(word, 0)), tap, chosen)
    return chosen
