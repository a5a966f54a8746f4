"""Windowed maxima and minima whose cotangent is divided equally among tied elements.

Small windows save one bit per tap for the backward pass, set where the tap is tied. Large windows save x and y, which
takes less memory, and count ties with a fold over states (maximum, number of tied elements).
"""

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_identity_of, replaces, ties_with
from jaxpool._kernels.dtypes import DType, Kind, accumulator, index_dtype
from jaxpool._kernels.fold import State, window_fold, window_unfold
from jaxpool._kernels.positions import window_starts
from jaxpool._kernels.route import sum_where
from jaxpool._plan.max_pool import Pass

WORD = 32  # bits of the widest mask
Words = tuple[Array, ...]


def tie_masks(x: Array, y: Array, window: Window, fill: np.ndarray) -> Words:
    """`tied_taps` for x and its pooled value y; padding holds `fill`."""
    value, taps = decode(slices.pad_input(x, window, fill)), range(window.size)
    return tied_taps([slices.tap_of(value, window, tap) for tap in taps], decode(y), window, taps)


def inside(dim: Axis, tap: int) -> Any:
    """Mask of the windows along an axis whose tap `tap` is inside the input."""
    at = window_starts(dim) + np.int32(tap * dim.dilation)
    return (at >= 0) & (at < dim.size)


def real_words(real: Sequence[Callable[[int], Any]], window: Window, ndim: int) -> Words:
    """One bit per tap of each window, set where the tap is inside the input along every axis; 32 bits per word.

    `real` has a function for each axis that maps a tap to the mask from `inside`. Taps that differ only along the
    last axis are combined in one step. The words are broadcastable to the output.
    """
    *major, minor = window.window_shape
    *around, along = real
    words = []
    for first in range(0, window.size, WORD):
        dtype, rows = index_dtype(1 << min(WORD, window.size - first)), []
        for row, taps in enumerate(itertools.product(*map(range, major))):
            start = row * minor - first
            in_word = range(max(0, -start), min(minor, WORD - start))
            bits = [along(tap).astype(dtype) << np.asarray(start + tap, dtype) for tap in in_word]
            if bits:  # a row outside along another axis is cleared by a mask of 0
                pairs = zip(around, taps, strict=True)
                lines = [-is_inside(tap).astype(dtype) for is_inside, tap in pairs]
                lines.append(functools.reduce(operator.or_, bits))
                rows.append(slices.outer(jnp.bitwise_and, lines, window.axes, ndim))
        words.append(functools.reduce(jnp.bitwise_or, rows))
    return tuple(words)


def tied_taps(terms: Sequence[Array], y: Array, window: Window, taps: Sequence[int]) -> Words:
    """One bit per tap of each window, set where its term ties with y and is not padding; 32 bits per word.

    `terms` belong to the flat taps `taps`, which ascend.
    """
    words = []
    for first in range(0, window.size, WORD):
        dtype = index_dtype(1 << min(WORD, window.size - first))
        word = lax.full_like(y, 0, dtype)
        for term, tap in zip(terms, taps, strict=True):
            if not first <= tap < first + WORD:
                continue
            bit = lax.full_like(word, 1 << (tap - first))
            word = lax.bitwise_or(word, lax.select(ties_with(term, y), bit, lax.full_like(bit, 0)))
        words.append(word)
    if window.padded:
        lines = [functools.partial(inside, dim) for dim in window.dims]
        real = real_words(lines, window, y.ndim)
        words = [word & slices.broadcast_like(r, word) for word, r in zip(words, real, strict=True)]
    return tuple(words)


def tied(words: Sequence[Array], tap: int) -> Array:
    """Mask of the windows whose tap `tap` is tied."""
    word = words[tap // WORD]
    bit = lax.bitwise_and(word, lax.full_like(word, 1 << (tap % WORD)))
    return lax.ne(bit, lax.full_like(word, 0))


def shared(total: Array, *counts: Array) -> Array:
    """Divide `total` by the number of tied elements, the sum of `counts`, or by 1 in a window of padding only."""
    if not counts:
        return total
    count = functools.reduce(lax.add, counts)
    return total / lax.max(count, lax.full_like(count, 1)).astype(total.dtype)


def share(total: Array, words: Sequence[Array]) -> Array:
    """Divide `total` by the number of tied taps."""
    return shared(total, *[lax.population_count(word).astype(total.dtype) for word in words])


def pick_tied(x: Array, words: Words, window: Window) -> Array:
    """Mean of x over the tied taps of each window."""
    value = slices.pad_input(x.astype(accumulator(x.dtype)), window, 0)
    views = [slices.tap_of(value, window, tap) for tap in range(window.size)]
    terms = [slices.where_or_zero(tied(words, tap), view) for tap, view in enumerate(views)]
    return share(functools.reduce(lax.add, terms), words).astype(x.dtype)


def route_tied(dy: Array, words: Words, plan: Pass) -> Array:
    """Transpose of `pick_tied`."""
    part = share(dy.astype(accumulator(dy.dtype)), words)
    return sum_where(lambda tap, *words: tied(words, tap), part, words, plan).astype(dy.dtype)


def _joined(a: State, b: State, kind: Kind, *, loser: bool = False) -> State:
    """Return the winner of two states (value, *sums), or the loser; add the sums of tied states."""
    takes_a, takes_b = replaces(a[0], b[0], kind, "first"), replaces(b[0], a[0], kind, "first")
    if loser:
        takes_a, takes_b = takes_b, takes_a
    sums = zip(a[1:], b[1:], strict=True)
    totals = [lax.select(takes_a, p, lax.select(takes_b, q, p + q)) for p, q in sums]
    return (lax.select(takes_b, b[0], a[0]), *totals)


def _fold_level(x: Array, sums: State, window: Window, kind: Kind) -> State:
    """Totals of `sums` over the elements of each window that tie with its maximum or minimum; 0 in the padding."""
    fills = (decoded_identity_of(x.dtype, kind), *[0] * len(sums))
    return window_fold((decode(x), *sums), fills, window, functools.partial(_joined, kind=kind))[1:]


def _ones(x: Array, counting: Array | None, dtype: DType) -> Array:
    """Ones in the shape of x, zeros where the mask `counting` is False."""
    if counting is None:
        return lax.full_like(x, 1, dtype)
    return jnp.broadcast_to(counting, x.shape).astype(dtype)


def pick_tied_mean(
    tangent: Array, x: Array, window: Window, kind: Kind, counting: Array | None = None
) -> Array:
    """Mean of `tangent` over the elements of each window of x that tie with its maximum or minimum.

    `counting` is True for elements that take part. Elsewhere, tangents must be 0.
    """
    wide = tangent.astype(accumulator(tangent.dtype))
    sums, counts = _fold_level(x, (wide, _ones(x, counting, wide.dtype)), window, kind)
    return shared(sums, counts).astype(tangent.dtype)


def route_tied_mean(
    dy: Array, x: Array, y: Array, window: Window, kind: Kind, counting: Array | None = None
) -> Array:
    """Transpose of `pick_tied_mean`, where y is the pooled x.

    An element attains the maximum of some window exactly if it ties with the least maximum of all windows that
    cover it.
    """
    wide = dy.astype(accumulator(dy.dtype))
    (counts,) = _fold_level(x, (_ones(x, counting, wide.dtype),), window, kind)
    join = functools.partial(_joined, kind=kind, loser=True)
    shares = (decode(y), shared(wide, counts))
    lowest, sums = window_unfold(shares, (np.nan, 0), window, join)
    return slices.where_or_zero(ties_with(decode(x), lowest), sums).astype(dy.dtype)
