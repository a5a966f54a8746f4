"""Windowed maxima and minima whose cotangent is divided equally among tied elements.

For small windows, the backward pass reads one saved bit per tap (offset in a window), set if the tap is tied. For
large windows, saving x and y takes less memory. A fold of states (maximum, number of tied elements) then counts ties.
Unlike a maximum, a fold joins every element exactly once. It therefore cuts a window into disjoint halves, and costs
about 2 log2(length) joins per axis:

    7 taps    [a b c d e f g] = [a b c] join [d e f] join [g]
"""

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.dtypes import DType, Kind, accumulator_dtype, is_tied_with
from jaxpool._kernels.positions import IntArray, window_starts
from jaxpool._kernels.select import sum_where_selected
from jaxpool._plan.max_pool import AxisFold, MaxPass, TieFolds

BITS_PER_WORD = 32
BitWords = tuple[Array, ...]


def tie_bits_of_input(x: Array, y: Array, window: Window, fill: np.ndarray) -> BitWords:
    """`tie_bits_of_tap_values` for the input x and the pooled result y; padding has the value `fill`."""
    value, taps = dtypes.to_comparison_dtype(slices.pad_input(x, window, fill)), range(window.size)
    values = [slices.elements_at_tap(value, window, tap) for tap in taps]
    return tie_bits_of_tap_values(values, dtypes.to_comparison_dtype(y), window, taps)


def bits_of_taps_inside(window: Window, starts: Sequence[IntArray], ndim: int) -> BitWords:
    """One bit per tap of each window, set where the tap is inside the input along every axis; 32 bits per word.

    `starts` are the positions along each axis at which windows begin. The words are broadcastable to the output.
    """
    *major, minor = window.window_shape

    def is_inside(i: int, tap: int) -> IntArray:
        """Mask of the windows whose element at `tap` along pooled axis i is inside the input."""
        position = starts[i] + np.int32(tap * window.dims[i].dilation)
        return (position >= 0) & (position < window.dims[i].size)

    words = []
    for first_tap in range(0, window.size, BITS_PER_WORD):
        dtype, rows = dtypes.index_dtype(1 << min(BITS_PER_WORD, window.size - first_tap)), []
        for row, taps in enumerate(itertools.product(*map(range, major))):
            start = row * minor - first_tap
            in_word = range(max(0, -start), min(minor, BITS_PER_WORD - start))
            shifts = [(tap, np.asarray(start + tap, dtype)) for tap in in_word]
            bits = [is_inside(len(major), tap).astype(dtype) << shift for tap, shift in shifts]
            if bits:  # taps outside along a major axis are cleared by a mask of 0
                vectors = [-is_inside(i, tap).astype(dtype) for i, tap in enumerate(taps)]
                vectors.append(functools.reduce(operator.or_, bits))
                rows.append(slices.outer_broadcast(jnp.bitwise_and, vectors, window.axes, ndim))
        words.append(functools.reduce(jnp.bitwise_or, rows))
    return tuple(words)


def tie_bits_of_tap_values(
    value_per_tap: Sequence[Array], y: Array, window: Window, flat_taps: Sequence[int]
) -> BitWords:
    """One bit per tap of each window, set where the value at the tap ties with y and is not padding; 32 bits per word.

    `value_per_tap[i]` holds the values at the tap `flat_taps[i]`; `flat_taps` are ascending.
    """
    words = []
    for first_tap in range(0, window.size, BITS_PER_WORD):
        dtype = dtypes.index_dtype(1 << min(BITS_PER_WORD, window.size - first_tap))
        word = dtypes.full_like(y, 0, dtype)
        for value, tap in zip(value_per_tap, flat_taps, strict=True):
            if first_tap <= tap < first_tap + BITS_PER_WORD:
                bit = dtypes.full_like(word, 1 << (tap - first_tap))
                bit = slices.where_or_zero(is_tied_with(value, y), bit)
                word = lax.bitwise_or(word, bit)
        words.append(word)
    if window.is_padded:
        bits = bits_of_taps_inside(window, [*map(window_starts, window.dims)], y.ndim)
        words = [word & slices.broadcast_like(r, word) for word, r in zip(words, bits, strict=True)]
    return tuple(words)


