"""Running extremes by doubling: after step k every element has seen the 2^k elements up to itself.

The running extreme keeps to one element until another takes over, so the outputs that chose an
element lie next to each other: a run that begins at that element. Sums over runs and copies along
them double in the same way, and need no more than the index. Forward, reach grows towards the
start of the axis; in reverse, towards its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

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


def _distances(x: Array, axis: int, reverse: bool) -> Iterator[int]:
    """1, 2, 4, ... to less than the size of the axis; negative in reverse."""
    for step in range((x.shape[axis] - 1).bit_length() if x.shape[axis] else 0):
        yield -(1 << step) if reverse else 1 << step


def _run(
    x: Array, axis: int, join: Callable[..., Array], fill: object, reverse: bool, by: Keep
) -> Array:
    """`join` over all elements up to each one; idempotent, with `fill` its identity."""
    for far in _distances(x, axis, reverse):

        def step(x: Array, far: int = far) -> Array:
            return join(x, _shift(x, axis, far, fill))

        x = keep(by, step, x)
    return x


def _running(x: Array, axis: int, kind: Kind, reverse: bool, by: Keep) -> tuple[Array, np.ndarray]:
    """The running extreme in the type in which it is compared, and what loses to all of it."""
    fill = decoded_losing(x.dtype, kind)
    return _run(decode(x), axis, lax.max if kind == "max" else lax.min, fill, reverse, by), fill


def running(x: Array, axis: int, kind: Kind, reverse: bool, by: Keep) -> Array:
    """The extreme of all elements up to each one; NaN beats every number."""
    return encode(_running(x, axis, kind, reverse, by)[0], x.dtype)


def running_select(
    x: Array, axis: int, kind: Kind, ties: Order, reverse: bool, by: Keep
) -> tuple[Array, Array]:
    """The running extreme and the position of the element it is, in the order of the axis.

    An element takes over if it beats what ran before it or, if later ones win ties, if it is level
    with what runs at it. The index is the latest position that took over: by value alone, whatever
    the tree of the scan.
    """
    value = decode(x)
    best, fill = _running(x, axis, kind, reverse, by)
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
    index = _run(taken, axis, lax.min if reverse else lax.max, start, reverse, by)
    return encode(best, x.dtype), index


def _begins(index: Array, axis: int) -> Array:
    """Where a run begins: at the elements that were chosen."""
    return lax.eq(index, lax.broadcasted_iota(index.dtype, index.shape, axis))


def _add_within(x: Array, index: Array, axis: int, far: int) -> Array:
    """x, with element `i - far` added to element i of the same run."""
    same = lax.eq(index, _shift(index, axis, far, 0))
    other = _shift(x, axis, far, 0)
    return x + lax.select(same, other, lax.full_like(other, 0))


def run_copies(x: Array, index: Array, axis: int, reverse: bool, by: Keep) -> Array:
    """The elements of x at `index`."""
    wide = x.astype(accumulator(x.dtype))
    wide = lax.select(_begins(index, axis), wide, lax.full_like(wide, 0))
    for far in _distances(x, axis, reverse):
        wide = keep(by, functools.partial(_add_within, axis=axis, far=far), wide, index)
    return wide.astype(x.dtype)


def run_sums(dy: Array, index: Array, axis: int, reverse: bool, by: Keep) -> Array:
    """The transpose of `run_copies`: each chosen element gets the sum over its run, zeros elsewhere."""
    wide = dy.astype(accumulator(dy.dtype))
    for far in _distances(dy, axis, reverse):
        wide = keep(by, functools.partial(_add_within, axis=axis, far=-far), wide, index)
    return lax.select(_begins(index, axis), wide, lax.full_like(wide, 0)).astype(dy.dtype)
