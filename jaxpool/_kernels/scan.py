"""Running maxima and minima by passes: after pass k, each element covers the `ways`^k elements up to itself.

The outputs that selected one element are adjacent: they form a run that begins at this element. Sums over runs and
copies along runs use the same passes and need only the index. A forward scan extends towards the start of the axis,
a reverse scan towards its end.

The plan may cut the axis into blocks, which are scanned separately. The totals of the blocks form a shorter axis,
which is scanned in the same way. A last pass joins each element with the total of all earlier blocks:

    1 2 0 | 1 3 1 | 0 2 1      maxima 1 2 2 | 1 3 3 | 0 2 2, of ends 2 3 3, joined 1 2 2 | 2 3 3 | 3 3 3
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order, decode, decoded_identity_of, encode, replaces, ties_with
from jaxpool._kernels.dtypes import DType, Kind, accumulator, identity_of, index_dtype, is_float
from jaxpool._kernels.keys import (
    NaN,
    from_keys,
    is_negative,
    key_of,
    to_keys,
    zeros_level,
    zeros_signed,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import int32_range
from jaxpool._plan.scan import ScanPlan

Others = Sequence[tuple[Array, ...]]


def _shift(x: Array, axis: int, far: int, fill: object) -> Array:
    """Shift x along an axis: element i of the result is element `i - far` of x."""
    return slices.pad(x, [axis], [(far, -far, 0)], fill)


def _scan(
    join: Callable[..., Array],
    x: Array,
    fill: object,
    axis: int,
    reverse: bool,
    plan: ScanPlan,
    *extra_args: Array,
    apart: int = 1,
) -> Array:
    """Join every element with all elements before it, by `join(x, *extra_args, others=..., fars=...)`.

    Each of `others` is `(x, *extra_args)` at the distance in `fars`. Adjacent elements of x are `apart` elements
    from each other in the scanned array.
    """
    size = x.shape[axis]
    length = plan.block(size)
    if length is not None:
        return _by_blocks(join, x, fill, axis, reverse, plan, length, *extra_args, apart=apart)

    def joined(x: Array, *extra_args: Array, fars: Sequence[int]) -> Array:
        signed = [-far if reverse else far for far in fars]
        others = [
            (_shift(x, axis, far, fill), *[_shift(each, axis, far, 0) for each in extra_args])
            for far in signed
        ]
        return join(x, *extra_args, others=others, fars=[apart * far for far in fars])

    for fars in plan.passes(size):
        x = materialise(plan.barrier, functools.partial(joined, fars=fars), x, *extra_args)
    return x


def _by_blocks(
    join: Callable[..., Array],
    x: Array,
    fill: object,
    axis: int,
    reverse: bool,
    plan: ScanPlan,
    length: int,
    *extra_args: Array,
    apart: int,
) -> Array:
    """`_scan` in blocks of `length`; a partial last block is padded."""
    size = x.shape[axis]
    count = -(-size // length)

    def cut(x: Array, fill: object) -> Array:
        whole = slices.pad(x, [axis], [(0, count * length - size, 0)], fill)
        return lax.reshape(whole, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))

    blocks, cut_args = cut(x, fill), [cut(each, 0) for each in extra_args]
    within = _scan(join, blocks, fill, axis + 1, reverse, plan, *cut_args, apart=apart)
    end = 0 if reverse else length - 1
    ends = [lax.index_in_dim(each, end, axis + 1, keepdims=False) for each in (within, *cut_args)]
    totals = _scan(join, ends[0], fill, axis, reverse, plan, *ends[1:], apart=apart * length)

    step = -1 if reverse else 1
    before = [_shift(totals, axis, step, fill), *[_shift(each, axis, step, 0) for each in ends[1:]]]
    distance = length - int32_range(length) if reverse else int32_range(length) + 1
    distances = slices.along(distance, axis + 1, x.ndim + 1)

    def with_past(within: Array, *arrays: Array) -> Array:
        here = (within, *arrays[: len(extra_args)])
        others = [
            slices.broadcast_like(lax.expand_dims(each, [axis + 1]), like)
            for each, like in zip(arrays[len(extra_args) :], here, strict=True)
        ]
        y = join(*here, others=[tuple(others)], fars=[apart * distances.astype(np.int32)])
        y = lax.reshape(y, (*x.shape[:axis], count * length, *x.shape[axis + 1 :]))
        return lax.slice_in_dim(y, 0, size, axis=axis)

    return materialise(plan.barrier, with_past, within, *cut_args, *before)


def _run(
    x: Array,
    axis: int,
    kind: Kind,
    fill: np.ndarray,
    reverse: bool,
    plan: ScanPlan,
    *behind: Array,
) -> Array:
    """Running maximum or minimum; `fill` is the identity.

    `behind` is the number of earlier elements in the episode of each element. It limits the result to the episode.
    """
    best = lax.max if kind == "max" else lax.min

    def join(x: Array, *behind: Array, others: Others, fars: Sequence[Any]) -> Array:
        terms = [other for other, *_ in others]
        for count in behind:
            reached = [
                lax.ge(count, slices.broadcast_like(jnp.asarray(far, count.dtype), count))
                for far in fars
            ]
            terms = [
                lax.select(slices.broadcast_like(seen, term), term, lax.full_like(term, fill))
                for seen, term in zip(reached, terms, strict=True)
            ]
        return functools.reduce(best, terms, x)

    return _scan(join, x, fill, axis, reverse, plan, *behind)


def elements_behind(reset: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Number of elements of its episode that the scan visits before each element.

    An episode begins where `reset` is True. A reverse scan enters it at its end, directly before the next True.
    """
    last = max(reset.shape[axis] - 1, 0)
    enters = _shift(reset, axis, -1, True) if reverse else reset
    places = lax.broadcasted_iota(np.int32, reset.shape, axis)
    end = np.asarray(last if reverse else 0, np.int32)
    entered = lax.select(enters, places, lax.full_like(places, end))
    begins = _run(entered, axis, "min" if reverse else "max", end, reverse, plan)
    return lax.sub(begins, places) if reverse else lax.sub(places, begins)


