"""Order statistics among `zero_tied_sort_keys`: the key of a rank, by a sorting network or by counting, and its tap."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import full_like, index_dtype, scalar_like
from jaxpool._kernels.keys import min_or_max_key
from jaxpool._kernels.positions import elements_per_window
from jaxpool._kernels.split_ties import BITS_PER_WORD, BitWords
from jaxpool._plan.rank_pool import Comparator, Rank, position_of_rank


def select_by_sorting_network(
    value_per_tap: Sequence[Array],
    network: Sequence[Comparator],
    possible_positions: Sequence[int],
    window: Window,
    rank: Rank,
) -> Array:
    """Element of `rank` in each window, from a value per tap; `possible_positions` are its positions once sorted."""
    values = [*value_per_tap]
    for low, high, needs_min, needs_max in network:
        a, b = values[low], values[high]
        values[low] = lax.min(a, b) if needs_min else a
        values[high] = lax.max(a, b) if needs_max else b
    y = values[possible_positions[0]]
    if possible_positions[1:]:
        counts = elements_per_window(window, "real", y.ndim, np.int32)
        target = slices.broadcast_like(position_of_rank(rank, counts), y)
    for position in possible_positions[1:]:
        y = lax.select(lax.eq(target, scalar_like(target, position)), values[position], y)
    return y


def pad_around_median(
    value_per_tap: Sequence[Array], included_masks: Sequence[Array], median_rank: Rank
) -> list[Array]:
    """Replace values that the mask excludes with keys below or above all numbers, so that the median stays the same.

    In the example, the mask includes 2 of 5 values:

        9  .   .  3  .     the median of 3 and 9, the upper one, is 9
        9 low up  3 up     low, 3, 9, up, up: 9 is in the middle
    """
    dtype = np.dtype(np.int32)
    num_included = functools.reduce(lax.add, [each.astype(dtype) for each in included_masks])
    position = lax.full_like(num_included, position_of_rank(median_rank, len(value_per_tap)))
    num_below = position - position_of_rank(median_rank, num_included)
    num_excluded, values = full_like(num_included, 0), []
    for x, mask in zip(value_per_tap, included_masks, strict=True):
        low, high = (
            full_like(num_included, min_or_max_key(x.dtype, is_max), x.dtype)
            for is_max in (False, True)
        )
        fill = lax.select(lax.lt(num_excluded, num_below), low, high)
        values.append(lax.select(slices.broadcast_like(mask, x), x, slices.broadcast_like(fill, x)))
        num_excluded = num_excluded + lax.bitwise_not(mask).astype(dtype)
    return values


def key_of_rank(count_smaller: Callable[[Array], Array], like: Array, rank: ArrayLike) -> Array:
    """Keys of `rank`, counted from 0, with the shape and dtype of `like`, by a binary search over the bits of a key.

    `count_smaller(candidate)` is the number of keys that are smaller than `candidate`.
    """
    info = jnp.iinfo(like.dtype)

    def search_one_bit(bit_index: Array, lower_bound: Array) -> Array:
        bit_number = (info.bits - 1 - bit_index).astype(like.dtype)
        candidate = lower_bound + lax.shift_left(jnp.ones((), like.dtype), bit_number)
        is_reached = lax.le(count_smaller(candidate), rank)
        return lax.select(is_reached, candidate, lower_bound)

    lowest = full_like(like, info.min)
    return lax.fori_loop(np.int32(0), np.int32(info.bits), search_one_bit, lowest)


def key_of_rank_over_axes(key: Array, axes: tuple[int, ...], rank: Array) -> Array:
    """Key of `rank` along `axes`, which keep size 1."""

    def count_smaller(candidate: Array) -> Array:
        return jnp.sum(key < candidate, axis=axes, keepdims=True, dtype=np.int32)

    return key_of_rank(count_smaller, jnp.min(key, axis=axes, keepdims=True), rank)


def first_or_last_tied_tap(bit_words: BitWords, window: Window, take_last: bool) -> Array:
    """Flat tap of the first bit that is set in the words of each window, or of the last bit with `take_last`."""
    dtype = index_dtype(window.size)
    chosen_tap = full_like(bit_words[0], 0, dtype)
    for word_index, word in list(enumerate(bit_words))[:: 1 if take_last else -1]:
        if take_last:
            bit = lax.sub(scalar_like(word, jnp.iinfo(word.dtype).bits - 1), lax.clz(word))
        else:
            lower_bits = lax.bitwise_and(lax.bitwise_not(word), lax.sub(word, scalar_like(word, 1)))
            bit = lax.population_count(lower_bits)
        tap = lax.add(bit.astype(dtype), scalar_like(chosen_tap, word_index * BITS_PER_WORD))
        chosen_tap = lax.select(lax.ne(word, scalar_like(word, 0)), tap, chosen_tap)
    return chosen_tap
