"""Running extremes by doubling: after step k every element has seen the 2^k elements up to itself.

The running extreme keeps to one element until another takes over, so the outputs that chose an
element lie next to each other: a run that begins at that element. Sums over runs and copies along
them double in the same way, and need no more than the index. Forward, reach grows towards the
start of the axis; in reverse, towards its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from jax import Array, lax

from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order, decode, decoded_losing, encode, level, wins
from jaxpool._kernels.dtypes import Kind, accumulator, index_dtype
from jaxpool._kernels.keep import keep
from jaxpool._plan.problem import Keep


def _shift(x: Array, axis: int, far: int, fill: object) -> Array:
    """Element i is what was element `i - far`."""
    return slices.pad(x, [axis], [(far, -far, 0)], fill)


def _double(
    step: Callable[..., Array], x: Array, axis: int, reverse: bool, by: Keep, *given: Array
) -> Array:
    """`step(x, *given, far=far)` for 1, 2, 4, ... to less than the size of the axis; negative in reverse."""
    for bit in range(max(x.shape[axis] - 1, 0).bit_length()):
        far = -(1 << bit) if reverse else 1 << bit
        x = keep(by, functools.partial(step, far=far), x, *given)
    return x


def _run(x: Array, axis: int, kind: Kind, fill: np.ndarray, reverse: bool, by: Keep) -> Array:
    """The extreme of all elements up to each one, `fill` losing to all."""
    join = lax.max if kind == "max" else lax.min
    return _double(lambda x, far: join(x, _shift(x, axis, far, fill)), x, axis, reverse, by)


def running(x: Array, axis: int, kind: Kind, reverse: bool, by: Keep) -> Array:
    """The extreme of all elements up to each one; NaN beats every number."""
    fill = decoded_losing(x.dtype, kind)
    return encode(_run(decode(x), axis, kind, fill, reverse, by), x.dtype)


def running_select(
    x: Array, axis: int, kind: Kind, ties: Order, reverse: bool, by: Keep
) -> tuple[Array, Array]:
    """The running extreme and the position of the element it is, in the order of the axis.

    An element takes over if it beats what ran before it or, if later ones win ties, if it is level
    with what runs at it. The index is the latest position that took over: by value alone, whatever
    the tree of the scan.
    """
    value, fill = decode(x), decoded_losing(x.dtype, kind)
    best = _run(value, axis, kind, fill, reverse, by)
    if (ties == "first") != reverse:
        before = _shift(best, axis, -1 if reverse else 1, fill)
        takes_over = wins(value, before, kind, "first")
    else:
        takes_over = level(value, best)
    last = max(x.shape[axis] - 1, 0)
    places = lax.broadcasted_iota(index_dtype(last + 1), x.shape, axis)
    position = lax.full_like(takes_over, 0, places.dtype) + places  # sharded as x
    start = np.asarray(last if reverse else 0, position.dtype)
    taken = lax.select(takes_over, position, lax.full_like(position, start))
    index = _run(taken, axis, "min" if reverse else "max", start, reverse, by)
    return encode(best, x.dtype), index


def _at_begins(x: Array, index: Array, axis: int) -> Array:
    """x where a run begins, at the elements that were chosen; zeros elsewhere."""
    begins = lax.eq(index, lax.broadcasted_iota(index.dtype, index.shape, axis))
    return lax.select(begins, x, lax.full_like(x, 0))


def _sums(x: Array, index: Array, axis: int, reverse: bool, by: Keep) -> Array:
    """The sum over each element and those before it in its run."""

    def step(x: Array, index: Array, far: int) -> Array:
        same = lax.eq(index, _shift(index, axis, far, 0))
        other = _shift(x, axis, far, 0)
        return x + lax.select(same, other, lax.full_like(other, 0))

    return _double(step, x, axis, reverse, by, index)


def run_copies(x: Array, index: Array, axis: int, reverse: bool, by: Keep) -> Array:
    """The elements of x at `index`."""
    first = _at_begins(x.astype(accumulator(x.dtype)), index, axis)
    return _sums(first, index, axis, reverse, by).astype(x.dtype)


def run_sums(dy: Array, index: Array, axis: int, reverse: bool, by: Keep) -> Array:
    """The transpose of `run_copies`: each chosen element gets the sum over its run, zeros elsewhere."""
    sums = _sums(dy.astype(accumulator(dy.dtype)), index, axis, not reverse, by)
    return _at_begins(sums, index, axis).astype(dy.dtype)