def _read(x: Array, kind: Kind, plan: ScanPlan) -> tuple[Array, np.ndarray]:
    """x converted for comparisons, and the identity."""
    if not plan.keys:
        return decode(x), decoded_identity_of(x.dtype, kind)
    nan: NaN = "greatest" if kind == "max" else "least"
    return to_keys(x, nan), key_of(identity_of(x.dtype, kind), nan)


def _written(best: Array, dtype: DType, plan: ScanPlan) -> Array:
    return from_keys(best, dtype) if plan.keys else encode(best, dtype)


def running(x: Array, axis: int, kind: Kind, reverse: bool, plan: ScanPlan, *reset: Array) -> Array:
    """Running maximum or minimum, restarted where `reset` is True. NaN wins over every number."""
    value, fill = _read(x, kind, plan)
    behind = [elements_behind(mask, axis, reverse, plan) for mask in reset]
    return _written(_run(value, axis, kind, fill, reverse, plan, *behind), x.dtype, plan)


def running_select(
    x: Array, axis: int, kind: Kind, ties: Order, reverse: bool, plan: ScanPlan, *reset: Array
) -> tuple[Array, Array]:
    """Running maximum or minimum, and the position of the selected element along the axis.

    An element takes over if it beats the previous running value, or ties with the current running value if later
    elements win ties. The first element of an episode always takes over. The index is the latest position that took
    over, so it does not depend on the tree of the scan. The scanned positions carry the sign of their elements,
    so that a zero gets the sign of the selected zero.
    """
    value, fill = _read(x, kind, plan)
    behind = [elements_behind(mask, axis, reverse, plan) for mask in reset]
    best = _run(value, axis, kind, fill, reverse, plan, *behind)
    tie_key = functools.partial(zeros_level, dtype=x.dtype) if plan.keys else lambda each: each
    if (ties == "first") != reverse:
        before = _shift(best, axis, -1 if reverse else 1, fill)
        takes_over = replaces(tie_key(value), tie_key(before), kind, "first")
        for count in behind:
            enters = slices.broadcast_like(lax.eq(count, lax.full_like(count, 0)), takes_over)
            takes_over = lax.bitwise_or(takes_over, enters)
    else:
        takes_over = ties_with(tie_key(value), tie_key(best))
    last = max(x.shape[axis] - 1, 0)
    signed = is_float(x.dtype)
    places = lax.broadcasted_iota(index_dtype((last + 1) << signed), x.shape, axis)
    position = lax.full_like(takes_over, 0, places.dtype) + places  # sharded as x
    start = np.asarray(last if reverse else 0, position.dtype)
    if signed:
        two, negative = np.asarray(2, position.dtype), is_negative(x).astype(position.dtype)
        position, start = position * two + negative, start * two + np.asarray(reverse, two.dtype)
    taken = lax.select(takes_over, position, lax.full_like(position, start))
    index = _run(taken, axis, "min" if reverse else "max", start, reverse, plan)
    y = _written(best, x.dtype, plan)
    if not signed:
        return y, index
    one = lax.full_like(index, 1)
    y = zeros_signed(y, lax.eq(lax.bitwise_and(index, one), one))
    return y, lax.shift_right_logical(index, one).astype(index_dtype(last + 1))


def _at_begins(x: Array, index: Array, axis: int) -> Array:
    """x at the elements that begin a run, zeros elsewhere."""
    begins = lax.eq(index, lax.broadcasted_iota(index.dtype, index.shape, axis))
    return slices.where_or_zero(begins, x)


def _sums(x: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Sum over each element and the earlier elements of its run."""

    def join(x: Array, index: Array, others: Others, fars: Sequence[Any]) -> Array:
        terms = [slices.where_or_zero(lax.eq(index, run), other) for other, run in others]
        return functools.reduce(lax.add, terms, x)

    return _scan(join, x, 0, axis, reverse, plan, index)


def run_copies(x: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Gather the elements of x at `index`, by copies along runs."""
    first = _at_begins(x.astype(accumulator(x.dtype)), index, axis)
    return _sums(first, index, axis, reverse, plan).astype(x.dtype)


def run_sums(dy: Array, index: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """Transpose of `run_copies`: each selected element gets the sum over its run, zeros elsewhere."""
    sums = _sums(dy.astype(accumulator(dy.dtype)), index, axis, not reverse, plan)
    return _at_begins(sums, index, axis).astype(dy.dtype)


def level_difference(a: Array, b: Array) -> Array:
    """`a - b`, or 0 where a equals b, including equal infinities."""
    return lax.select(lax.eq(a, b), lax.full_like(a, 0), lax.sub(a, b))


def fading_sums(x: Array, level: Array, axis: int, reverse: bool, plan: ScanPlan) -> Array:
    """`y[i] = sum over j <= i of x[j] * exp(level[j] - level[i])`, or over j >= i in reverse. Weights are at most 1."""

    def join(x: Array, level: Array, others: Others, fars: Sequence[Any]) -> Array:
        total = x
        for other, before in others:
            # `_shift` fills in zeros with level 0, far from other levels: their weight must be finite.
            difference = level_difference(before, level)
            total = total + other * lax.exp(lax.min(difference, lax.full_like(difference, 0)))
        return total

    return _scan(join, x, 0, axis, reverse, plan, level)
