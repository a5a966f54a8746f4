"""Running maxima and minima by passes over an array: if a pass joins n elements, k passes join the last n**k elements.

The outputs that selected the same element form a run: they are adjacent, and the run begins at this element. Sums over
runs and copies along runs use the same passes and need only the index of the selected elements.

The plan may cut the axis into blocks, which are scanned separately. The totals of the blocks form a shorter axis,
which is scanned like the axis itself. A last pass joins each element with the total of all earlier blocks (on GPUs,
`block_scan.py` computes the totals first):

    1 2 0 | 1 3 1 | 0 2 1      scans 1 2 2 | 1 3 3 | 0 2 2, scanned totals 2 3 3, joined 1 2 2 | 2 3 3 | 3 3 3
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._kernels import keys, slices
from jaxpool._kernels.block_scan import reduce_then_scan
from jaxpool._kernels.dtypes import (
    Kind,
    TieOrder,
    accumulator_dtype,
    challenger_wins,
    comparison_dtype_identity,
    from_comparison_dtype,
    full_like,
    index_dtype,
    is_tied_with,
    reduction_identity,
    scalar_like,
    to_comparison_dtype,
    where,
)
from jaxpool._kernels.positions import int32_iota
from jaxpool._kernels.slices import materialise
from jaxpool._plan.scan import ScanPlan

ShiftedArrays = Sequence[Sequence[Array]]
Offsets = Sequence[int | Array]


@dataclasses.dataclass(frozen=True)
class Scan:
    """A scan along `axis`, from its first element on or in reverse, with the passes of `plan`."""

    axis: int
    reverse: bool
    plan: ScanPlan

    def shift(self, x: Array, offset: int, fill: ArrayLike) -> Array:
        """For each element, the element of x that the scan visits `offset` steps earlier, or `fill` outside x."""
        low = -offset if self.reverse else offset
        return slices.pad(x, [self.axis], [(low, -low, 0)], fill)

    def run(
        self, join: Callable[..., Array], fill: ArrayLike, *arrays: Array, spacing: int = 1
    ) -> Array:
        """Join every element of `arrays[0]` with all earlier ones, by `join(*arrays, shifted=..., offsets=...)`.

        `shifted[i]` holds the arrays, shifted by the distance `offsets[i]`; the first array is padded by `fill`. If the
        elements are totals of blocks, offsets are multiples of `spacing`, the block length in the original array.
        """
        if self.plan.reduces_first:
            scan = functools.partial(reduce_then_scan, join, fill, arrays, self.axis, self.plan)
            return scan(self.plan.radix, reverse=self.reverse)
        size = arrays[0].shape[self.axis]
        block_length = self.plan.block_length(size)
        if block_length is not None:
            return self._run_in_blocks(join, fill, arrays, block_length, spacing)

        def join_one_pass(*arrays: Array, offsets: Sequence[int]) -> Array:
            shifted = [self._shift_all(arrays, offset, fill) for offset in offsets]
            return join(*arrays, shifted=shifted, offsets=[spacing * offset for offset in offsets])

        x, *extra_args = arrays
        for offsets in self.plan.pass_distances(size):
            kernel = functools.partial(join_one_pass, offsets=offsets)
            x = materialise(self.plan.barrier, kernel, x, *extra_args)
        return x

    def _shift_all(self, arrays: Sequence[Array], offset: int, fill: ArrayLike) -> list[Array]:
        fills = [fill, *[0] * (len(arrays) - 1)]
        return [self.shift(x, offset, fill) for x, fill in zip(arrays, fills, strict=True)]

    def _run_in_blocks(
        self,
        join: Callable[..., Array],
        fill: ArrayLike,
        arrays: Sequence[Array],
        block_length: int,
        spacing: int,
    ) -> Array:
        """`run` in blocks of `block_length` elements; a shorter last block is padded."""
        axis, shape = self.axis, arrays[0].shape
        num_blocks = -(-shape[axis] // block_length)

        def split_into_blocks(x: Array, fill: ArrayLike) -> Array:
            padding = (0, num_blocks * block_length - shape[axis], 0)
            block_shape = (*x.shape[:axis], num_blocks, block_length, *x.shape[axis + 1 :])
            return lax.reshape(slices.pad(x, [axis], [padding], fill), block_shape)

        x, *extra_args = arrays
        args = [split_into_blocks(x, fill), *[split_into_blocks(each, 0) for each in extra_args]]
        scan_of_blocks = dataclasses.replace(self, axis=axis + 1)
        args[0] = scan_of_blocks.run(join, fill, *args, spacing=spacing)
        end = 0 if self.reverse else block_length - 1
        totals = [lax.index_in_dim(each, end, axis + 1, keepdims=False) for each in args]
        totals[0] = self.run(join, fill, *totals, spacing=spacing * block_length)
        steps = int32_iota(block_length)
        steps = block_length - steps if self.reverse else steps + 1
        distances = slices.reshape_along_axis(steps, axis + 1, len(shape) + 1)

        def join_earlier_totals(*arrays: Array) -> Array:
            args = arrays[: len(arrays) // 2]
            totals = [lax.expand_dims(each, [axis + 1]) for each in arrays[len(args) :]]
            shifted = [*map(slices.broadcast_like, totals, args)]
            y = join(*args, shifted=[shifted], offsets=[spacing * distances.astype(np.int32)])
            return lax.slice_in_dim(lax.collapse(y, axis, axis + 2), 0, shape[axis], axis=axis)

        earlier_totals = self._shift_all(totals, 1, fill)
        return materialise(self.plan.barrier, join_earlier_totals, *args, *earlier_totals)


def _is_in_episode(num_earlier: Array, offset: int | Array, like: Array) -> Array:
    """Mask of `like`, True where the element `offset` steps earlier is in the same episode."""
    distance = slices.broadcast_like(jnp.asarray(offset, num_earlier.dtype), num_earlier)
    return slices.broadcast_like(lax.ge(num_earlier, distance), like)


def _running_max_or_min(
    scan: Scan, x: Array, kind: Kind, fill: np.ndarray, *num_earlier: Array
) -> Array:
    """Running maximum or minimum; `fill` is the identity of the operation.

    The optional `num_earlier` limits each result to an episode: the number of earlier elements in the same episode.
    """

    def join_extrema(
        x: Array, *num_earlier: Array, shifted: ShiftedArrays, offsets: Offsets
    ) -> Array:
        terms = [other for other, *_ in shifted]
        for count in num_earlier:
            for i, (term, offset) in enumerate(zip(terms, offsets, strict=True)):
                is_reached = _is_in_episode(count, offset, term)
                terms[i] = where(is_reached, term, fill)
        return functools.reduce(lax.max if kind == "max" else lax.min, terms, x)

    return scan.run(join_extrema, fill, x, *num_earlier)


def _num_earlier_in_episode(scan: Scan, reset_mask: Array) -> Array:
    """For each element, the number of elements in the same episode that the scan visits before the element.

    An episode begins where `reset_mask` is True. A reverse scan enters an episode at the episode's last element.
    """
    is_entry = scan.shift(reset_mask, 1, True) if scan.reverse else reset_mask
    positions = full_like(reset_mask, 0, np.int32)  # sharded as the mask
    positions += lax.broadcasted_iota(np.int32, reset_mask.shape, scan.axis)
    max_index = max(reset_mask.shape[scan.axis] - 1, 0)
    origin = np.asarray(max_index if scan.reverse else 0, np.int32)
    entries = where(is_entry, positions, origin)
    starts = _running_max_or_min(scan, entries, "min" if scan.reverse else "max", origin)
    return lax.sub(starts, positions) if scan.reverse else lax.sub(positions, starts)


def _comparison_values_and_fill(x: Array, kind: Kind, plan: ScanPlan) -> tuple[Array, np.ndarray]:
    """Convert x to sort keys or to the comparison dtype, and return the identity of the operation in that dtype."""
    if not plan.uses_keys:
        return to_comparison_dtype(x), comparison_dtype_identity(x.dtype, kind)
    nan: keys.NaNPosition = "greatest" if kind == "max" else "least"
    return keys.to_sort_keys(x, nan), keys.constant_sort_key(reduction_identity(x.dtype, kind))


def running_max_or_min(x: Array, kind: Kind, scan: Scan, *reset_masks: Array) -> Array:
    """Running maximum or minimum, which restarts where the optional reset mask is True. NaN wins over every number."""
    value, fill = _comparison_values_and_fill(x, kind, scan.plan)
    num_earlier = [_num_earlier_in_episode(scan, mask) for mask in reset_masks]
    extrema = _running_max_or_min(scan, value, kind, fill, *num_earlier)
    from_comparison_values = keys.from_sort_keys if scan.plan.uses_keys else from_comparison_dtype
    return from_comparison_values(extrema, x.dtype)


def _scan_pairs(
    x: Array, kind: Kind, ties: TieOrder, scan: Scan, *num_earlier: Array
) -> tuple[Array, Array]:
    """Running maximum or minimum and the position of the selected element, scanned together."""
    max_index = max(x.shape[scan.axis] - 1, 0)
    position = full_like(x, 0, index_dtype(max_index + 1))
    position += lax.broadcasted_iota(position.dtype, x.shape, scan.axis)
    earlier_wins_ties = (ties == "first") != scan.reverse

    def join_pairs(
        pair: Any, *num_earlier: Array, shifted: Sequence[Sequence[Any]], offsets: Offsets
    ) -> Any:
        for (earlier_pair, *_), offset in zip(shifted, offsets, strict=True):
            best, challenger = to_comparison_dtype(pair[0]), to_comparison_dtype(earlier_pair[0])
            wins = challenger_wins(challenger, best, kind, "last" if earlier_wins_ties else "first")
            for count in num_earlier:
                wins = lax.bitwise_and(wins, _is_in_episode(count, offset, wins))
            pair = tuple(map(functools.partial(lax.select, wins), earlier_pair, pair))
        return pair

    arrays, plan = ((x, position), *num_earlier), scan.plan
    y, index = reduce_then_scan(
        join_pairs, None, arrays, scan.axis, plan, plan.radix, reverse=scan.reverse
    )
    return y, index


def running_select_with_index(
    x: Array, kind: Kind, ties: TieOrder, scan: Scan, *reset_masks: Array
) -> tuple[Array, Array]:
    """Running maximum or minimum, and the position of the selected element along the axis.

    If earlier elements win ties, an element takes over if it beats the previous running value. If later elements win
    ties, an element takes over if it ties with the current running value. The first visited element of an episode,
    which a reset begins, always takes over.
    If the plan reduces first, pairs of value and index are scanned instead, with the same result.
    The index is the latest position that took over, so the index does not depend on the order of joins in the scan.
    """
    num_earlier = [_num_earlier_in_episode(scan, mask) for mask in reset_masks]
    if scan.plan.reduces_first:
        return _scan_pairs(x, kind, ties, scan, *num_earlier)
    uses_keys, dtype, reverse = scan.plan.uses_keys, x.dtype, scan.reverse
    value, fill = _comparison_values_and_fill(x, kind, scan.plan)
    extrema = _running_max_or_min(scan, value, kind, fill, *num_earlier)

    def tie_zeros(value: Array) -> Array:
        return keys.tie_zero_keys(value, dtype) if uses_keys else value

    if (ties == "first") != reverse:
        previous = scan.shift(extrema, 1, fill)
        takes_over = challenger_wins(tie_zeros(value), tie_zeros(previous), kind, "first")
        for count in num_earlier:
            is_entry = slices.broadcast_like(lax.eq(count, scalar_like(count, 0)), takes_over)
            takes_over = lax.bitwise_or(takes_over, is_entry)
    else:
        takes_over = is_tied_with(tie_zeros(value), tie_zeros(extrema))
    max_index = max(x.shape[scan.axis] - 1, 0)
    positions = lax.broadcasted_iota(index_dtype(max_index + 1), x.shape, scan.axis)
    position = full_like(takes_over, 0, positions.dtype) + positions  # sharded as x
    start = np.asarray(max_index if reverse else 0, position.dtype)
    winners = where(takes_over, position, start)
    index = _running_max_or_min(scan, winners, "min" if reverse else "max", start)
    y = keys.from_sort_keys(extrema, dtype) if uses_keys else from_comparison_dtype(extrema, dtype)
    return y, index


def _zero_except_at_run_starts(x: Array, index: Array, axis: int) -> Array:
    """Replace x by 0 except at elements that begin a run, which are the elements that some output selected."""
    is_start = lax.eq(index, lax.broadcasted_iota(index.dtype, index.shape, axis))
    return slices.where_or_zero(is_start, x)


def _sums_within_runs(x: Array, index: Array, scan: Scan) -> Array:
    """For each element, sum of the element and of all earlier elements in the same run."""

    def add_in_run(x: Array, index: Array, shifted: ShiftedArrays, offsets: Offsets) -> Array:
        terms = [slices.where_or_zero(lax.eq(index, run), other) for other, run in shifted]
        return functools.reduce(lax.add, terms, x)

    return scan.run(add_in_run, 0, x, index)


def copy_along_runs(x: Array, index: Array, scan: Scan) -> Array:
    """Gather the elements of x at `index` along an axis, by copying the first element of each run along the run."""
    wide_x = x.astype(accumulator_dtype(x.dtype))
    starts = _zero_except_at_run_starts(wide_x, index, scan.axis)
    return _sums_within_runs(starts, index, scan).astype(x.dtype)


def sum_over_runs(dy: Array, index: Array, scan: Scan) -> Array:
    """Transpose of `copy_along_runs`: the first element of each run gets the sum of dy over the run, others get 0."""
    backward_scan = dataclasses.replace(scan, reverse=not scan.reverse)
    sums = _sums_within_runs(dy.astype(accumulator_dtype(dy.dtype)), index, backward_scan)
    return _zero_except_at_run_starts(sums, index, scan.axis).astype(dy.dtype)


def subtract_equal_infinities(a: Array, b: Array) -> Array:
    """`a - b`, or 0 where a equals b, including equal infinities."""
    return where(lax.eq(a, b), 0, lax.sub(a, b))


def exponentially_decayed_sums(x: Array, log_level: Array, scan: Scan) -> Array:
    """`y[i] = sum over j <= i of x[j] * exp(log_level[j] - log_level[i])`, or over j >= i in reverse.

    `log_level` must not decrease in the direction of the scan, so the weights of x are at most 1.
    """

    def add_decayed_shifted(
        x: Array, log_level: Array, shifted: ShiftedArrays, offsets: Offsets
    ) -> Array:
        total = x
        for other, other_level in shifted:
            # `Scan.shift` pads with level 0, which may be far above `log_level`: the minimum keeps exp finite.
            difference = subtract_equal_infinities(other_level, log_level)
            total = total + other * lax.exp(lax.min(difference, scalar_like(difference, 0)))
        return total

    return scan.run(add_decayed_shifted, 0, x, log_level)
