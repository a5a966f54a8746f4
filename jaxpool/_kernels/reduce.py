"""Maximum and minimum over whole axes, with the number of tied elements or the rank of one of them.

Results keep the reduced axes with size 1. `mask` is a `where` mask that broadcasts to x. XLA for CPU vectorises
reductions of stored arrays, but not of operands that are computed in the same loop. A `fold` therefore first joins
stretches of an axis in a stored pass and then reduces the rest. With `as_floats`, small arrays use float32 for sums,
counts and ranks, because XLA passes float32 reductions to a library.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_identity_of, encode, ties_with
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    accumulator,
    cast,
    has_16_bits,
    identity_of,
    index_dtype,
    is_float,
)
from jaxpool._kernels.keys import (
    NaN,
    bits_to_keys,
    from_keys,
    key_of,
    to_bits,
    to_keys,
    zeros_level,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._plan.reduce import Fold


def extreme(
    x: Array,
    axes: Sequence[int],
    kind: Kind,
    mask: Array | None = None,
    *,
    loses_nan: bool,
    fold: Fold | None = None,
    as_floats: bool = False,
) -> Array:
    """Maximum or minimum of the elements in the mask, or the identity if there are none.

    If the platform's reduction `loses_nan`, a sum that is NaN, perhaps `as_floats`, selects a branch that looks for
    NaN. With a fold, integer keys are compared, whose reduction does not lose NaN.
    """
    if fold is not None:
        return _folded(x, axes, kind, mask, fold)
    value, fill = x, identity_of(x.dtype, kind)
    undecoded = is_float(x.dtype) and x.dtype.itemsize > 1
    if not undecoded:
        value, fill = decode(x), decoded_identity_of(x.dtype, kind)
    if mask is not None:
        value = lax.select(slices.broadcast_like(mask, value), value, lax.full_like(value, fill))

    def reduced(value: Array) -> Array:
        return lax.reduce(value, fill, lax.max if kind == "max" else lax.min, axes)

    def with_nan(value: Array) -> Array:
        y = reduced(value)
        has_nan = lax.reduce(lax.ne(value, value), np.False_, lax.bitwise_or, axes)
        return lax.select(has_nan, lax.full_like(y, np.nan), y)

    if loses_nan and is_float(value.dtype):
        terms = cast(value, accumulator(value.dtype)) if as_floats else value
        total = lax.reduce(terms, np.zeros((), terms.dtype), lax.add, axes)
        y = lax.cond(jnp.any(lax.ne(total, total)), with_nan, reduced, value)
    else:
        y = reduced(value)
    y = lax.expand_dims(y, axes)
    return y if undecoded else encode(y, x.dtype)


def _starts(size: int, fold: Fold) -> tuple[list[int], int]:
    """Starts of the stretches of an axis, and their common length; the last stretch may overlap the previous."""
    length = -(-size // fold.ways)
    return sorted({min(start, size - length) for start in range(0, size, length)}), length


def _part_keys(part: Array, dtype: DType, nan: NaN) -> Array:
    """Keys of floats of `dtype`, which are passed as floats or as their bits."""
    return to_keys(part, nan) if is_float(part.dtype) else bits_to_keys(part, dtype, nan)


def _in_stretches(
    fold: Fold, joined: Callable[..., Array], x: Array, *others: Array | None
) -> Array:
    """Evaluate `joined` in a stored pass; each argument is the list of stretches of one array.

    `others` broadcast to x. 16-bit floats are sliced as integers: XLA for CPU widens each slice of a bfloat16 to
    float32, to make NaNs quiet.
    """
    starts, length = _starts(x.shape[fold.axis], fold)
    arrays = [each for each in (x, *others) if each is not None]

    def run(x: Array, *others: Array) -> Array:
        arrays = (to_bits(x) if has_16_bits(x.dtype) else x, *others)

        def part(each: Array, start: int) -> Array:
            if each.shape[fold.axis] == 1:
                return each
            return lax.slice_in_dim(each, start, start + length, axis=fold.axis)

        return joined(*[[part(each, start) for start in starts] for each in arrays])

    return materialise(fold.barrier, run, *arrays)


def _folded(x: Array, axes: Sequence[int], kind: Kind, mask: Array | None, fold: Fold) -> Array:
    nan: NaN = "greatest" if kind == "max" else "least"
    join = lax.max if kind == "max" else lax.min
    fill = key_of(identity_of(x.dtype, kind), nan)

    def joined(parts: Sequence[Array], *masks: Sequence[Array]) -> Array:
        keys = [_part_keys(part, x.dtype, nan) for part in parts]
        for counts in masks:
            keys = [
                lax.select(jnp.broadcast_to(counting, key.shape), key, lax.full_like(key, fill))
                for counting, key in zip(counts, keys, strict=True)
            ]
        return finished(functools.reduce(join, keys))

    def finished(keys: Array) -> Array:
        """Convert keys to values in the last pass, if it leaves nothing to reduce."""
        done = all(keys.shape[axis] == 1 for axis in axes)
        return from_keys(keys, x.dtype) if done else keys

    def joined_again(keys: Sequence[Array]) -> Array:
        return finished(functools.reduce(join, keys))

    y = _in_stretches(fold, joined, x, mask)
    for then in fold.later():
        y = _in_stretches(then, joined_again, y)
    if y.dtype == x.dtype:
        return y
    return from_keys(lax.expand_dims(lax.reduce(y, fill, join, axes), axes), x.dtype)


def _compared(x: Array, fold: Fold | None, dtype: DType) -> Array:
    """Decode x for comparisons. With a fold, 16-bit floats become 16-bit keys, which are not widened.

    x has `dtype`, or holds the bits of floats of `dtype`.
    """
    if fold is None or not has_16_bits(dtype):
        return decode(x)
    return zeros_level(_part_keys(x, dtype, "greatest"), dtype)


def _ties(value: Array, best: Array, mask: Array | None) -> Array:
    tied = ties_with(value, jnp.broadcast_to(best, value.shape))
    return tied if mask is None else lax.bitwise_and(tied, slices.broadcast_like(mask, tied))


def attained(x: Array, y: Array, mask: Array | None = None, fold: Fold | None = None) -> Array:
    """Mask of the elements in `mask` that tie with the maximum or minimum y."""
    return _ties(_compared(x, fold, x.dtype), _compared(y, fold, x.dtype), mask)


def _counts(x: Array, y: Array, mask: Array | None, fold: Fold) -> Array:
    """Counts of tied elements, added up over the stretches of each fold."""
    narrow = np.dtype(np.int16 if x.dtype.itemsize == 2 else np.int32)

    def added(parts: list[Array], fold: Fold, size: int, dtype: DType) -> Array:
        """Add parts; elements shared by the last two stretches count once."""
        starts, length = _starts(size, fold)
        overlap = starts[-2] + length - starts[-1]
        if overlap > 0:
            *parts, last = parts
            place = lax.broadcasted_iota(np.int32, last.shape, fold.axis)
            is_new = lax.ge(place, lax.full_like(place, overlap))
            parts = [*parts, lax.select(is_new, last, lax.full_like(last, 0))]
        return functools.reduce(lax.add, [part.astype(dtype) for part in parts])

    def tied(parts: Sequence[Array], bests: Sequence[Array], *masks: Sequence[Array]) -> Array:
        counts = masks[0] if masks else [None] * len(parts)
        triples = zip(parts, bests, counts, strict=True)
        ties = [_ties(_compared(part, fold, x.dtype), best, mask) for part, best, mask in triples]
        return added(ties, fold, x.shape[fold.axis], narrow)

    counted = _in_stretches(fold, tied, x, _compared(y, fold, x.dtype), mask)
    for then in fold.later():
        again = functools.partial(added, fold=then, size=counted.shape[then.axis], dtype=np.int32)
        counted = _in_stretches(then, again, counted)
    return counted


def tied_count(
    x: Array,
    y: Array,
    axes: Sequence[int],
    mask: Array | None = None,
    fold: Fold | None = None,
    as_floats: bool = False,
) -> Array:
    """Number of elements in the mask that tie with y, as uint32; counted in float32 if `as_floats`."""
    tied = attained(x, y, mask) if fold is None else _counts(x, y, mask, fold)
    dtype = np.float32 if as_floats else np.uint32
    return jnp.sum(tied, axis=tuple(axes), keepdims=True, dtype=dtype).astype(np.uint32)


# One index per output element: the rank of the selected element


def _ranks(
    like: Array,
    axes: Sequence[int],
    dtype: DType,
    last: bool,
    shift: tuple[int, int, Array] | None = None,
) -> Array:
    """Row-major ranks in the order of `axes`, counted from the end if `last`, with the sharding of `like`.

    `shift` is an axis, its full size, and the offset of each element along this axis.
    """
    rank = lax.full_like(like, 0, dtype)
    for axis in axes:
        size = like.shape[axis]
        line = [1] * like.ndim
        line[axis] = size
        step = lax.broadcasted_iota(dtype, line, axis)
        if shift is not None and shift[0] == axis:
            size, step = shift[1], step + shift[2].astype(dtype)
        if last:
            step = lax.full_like(step, max(size - 1, 0)) - step
        # A size of 256 becomes 0 in uint8; the rank that it multiplies is 0 then.
        rank = rank * np.asarray(size).astype(dtype) + step
    return rank


def _rank_type(sizes: Sequence[int], masked: bool) -> np.dtype:
    return np.dtype(index_dtype(math.prod(sizes) + masked))


def first_rank(
    tied: Array, axes: Sequence[int], last: bool, masked: bool, *, as_floats: bool = False
) -> Array:
    """Least rank of a tied element, or the greatest value of the index dtype if none is tied.

    `as_floats` compares ranks in float32, for fewer than 2**16 elements.
    """
    dtype = _rank_type([tied.shape[axis] for axis in axes], masked)
    compared = np.dtype(np.float32) if as_floats else dtype
    none = np.asarray(np.iinfo(dtype).max, compared)
    rank = _ranks(tied, axes, compared, last)
    chosen = lax.select(tied, rank, lax.full_like(rank, none))
    return lax.expand_dims(lax.reduce(chosen, none, lax.min, axes), axes).astype(dtype)


def chosen_rank(
    x: Array,
    y: Array,
    axes: Sequence[int],
    last: bool,
    mask: Array | None = None,
    fold: Fold | None = None,
    as_floats: bool = False,
) -> Array:
    """Least rank of an element in the mask that ties with y, or the greatest value of the index dtype.

    With a fold, each position first selects the first or last stretch with a tied element, then its rank.
    """
    masked = mask is not None
    if fold is None:
        return first_rank(attained(x, y, mask), axes, last, masked, as_floats=as_floats)
    dtype = _rank_type([x.shape[axis] for axis in axes], masked)
    size = x.shape[fold.axis]
    length = _starts(size, fold)[1]
    none = np.asarray(np.iinfo(dtype).max, dtype)
    narrow = np.dtype(np.int16 if x.dtype.itemsize == 2 else np.int32)

    def joined(parts: Sequence[Array], bests: Sequence[Array], *masks: Sequence[Array]) -> Array:
        counts = masks[0] if masks else [None] * len(parts)
        piece = lax.full_like(parts[0], -1, narrow)
        rows = [*enumerate(zip(parts, bests, counts, strict=True))]
        for number, (part, best, counting) in rows if last else rows[::-1]:
            tied = _ties(_compared(part, fold, x.dtype), best, counting)
            piece = lax.select(tied, lax.full_like(piece, number), piece)
        begin = lax.min(piece.astype(np.int32) * np.int32(length), np.int32(size - length))
        rank = _ranks(piece, axes, dtype, last, (fold.axis, size, begin))
        return lax.select(lax.ge(piece, lax.full_like(piece, 0)), rank, lax.full_like(rank, none))

    rank = _in_stretches(fold, joined, x, _compared(y, fold, x.dtype), mask)
    for then in fold.later():
        rank = _in_stretches(then, functools.partial(functools.reduce, lax.min), rank)
    return lax.expand_dims(lax.reduce(rank, none, lax.min, axes), axes)


def has_rank(rank: Array, shape: Sequence[int], axes: Sequence[int], last: bool) -> Array:
    """Mask of `shape` that is True at the element of a rank."""
    whole = jnp.broadcast_to(rank, shape)
    return lax.eq(_ranks(whole, axes, rank.dtype, last), whole)
