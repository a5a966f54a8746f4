"""Running maxima and minima by passes over an array: if a pass joins n elements, k passes join the last n**k elements.

The outputs that selected the same element form a run: they are adjacent, and the run begins at this element. Sums over
runs and copies along runs use the same passes and need only the index of the selected elements. A forward scan joins
each element with the elements before, a reverse scan with the elements after.

The plan may cut the axis into blocks, which are scanned separately. The totals of the blocks form a shorter axis,
which is scanned like the axis itself. A last pass joins each element with the total of all earlier blocks:

    1 2 0 | 1 3 1 | 0 2 1      scans 1 2 2 | 1 3 3 | 0 2 2, scanned totals 2 3 3, joined 1 2 2 | 2 3 3 | 3 3 3
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    TieOrder,
    accumulator_dtype,
    challenger_wins,
    comparison_dtype_identity,
    from_comparison_dtype,
    index_dtype,
    is_float,
    is_tied_with,
    reduction_identity,
    to_comparison_dtype,
)
from jaxpool._kernels.keys import (
    NaNPosition,
    constant_sort_key,
    from_sort_keys,
    has_sign_bit,
    set_sign_of_zeros,
    tie_zero_keys,
    to_sort_keys,
)
from jaxpool._kernels.positions import int32_iota
from jaxpool._kernels.slices import materialise
from jaxpool._plan.scan import ScanPlan

ShiftedArrays = Sequence[tuple[Array, ...]]


def _shift_along_axis(x: Array, axis: int, offset: int, fill: object) -> Array:
    """Shift x along an axis: element i of the result is element `i - offset` of x, or `fill` outside x."""
    return slices.pad(x, [axis], [(offset, -offset, 0)], fill)


def _scan_axis(
    join: Callable[..., Array],
    x: Array,
    fill: object,
    axis: int,
    reverse: bool,
    plan: ScanPlan,
    *extra_args: Array,
    spacing: int = 1,
) -> Array:
    """Join every element with all elements before (or after), by `join(x, *extra_args, shifted=..., offsets=...)`.

    `shifted[i]` is the tuple `(x, *extra_args)`, shifted by the distance `offsets[i]`. If x holds the totals of blocks,
    `spacing` is the block length in the original array, and offsets are multiples of `spacing`.
    """
    size = x.shape[axis]
    length = plan.block_length(size)
    if length is not None:
        return _scan_in_blocks(
            join, x, fill, axis, reverse, plan, length, *extra_args, spacing=spacing
        )

    def join_one_pass(x: Array, *extra_args: Array, offsets: Sequence[int]) -> Array:
        signed_offsets = [-offset if reverse else offset for offset in offsets]
        shifted = [
            (
                _shift_along_axis(x, axis, offset, fill),
                *[_shift_along_axis(arg, axis, offset, 0) for arg in extra_args],
            )
            for offset in signed_offsets
        ]
        return join(
            x, *extra_args, shifted=shifted, offsets=[spacing * offset for offset in offsets]
        )

    for offsets in plan.pass_distances(size):
        x = materialise(
            plan.barrier, functools.partial(join_one_pass, offsets=offsets), x, *extra_args
        )
    return x


def _scan_in_blocks(
    join: Callable[..., Array],
    x: Array,
    fill: object,
    axis: int,
    reverse: bool,
    plan: ScanPlan,
    block_length: int,
    *extra_args: Array,
    spacing: int,
) -> Array:
    """`_scan_axis` in blocks of `block_length` elements; a shorter last block is padded."""
    size = x.shape[axis]
    count = -(-size // block_length)

    def split_into_blocks(x: Array, fill: object) -> Array:
        padded = slices.pad(x, [axis], [(0, count * block_length - size, 0)], fill)
        return lax.reshape(padded, (*x.shape[:axis], count, block_length, *x.shape[axis + 1 :]))

    blocks, arg_blocks = (
        split_into_blocks(x, fill),
        [split_into_blocks(each, 0) for each in extra_args],
    )
    scans = _scan_axis(join, blocks, fill, axis + 1, reverse, plan, *arg_blocks, spacing=spacing)
    end = 0 if reverse else block_length - 1
    ends = [lax.index_in_dim(each, end, axis + 1, keepdims=False) for each in (scans, *arg_blocks)]
    totals = _scan_axis(
        join, ends[0], fill, axis, reverse, plan, *ends[1:], spacing=spacing * block_length
    )

    shift = -1 if reverse else 1
    earlier_totals = [
        _shift_along_axis(totals, axis, shift, fill),
        *[_shift_along_axis(each, axis, shift, 0) for each in ends[1:]],
    ]
    steps = block_length - int32_iota(block_length) if reverse else int32_iota(block_length) + 1
    distances = slices.reshape_along_axis(steps, axis + 1, x.ndim + 1)

    def join_earlier_totals(block_scans: Array, *arrays: Array) -> Array:
        args = (block_scans, *arrays[: len(extra_args)])
        shifted = [
            slices.broadcast_like(lax.expand_dims(each, [axis + 1]), like)
            for each, like in zip(arrays[len(extra_args) :], args, strict=True)
        ]
        y = join(*args, shifted=[tuple(shifted)], offsets=[spacing * distances.astype(np.int32)])
        y = lax.reshape(y, (*x.shape[:axis], count * block_length, *x.shape[axis + 1 :]))
        return lax.slice_in_dim(y, 0, size, axis=axis)

    return materialise(plan.barrier, join_earlier_totals, scans, *arg_blocks, *earlier_totals)


def _running_max_or_min(
    x: Array,
    axis: int,
    kind: Kind,
    fill: np.ndarray,
    reverse: bool,
    plan: ScanPlan,
    *num_earlier: Array,
) -> Array:
    """Running maximum or minimum; `fill` is the identity of the operation.

    The optional `num_earlier` limits each result to an episode: the number of earlier elements in the same episode.
    """
    max_or_min = lax.max if kind == "max" else lax.min

    def join_extrema(
        x: Array, *num_earlier: Array, shifted: ShiftedArrays, offsets: Sequence[Any]
    ) -> Array:
        terms = [other for other, *_ in shifted]
        for count in num_earlier:
            reached_masks = [
                lax.ge(count, slices.broadcast_like(jnp.asarray(offset, count.dtype), count))
                for offset in offsets
            ]
            terms = [
                lax.select(slices.broadcast_like(is_reached, term), term, lax.full_like(term, fill))
                for is_reached, term in zip(reached_masks, terms, strict=True)
            ]
        return functools.reduce(max_or_min, terms, x)

    return _scan_axis(join_extrema, x, fill, axis, reverse, plan, *num_earlier)


def num_earlier_in_episode(reset_mask: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """For each element, the number of elements in the same episode that the scan visits before the element.

    An episode begins where `reset_mask` is True. A reverse scan enters an episode at the episode's last element.
    """
    max_index = max(reset_mask.shape[axis] - 1, 0)
    is_entry = _shift_along_axis(reset_mask, axis, -1, True) if reverse else reset_mask
    positions = lax.full_like(reset_mask, 0, np.int32)  # sharded as the mask
    positions += lax.broadcasted_iota(np.int32, reset_mask.shape, axis)
    origin = np.asarray(max_index if reverse else 0, np.int32)
    entries = lax.select(is_entry, positions, lax.full_like(positions, origin))
    starts = _running_max_or_min(entries, axis, "min" if reverse else "max", origin, reverse, plan)
    return lax.sub(starts, positions) if reverse else lax.sub(positions, starts)


def _comparison_values_and_fill(x: Array, kind: Kind, plan: ScanPlan) -> tuple[Array, np.ndarray]:
    """Convert x to sort keys or to the comparison dtype, and return the identity of the operation in that dtype."""
    if not plan.uses_keys:
        return to_comparison_dtype(x), comparison_dtype_identity(x.dtype, kind)
    nan: NaNPosition = "greatest" if kind == "max" else "least"
    return to_sort_keys(x, nan), constant_sort_key(reduction_identity(x.dtype, kind), nan)


def _from_comparison_values(value: Array, dtype: DType, plan: ScanPlan) -> Array:
    return from_sort_keys(value, dtype) if plan.uses_keys else from_comparison_dtype(value, dtype)


def running_max_or_min(
    x: Array, axis: int, kind: Kind, reverse: bool, plan: ScanPlan, *reset_masks: Array
) -> Array:
    """Running maximum or minimum, which restarts where the optional reset mask is True. NaN wins over every number."""
    value, fill = _comparison_values_and_fill(x, kind, plan)
    num_earlier = [num_earlier_in_episode(mask, axis, reverse, plan) for mask in reset_masks]
    return _from_comparison_values(
        _running_max_or_min(value, axis, kind, fill, reverse, plan, *num_earlier), x.dtype, plan
    )


def running_select_with_index(
    x: Array,
    axis: int,
    kind: Kind,
    ties: TieOrder,
    reverse: bool,
    plan: ScanPlan,
    *reset_masks: Array,
) -> tuple[Array, Array]:
    """Running maximum or minimum, and the position of the selected element along the axis.

    An element takes over if the element beats the previous running value, or ties with the current running value if
    later elements win ties. The first element of an episode always takes over. The index is the latest position that
    took over, so the index does not depend on the order of joins in the scan. For floats, the scanned integers are
    `2 * position + sign bit of the element`, so that a zero gets the sign of the selected zero.
    """
    value, fill = _comparison_values_and_fill(x, kind, plan)
    num_earlier = [num_earlier_in_episode(mask, axis, reverse, plan) for mask in reset_masks]
    extrema = _running_max_or_min(value, axis, kind, fill, reverse, plan, *num_earlier)
    tie_zeros = (
        functools.partial(tie_zero_keys, dtype=x.dtype) if plan.uses_keys else lambda each: each
    )
    if (ties == "first") != reverse:
        previous = _shift_along_axis(extrema, axis, -1 if reverse else 1, fill)
        takes_over = challenger_wins(tie_zeros(value), tie_zeros(previous), kind, "first")
        for count in num_earlier:
            is_entry = slices.broadcast_like(lax.eq(count, lax.full_like(count, 0)), takes_over)
            takes_over = lax.bitwise_or(takes_over, is_entry)
    else:
        takes_over = is_tied_with(tie_zeros(value), tie_zeros(extrema))
    max_index = max(x.shape[axis] - 1, 0)
    is_signed = is_float(x.dtype)
    positions = lax.broadcasted_iota(index_dtype((max_index + 1) << is_signed), x.shape, axis)
    position = lax.full_like(takes_over, 0, positions.dtype) + positions  # sharded as x
    start = np.asarray(max_index if reverse else 0, position.dtype)
    if is_signed:
        two, sign_bit = np.asarray(2, position.dtype), has_sign_bit(x).astype(position.dtype)
        position, start = position * two + sign_bit, start * two + np.asarray(reverse, two.dtype)
    winners = lax.select(takes_over, position, lax.full_like(position, start))
    index = _running_max_or_min(winners, axis, "min" if reverse else "max", start, reverse, plan)
    y = _from_comparison_values(extrema, x.dtype, plan)
    if not is_signed:
        return y, index
    one = lax.full_like(index, 1)
    y = set_sign_of_zeros(y, lax.eq(lax.bitwise_and(index, one), one))
    return y, lax.shift_right_logical(index, one).astype(index_dtype(max_index + 1))


def _zero_except_at_run_starts(x: Array, index: Array, axis: int) -> Array:
    """Replace x by 0 except at elements that begin a run, which are the elements that some output selected."""
    is_start = lax.eq(index, lax.broadcasted_iota(index.dtype, index.shape, axis))
    return slices.where_or_zero(is_start, x)


def _sums_within_runs(x: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """For each element, sum of the element and of all earlier elements in the same run."""

    def add_in_run(x: Array, index: Array, shifted: ShiftedArrays, offsets: Sequence[Any]) -> Array:
        terms = [slices.where_or_zero(lax.eq(index, run), other) for other, run in shifted]
        return functools.reduce(lax.add, terms, x)

    return _scan_axis(add_in_run, x, 0, axis, reverse, plan, index)


def copy_along_runs(x: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Gather the elements of x at `index` along an axis, by copying the first element of each run along the run."""
    starts = _zero_except_at_run_starts(x.astype(accumulator_dtype(x.dtype)), index, axis)
    return _sums_within_runs(starts, index, axis, reverse, plan).astype(x.dtype)