def is_tap_tied(bit_words: Sequence[Array], tap: int) -> Array:
    """Mask of the windows whose bit of `tap` is set, which means that the element at `tap` is tied."""
    word = bit_words[tap // BITS_PER_WORD]
    bit = lax.bitwise_and(word, dtypes.scalar_like(word, 1 << (tap % BITS_PER_WORD)))
    return lax.ne(bit, dtypes.scalar_like(word, 0))


def divide_by_num_tied(total: Array, *num_tied: Array) -> Array:
    """Divide `total` by the number of tied elements, the sum of `num_tied`, or by 1 if a window has only padding."""
    if not num_tied:
        return total
    count = functools.reduce(lax.add, num_tied)
    return total / lax.max(count, dtypes.scalar_like(count, 1)).astype(total.dtype)


def divide_among_tied_taps(total: Array, bit_words: Sequence[Array]) -> Array:
    """Divide `total` by the number of tied taps of each window, which are the bits set in `bit_words`."""
    counts = [lax.population_count(word).astype(total.dtype) for word in bit_words]
    return divide_by_num_tied(total, *counts)


def mean_of_tied_taps(x: Array, bit_words: BitWords, window: Window) -> Array:
    """Mean of x over the tied taps of each window."""
    value = slices.pad_input(x.astype(accumulator_dtype(x.dtype)), window, 0)
    views = [slices.elements_at_tap(value, window, tap) for tap in range(window.size)]
    terms = [slices.where_or_zero(is_tap_tied(bit_words, tap), v) for tap, v in enumerate(views)]
    return divide_among_tied_taps(functools.reduce(lax.add, terms), bit_words).astype(x.dtype)


def mean_of_tied_taps_transpose(dy: Array, bit_words: BitWords, pass_: MaxPass) -> Array:
    """Transpose of `mean_of_tied_taps`: divide dy equally among the tied taps of each window."""
    share = divide_among_tied_taps(dy.astype(accumulator_dtype(dy.dtype)), bit_words)
    dx = sum_where_selected(lambda tap, *words: is_tap_tied(words, tap), share, bit_words, pass_)
    return dx.astype(dy.dtype)


TiedSums = tuple[Array, ...]
Join = Callable[[TiedSums, TiedSums], TiedSums]


def _fold_axis(state: TiedSums, join: Join, fold: AxisFold) -> TiedSums:
    """Join the elements of each window along an axis."""

    def state_at_tap(state: TiedSums, tap: int) -> TiedSums:
        starts, outs, strides = [tap * fold.dilation], [fold.num_windows], [fold.stride]
        return tuple(slices.strided_slice(x, [fold.axis], starts, outs, strides) for x in state)

    if fold.halves is None:
        return functools.reduce(join, (state_at_tap(state, tap) for tap in range(fold.num_taps)))
    halves = _fold_axis(state, join, fold.halves)
    total = join(state_at_tap(halves, 0), state_at_tap(halves, fold.num_taps // 2))
    return join(total, state_at_tap(state, fold.num_taps - 1)) if fold.num_taps % 2 else total


def _fold_covering_windows(
    state: TiedSums, fills: Sequence[ArrayLike], window: Window, join: Join, folds: TieFolds
) -> TiedSums:
    """Join the states of the windows that cover each input element; an element that no window covers gets `fills`."""
    for dim, fold in zip(window.dims, folds.over_windows, strict=True):

        def pad(state: TiedSums, config: slices.PaddingConfig, axis: int = dim.axis) -> TiedSums:
            pairs = zip(state, fills, strict=True)
            return tuple(slices.pad(array, [axis], [config], fill) for array, fill in pairs)

        state = pad(state, (dim.span - 1, dim.span - 1, dim.stride - 1))
        state = _fold_axis(state, join, fold)
        state = pad(state, (-dim.low, -dim.used_high, 0))
    return state


def _join_tied_sums(a: TiedSums, b: TiedSums, kind: Kind, *, keep_loser: bool = False) -> TiedSums:
    """Winner of two states (value, *sums), or the loser with `keep_loser`; the sums of tied states are added."""
    takes_a = dtypes.challenger_wins(a[0], b[0], kind, "first")
    takes_b = dtypes.challenger_wins(b[0], a[0], kind, "first")
    if keep_loser:
        takes_a, takes_b = takes_b, takes_a
    sums = zip(a[1:], b[1:], strict=True)
    totals = [lax.select(takes_a, p, lax.select(takes_b, q, p + q)) for p, q in sums]
    return (lax.select(takes_b, b[0], a[0]), *totals)


def _sums_over_ties(
    x: Array, sums: TiedSums, window: Window, kind: Kind, folds: TieFolds
) -> TiedSums:
    """Totals of the arrays `sums` over the elements of each window that tie with the window's maximum or minimum."""
    identity = dtypes.comparison_dtype_identity(x.dtype, kind)
    fills: list[ArrayLike] = [identity, *[0] * len(sums)]
    pairs = zip((dtypes.to_comparison_dtype(x), *sums), fills, strict=True)
    state = tuple(slices.pad_input(array, window, fill) for array, fill in pairs)
    join = functools.partial(_join_tied_sums, kind=kind)
    for fold in reversed(folds.over_taps):
        state = _fold_axis(state, join, fold)
    return state[1:]


def _where_weights(x: Array, where: Array | None, dtype: DType) -> Array:
    """Weights in the shape of x: 1 where the mask `where` is True or None, 0 where the mask is False."""
    if where is None:
        return dtypes.full_like(x, 1, dtype)
    return jnp.broadcast_to(where, x.shape).astype(dtype)


def mean_of_tied_elements(
    tangent: Array,
    x: Array,
    window: Window,
    kind: Kind,
    folds: TieFolds,
    where: Array | None = None,
) -> Array:
    """Mean of `tangent` over the elements of each window of x that tie with its maximum or minimum.

    `where` is True for elements that take part; all other tangents must be 0.
    """
    wide = tangent.astype(accumulator_dtype(tangent.dtype))
    terms = wide, _where_weights(x, where, wide.dtype)
    sums, counts = _sums_over_ties(x, terms, window, kind, folds)
    return divide_by_num_tied(sums, counts).astype(tangent.dtype)


def mean_of_tied_elements_transpose(
    dy: Array,
    x: Array,
    y: Array,
    window: Window,
    kind: Kind,
    folds: TieFolds,
    where: Array | None = None,
) -> Array:
    """Transpose of `mean_of_tied_elements`, where y is the pooled x.

    An element is the maximum of a window if and only if the element ties with the least maximum of all windows that
    cover the element.
    """
    wide = dy.astype(accumulator_dtype(dy.dtype))
    weights = _where_weights(x, where, wide.dtype)
    (counts,) = _sums_over_ties(x, (weights,), window, kind, folds)
    join = functools.partial(_join_tied_sums, kind=kind, keep_loser=True)
    state = (dtypes.to_comparison_dtype(y), divide_by_num_tied(wide, counts))
    lowest, sums = _fold_covering_windows(state, (np.nan, 0), window, join, folds)
    return slices.where_or_zero(is_tied_with(dtypes.to_comparison_dtype(x), lowest), sums).astype(
        dy.dtype
    )
