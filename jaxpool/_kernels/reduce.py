"""Maximum and minimum over whole axes, with the number of tied elements or the flat index of one of them.

Results keep the reduced axes with size 1. `mask` is True for elements that take part, and broadcasts to x. XLA for CPU
vectorises reductions of stored arrays, but not of operands computed in the same loop. A `Fold` plan therefore cuts an
axis into chunks, joins the chunks elementwise, stores the result, and reduces the stored array. `use_float32` is for
small arrays: XLA passes float32 reductions to a library, so sums, counts and flat indices are float32.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import dtypes, keys, slices
from jaxpool._kernels.dtypes import DType, Kind
from jaxpool._kernels.keys import NaNPosition
from jaxpool._plan.reduce import Fold, ReductionPlan

DIRECT = ReductionPlan()  # no folds


def max_or_min_over_axes(
    x: Array,
    axes: Sequence[int],
    kind: Kind,
    mask: Array | None = None,
    plan: ReductionPlan = DIRECT,
) -> Array:
    """Maximum or minimum over `axes` of the elements where `mask` is True, or the identity if the mask has no True.

    With `plan.finds_nan_by_sum`, a branch that looks for NaN runs if the sum of x is NaN.
    """
    if plan.folds:
        return _max_or_min_by_folding(x, axes, kind, mask, plan.folds)
    value, fill = x, dtypes.reduction_identity(x.dtype, kind)
    keeps_dtype = dtypes.is_float(x.dtype) and x.dtype.itemsize > 1
    if not keeps_dtype:
        value, fill = dtypes.to_comparison_dtype(x), dtypes.comparison_dtype_identity(x.dtype, kind)
    if mask is not None:
        value = dtypes.where(slices.broadcast_like(mask, value), value, fill)

    def reduce_max_or_min(value: Array) -> Array:
        return lax.reduce(value, fill, lax.max if kind == "max" else lax.min, axes)

    def reduce_propagating_nan(value: Array) -> Array:
        y = reduce_max_or_min(value)
        has_nan = lax.reduce(lax.ne(value, value), np.False_, lax.bitwise_or, axes)
        return dtypes.where(has_nan, np.nan, y)

    if plan.finds_nan_by_sum and dtypes.is_float(value.dtype):
        sum_dtype = dtypes.accumulator_dtype(value.dtype) if plan.use_float32 else value.dtype
        terms = dtypes.cast(value, sum_dtype)
        total = lax.reduce(terms, np.zeros((), terms.dtype), lax.add, axes)
        has_no_nan = dtypes.all_true_across_vmap(lax.eq(total, total))
        y = lax.cond(has_no_nan, reduce_max_or_min, reduce_propagating_nan, value)
    else:
        y = reduce_max_or_min(value)
    y = lax.expand_dims(y, axes)
    return y if keeps_dtype else dtypes.from_comparison_dtype(y, x.dtype)


def _chunk_starts(axis_size: int, length: int) -> list[int]:
    """Start of each chunk of `length` elements of an axis; the last two chunks may overlap."""
    return sorted({min(start, axis_size - length) for start in range(0, axis_size, length)})


def _join_chunks(
    fold: Fold, join_lists: Callable[..., Array], x: Array, *other_arrays: Array | None
) -> Array:
    """Evaluate `join_lists` and store the result; each argument of `join_lists` is the list of chunks of one array.

    `other_arrays` broadcast to x. 16-bit floats are sliced as integers, because XLA for CPU widens each slice of a
    bfloat16 array to float32 to make NaNs quiet.
    """
    length = fold.chunk_length
    starts = _chunk_starts(x.shape[fold.axis], length)

    def slice_and_join(x: Array, *other_arrays: Array) -> Array:
        arrays = (keys.float_bits(x) if dtypes.is_16_bit_float(x.dtype) else x, *other_arrays)

        def slice_chunk(array: Array, start: int) -> Array:
            if array.shape[fold.axis] == 1:
                return array
            return lax.slice_in_dim(array, start, start + length, axis=fold.axis)

        return join_lists(*[[slice_chunk(array, start) for start in starts] for array in arrays])

    arrays = [array for array in (x, *other_arrays) if array is not None]
    return slices.materialise(fold.barrier, slice_and_join, *arrays)


def _max_or_min_by_folding(
    x: Array, axes: Sequence[int], kind: Kind, mask: Array | None, folds: Sequence[Fold]
) -> Array:
    nan_position: NaNPosition = "greatest" if kind == "max" else "least"
    join = lax.max if kind == "max" else lax.min
    fill = keys.constant_sort_key(dtypes.reduction_identity(x.dtype, kind))

    def join_masked_chunks(chunks: Sequence[Array], *masks: Sequence[Array]) -> Array:
        sort_keys = [keys.to_sort_keys(chunk, nan_position, x.dtype) for chunk in chunks]
        for mask_chunks in masks:
            sort_keys = [
                dtypes.where(jnp.broadcast_to(mask_chunk, key.shape), key, fill)
                for mask_chunk, key in zip(mask_chunks, sort_keys, strict=True)
            ]
        return join_key_chunks(sort_keys)

    def join_key_chunks(key_chunks: Sequence[Array]) -> Array:
        """Join keys, and convert them to values if all reduced axes have size 1, so that nothing is left to reduce."""
        sort_keys = functools.reduce(join, key_chunks)
        is_reduced = all(sort_keys.shape[axis] == 1 for axis in axes)
        return keys.from_sort_keys(sort_keys, x.dtype) if is_reduced else sort_keys

    y = _join_chunks(folds[0], join_masked_chunks, x, mask)
    for fold in folds[1:]:
        y = _join_chunks(fold, join_key_chunks, y)
    if y.dtype == x.dtype:
        return y
    return keys.from_sort_keys(lax.expand_dims(lax.reduce(y, fill, join, axes), axes), x.dtype)


def _as_tie_keys(x: Array, dtype: DType) -> Array:
    """x in the form in which ties are compared: 16-bit keys of 16-bit floats, else `to_comparison_dtype(x)`.

    x has the dtype `dtype`, or the bits of 16-bit floats of `dtype`.
    """
    if not dtypes.is_16_bit_float(dtype):
        return dtypes.to_comparison_dtype(x)
    return keys.tie_zero_keys(keys.to_sort_keys(x, "greatest", dtype), dtype)


def _tied_mask(value: Array, extremum: Array, mask: Array | None) -> Array:
    tied = dtypes.is_tied_with(value, jnp.broadcast_to(extremum, value.shape))
    return tied if mask is None else lax.bitwise_and(tied, slices.broadcast_like(mask, tied))


def attains_extremum(
    x: Array, y: Array, mask: Array | None = None, plan: ReductionPlan = DIRECT
) -> Array:
    """Mask of the elements of x that tie with the maximum or minimum y, limited to elements where `mask` is True."""
    if plan.folds:
        return _tied_mask(_as_tie_keys(x, x.dtype), _as_tie_keys(y, x.dtype), mask)
    return _tied_mask(dtypes.to_comparison_dtype(x), dtypes.to_comparison_dtype(y), mask)


def _is_tied_chunk(dtype: DType, chunk: Array, extremum: Array, mask: Array | None = None) -> Array:
    """Mask of the tied elements of a chunk of floats of `dtype`; `extremum` has keys."""
    return _tied_mask(_as_tie_keys(chunk, dtype), extremum, mask)


def _num_tied_by_folding(x: Array, y: Array, mask: Array | None, plan: ReductionPlan) -> Array:
    """Counts of tied elements, added over the chunks of folds but not over the remaining elements."""
    first_fold, *later_folds = plan.folds
    count_dtype = np.dtype(np.int16 if x.dtype.itemsize == 2 else np.int32)

    def add_chunks(chunks: Iterable[Array], fold: Fold, axis_size: int, dtype: DType) -> Array:
        """Add chunks elementwise; elements that are in both of the last two chunks are counted once."""
        *_, previous_start, last_start = _chunk_starts(axis_size, fold.chunk_length)
        overlap = previous_start + fold.chunk_length - last_start
        *others, last_chunk = chunks
        if overlap > 0:
            position = lax.broadcasted_iota(np.int32, last_chunk.shape, fold.axis)
            is_new = lax.ge(position, dtypes.scalar_like(position, overlap))
            last_chunk = dtypes.where(is_new, last_chunk, 0)
        return functools.reduce(lax.add, [chunk.astype(dtype) for chunk in (*others, last_chunk)])

    def count_tied_in_chunks(*chunk_lists: Sequence[Array]) -> Array:
        tied_masks = [_is_tied_chunk(x.dtype, *each) for each in zip(*chunk_lists, strict=True)]
        return add_chunks(tied_masks, first_fold, x.shape[first_fold.axis], count_dtype)

    counts = _join_chunks(first_fold, count_tied_in_chunks, x, _as_tie_keys(y, x.dtype), mask)
    for fold in later_folds:
        add_later_chunks = functools.partial(
            add_chunks, fold=fold, axis_size=counts.shape[fold.axis], dtype=np.int32
        )
        counts = _join_chunks(fold, add_later_chunks, counts)
    return counts


def num_tied_elements(
    x: Array, y: Array, axes: Sequence[int], mask: Array | None, plan: ReductionPlan
) -> Array:
    """Number of elements where `mask` is True that tie with y, as uint32."""
    count = _num_tied_by_folding if plan.folds else attains_extremum
    dtype = np.float32 if plan.use_float32 else np.uint32
    terms = count(x, y, mask, plan)
    return jnp.sum(terms, axis=tuple(axes), keepdims=True, dtype=dtype).astype(np.uint32)


# Functions with one index per output element: the row-major flat index of the selected element over the reduced axes


def _flat_indices(
    like: Array,
    axes: Sequence[int],
    dtype: DType,
    from_end: bool,
    axis_shift: tuple[int, int, Array] | None = None,
) -> Array:
    """Row-major flat indices in the order of `axes`, counted from the end if `from_end`.

    If `like` is a chunk of a larger array, `axis_shift` is the cut axis, its full size, and the offset of each element.
    """
    flat_index = dtypes.full_like(like, 0, dtype)
    for axis in axes:
        size = like.shape[axis]
        shape = [1] * like.ndim
        shape[axis] = size
        position = lax.broadcasted_iota(dtype, shape, axis)
        if axis_shift is not None and axis_shift[0] == axis:
            size, position = axis_shift[1], position + axis_shift[2].astype(dtype)
        if from_end:
            position = lax.sub(dtypes.scalar_like(position, max(size - 1, 0)), position)
        # An axis size of 256 becomes 0 in uint8, but then the flat index that is multiplied by the size is 0.
        outer = lax.mul(flat_index, np.asarray(size).astype(dtype))
        flat_index = lax.add(outer, jnp.broadcast_to(position, like.shape))
    return flat_index


def _flat_index_dtype(x: Array, axes: Sequence[int], has_mask: bool) -> np.dtype:
    return np.dtype(dtypes.index_dtype(math.prod(x.shape[axis] for axis in axes) + has_mask))


def first_tied_flat_index(
    tied_mask: Array,
    axes: Sequence[int],
    from_end: bool,
    has_mask: bool,
    *,
    use_float32: bool = False,
) -> Array:
    """Least flat index of a tied element, or the greatest value of the index dtype if no element is tied.

    With `use_float32`, for fewer than 2**16 elements, the indices are compared in float32.
    """
    dtype = _flat_index_dtype(tied_mask, axes, has_mask)
    compared_dtype = np.dtype(np.float32) if use_float32 else dtype
    no_index = np.asarray(np.iinfo(dtype).max, compared_dtype)
    flat_index = _flat_indices(tied_mask, axes, compared_dtype, from_end)
    tied_index = dtypes.where(tied_mask, flat_index, no_index)
    return lax.expand_dims(lax.reduce(tied_index, no_index, lax.min, axes), axes).astype(dtype)


@functools.partial(jax.jit, static_argnums=2)
def _replace_where_tied(
    numbers: Array, number: Array, dtype: DType, *chunk_and_extremum: Array
) -> Array:
    """Replace `numbers` by one `number` where a chunk of floats of `dtype` ties with its extremum."""
    return dtypes.where(_is_tied_chunk(dtype, *chunk_and_extremum), number, numbers)


def flat_index_of_extremum(
    x: Array,
    y: Array,
    axes: Sequence[int],
    from_end: bool,
    mask: Array | None = None,
    plan: ReductionPlan = DIRECT,
) -> Array:
    """Least flat index of an element where `mask` is True that ties with y, or the greatest value of the index dtype.

    With folds, each position first finds the first or last chunk with a tied element, then its flat index.
    """
    has_mask = mask is not None
    if not plan.folds:
        tied = attains_extremum(x, y, mask)
        return first_tied_flat_index(tied, axes, from_end, has_mask, use_float32=plan.use_float32)
    dtype = _flat_index_dtype(x, axes, has_mask)
    first_fold, *later_folds = plan.folds
    size = x.shape[first_fold.axis]
    length = first_fold.chunk_length
    no_index = np.asarray(np.iinfo(dtype).max, dtype)
    chunk_dtype = np.dtype(np.int16 if x.dtype.itemsize == 2 else np.int32)

    def index_in_chunks(*chunk_lists: Sequence[Array]) -> Array:
        chosen_chunk = dtypes.full_like(chunk_lists[0][0], -1, chunk_dtype)
        numbered = [*enumerate(zip(*chunk_lists, strict=True))]
        # Later selects override earlier selects.
        for number, arrays in numbered[:: 1 if from_end else -1]:
            chosen = np.asarray(number, chunk_dtype)
            chosen_chunk = _replace_where_tied(chosen_chunk, chosen, x.dtype, *arrays)
        start = lax.min(chosen_chunk.astype(np.int32) * np.int32(length), np.int32(size - length))
        shift = (first_fold.axis, size, start)
        flat_index = _flat_indices(chosen_chunk, axes, dtype, from_end, shift)
        is_found = lax.ge(chosen_chunk, dtypes.scalar_like(chosen_chunk, 0))
        return dtypes.where(is_found, flat_index, no_index)

    flat_index = _join_chunks(first_fold, index_in_chunks, x, _as_tie_keys(y, x.dtype), mask)
    for fold in later_folds:
        flat_index = _join_chunks(fold, functools.partial(functools.reduce, lax.min), flat_index)
    return lax.expand_dims(lax.reduce(flat_index, no_index, lax.min, axes), axes)


def one_hot_of_flat_index(
    flat_index: Array, shape: Sequence[int], axes: Sequence[int], from_end: bool
) -> Array:
    """Mask of `shape` that is True at the element whose flat index over `axes` is `flat_index`."""
    index = jnp.broadcast_to(flat_index, shape)
    return lax.eq(_flat_indices(index, axes, flat_index.dtype, from_end), index)