def sum_over_runs(dy: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Transpose of `copy_along_runs`: the first element of each run gets the sum of dy over the run, others get 0."""
    sums = _sums_within_runs(dy.astype(accumulator_dtype(dy.dtype)), index, axis, not reverse, plan)
    return _zero_except_at_run_starts(sums, index, axis).astype(dy.dtype)


def subtract_equal_infinities(a: Array, b: Array) -> Array:
    """`a - b`, or 0 where a equals b, including equal infinities."""
    return lax.select(lax.eq(a, b), lax.full_like(a, 0), lax.sub(a, b))


def exponentially_decayed_sums(
    x: Array, log_level: Array, axis: int, reverse: bool, plan: ScanPlan
) -> Array:
    """`y[i] = sum over j <= i of x[j] * exp(log_level[j] - log_level[i])`, or over j >= i in reverse.

    `log_level` must not decrease in the direction of the scan, so the weights of x are at most 1.
    """

    def add_decayed_shifted(
        x: Array, log_level: Array, shifted: ShiftedArrays, offsets: Sequence[Any]
    ) -> Array:
        total = x
        for other, other_level in shifted:
            # `_shift_along_axis` pads with level 0, which may be far above `log_level`: the minimum keeps exp finite.
            difference = subtract_equal_infinities(other_level, log_level)
            total = total + other * lax.exp(lax.min(difference, lax.full_like(difference, 0)))
        return total

    return _scan_axis(add_decayed_shifted, x, 0, axis, reverse, plan, log_level)
