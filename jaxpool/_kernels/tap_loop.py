"""Loops over the taps of a window: a program of the same length however many there are, and a few arrays held.

Where a tap stands is computed while the loop runs. So that it is a slice without strides, each axis
of the padded input is split into rows as long as a stride:

    axis, stride 2, window 3      . 0 1 2 3 4      tap t of window o stands in row o + t // 2, at t % 2
    laid out in rows              [. 0] [1 2] [3 4]
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices

Step = Callable[[Array, Array], Array]  # (flat tap, what was found before it) -> found

UNROLLED = 4  # taps of one round of a loop: they share what is read and written of the result


def _rows(dim: Axis) -> int:
    """The rows of an axis that is laid out."""
    return dim.out + (dim.span - 1) // dim.stride


def lay_out(x: Array, window: Window, fill: np.ndarray) -> Array:
    """x with all that windows reach, `fill` beyond it, and each pooled axis as two: rows, and places in a row."""
    sides = [(dim.low, _rows(dim) * dim.stride - dim.low - dim.size, 0) for dim in window.dims]
    x = slices.pad(x, window.axes, sides, fill)
    for dim in sorted(window.dims, key=lambda dim: -dim.axis):
        sizes = (_rows(dim), dim.stride)
        x = lax.reshape(x, (*x.shape[: dim.axis], *sizes, *x.shape[dim.axis + 1 :]))
    return x


def take_back(laid: Array, window: Window) -> Array:
    """The transpose of `lay_out`."""
    for dim in sorted(window.dims, key=lambda dim: dim.axis):
        laid = lax.collapse(laid, dim.axis, dim.axis + 2)
    sides = [(-dim.low, dim.size + dim.low - _rows(dim) * dim.stride, 0) for dim in window.dims]
    return slices.pad(laid, window.axes, sides, 0)


def _row_axes(window: Window) -> list[int]:
    """The axes that hold the rows of what is laid out; the places in a row follow each."""
    return [axis + sorted(window.axes).index(axis) for axis in window.axes]


def _along(tap: Array, window: Window) -> Iterator[tuple[Axis, Array]]:
    """How far a flat tap stands from the start of its window, along each axis, the last first."""
    for dim in reversed(window.dims):
        yield dim, lax.rem(tap, np.int32(dim.window)) * np.int32(dim.dilation)
        tap = lax.div(tap, np.int32(dim.window))


def _block(laid: Array, window: Window, tap: Array) -> tuple[list[Array], list[int]]:
    """Where the elements at `tap` of all windows start in what is laid out, and the sizes of their block."""
    axes = dict(zip(window.dims, _row_axes(window), strict=True))
    starts, sizes = [np.int32(0)] * laid.ndim, list(laid.shape)
    for dim, offset in _along(tap, window):
        axis, stride = axes[dim], np.int32(dim.stride)
        starts[axis : axis + 2] = lax.div(offset, stride), lax.rem(offset, stride)
        sizes[axis : axis + 2] = dim.out, 1
    return starts, sizes


def elements(laid: Array, window: Window, tap: Array) -> Array:
    """The element at `tap` of each window of what `lay_out` gave."""
    starts, sizes = _block(laid, window, tap)
    return lax.squeeze(
        lax.dynamic_slice(laid, starts, sizes), [axis + 1 for axis in _row_axes(window)]
    )


def add_to_elements(laid: Array, window: Window, tap: Array, more: Array) -> Array:
    """`more`, a number for each window, added to the elements at `tap`."""
    starts, sizes = _block(laid, window, tap)
    more = lax.expand_dims(more, [axis + 1 for axis in _row_axes(window)])
    return lax.dynamic_update_slice(laid, lax.dynamic_slice(laid, starts, sizes) + more, starts)


def inside(like: Array, window: Window, tap: Array) -> Array:
    """Where `tap` stands on an element of the input; in the shape of `like`, the output."""
    lines = []
    for dim, offset in _along(tap, window):
        at = jnp.asarray(dim.starts(), np.int32) + offset
        lines.append(lax.bitwise_and(at >= 0, at < dim.size))
    here = slices.crossed(jnp.logical_and, lines[::-1], window.axes, like.ndim)
    return slices.broadcast_like(here, like)


def over_taps(taps: Sequence[int], step: Step, first: Array, *others: Array) -> Array:
    """What `step` finds, tap after tap, from `first` on; `others` are all arrays that it reads."""
    (first,) = vary_together([first], *others)
    table = None if range(len(taps)) == taps else np.asarray(taps, np.int32)

    def one(turn: Array, found: Array) -> Array:
        tap = turn if table is None else lax.dynamic_index_in_dim(table, turn, keepdims=False)
        return step(tap, found)

    end = np.int32(len(taps))
    found: Array = lax.fori_loop(np.int32(0), end, one, first, unroll=min(UNROLLED, len(taps)))
    return found


def sums_of_taps(count: int, part: Callable[[Array], Array], over: Sequence[int]) -> Array:
    """The sums of `part(tap)` over the axes `over`, which stay with size 1, of `count` taps along a new first axis.

    An axis at a time: XLA for CPU does not vectorise a sum over the last axis, and over the others it does.
    """

    def one(_: None, tap: Array) -> tuple[None, Array]:
        return None, added_up(part(tap), over)

    rows: Array = lax.scan(one, None, jnp.arange(count, dtype=np.int32))[1]
    return rows


def added_up(x: Array, over: Sequence[int]) -> Array:
    """The sums of x over axes, which stay with size 1."""
    major = [axis for axis in over if axis < x.ndim - 1]
    for axes in (major, [axis for axis in over if axis not in major]):
        x = jnp.sum(x, axis=tuple(axes), keepdims=True, dtype=x.dtype)
    return x
