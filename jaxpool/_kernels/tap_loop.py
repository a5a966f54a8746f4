"""Loops over the taps of a window: a program of the same length however many there are, and a few arrays held.

Where a tap stands is computed while the loop runs. So that it is a slice without strides, each axis
of the padded input is split into blocks as long as a stride:

    axis, stride 2, window 3      . 0 1 2 3 4      tap t of window o stands in block o + t // 2, at t % 2
    in blocks                     [. 0] [1 2] [3 4]

Seen from the elements, at place p of block q stand the taps p, p + 2, ... of the windows q, q - 1, ...
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.taps import along_axes
from jaxpool._plan.others import taps_of_a_round

Step = Callable[[Array, Array], Array]  # (flat tap, what was found before it) -> found


def _row_axes(window: Window) -> list[int]:
    """The axes along which blocks lie; the places of a block follow each."""
    return [axis + sorted(window.axes).index(axis) for axis in window.axes]


def _place_axes(window: Window) -> list[int]:
    return [axis + 1 for axis in _row_axes(window)]


def _in_blocks(
    x: Array, window: Window, lows: Sequence[int], sizes: Sequence[tuple[int, int]], fill: Any
) -> Array:
    """x after `lows` positions of padding, each pooled axis as two of `sizes`: blocks, and the places of each."""
    ends = [
        (low, rows * places - low - x.shape[axis], 0)
        for axis, low, (rows, places) in zip(window.axes, lows, sizes, strict=True)
    ]
    x = slices.pad(x, window.axes, ends, fill)
    for axis, pair in sorted(zip(window.axes, sizes, strict=True), reverse=True):
        x = lax.reshape(x, (*x.shape[:axis], *pair, *x.shape[axis + 1 :]))
    return x


def in_strides(x: Array, window: Window, fill: Any) -> Array:
    """x with all that windows reach, `fill` beyond it, in blocks as long as the strides."""
    sizes = [(dim.out + (dim.span - 1) // dim.stride, dim.stride) for dim in window.dims]
    return _in_blocks(x, window, [dim.low for dim in window.dims], sizes, fill)


def elements(laid: Array, window: Window, tap: Any) -> Array:
    """The element at `tap` of each window, of what `in_strides` gave."""
    axes = dict(zip(window.dims, _row_axes(window), strict=True))
    starts: list[Any] = [np.int32(0)] * laid.ndim
    sizes = list(laid.shape)
    for dim, along in zip(window.dims, along_axes(window, tap), strict=True):
        axis, stride, offset = axes[dim], np.int32(dim.stride), along * np.int32(dim.dilation)
        starts[axis : axis + 2] = lax.div(offset, stride), lax.rem(offset, stride)
        sizes[axis : axis + 2] = dim.out, 1
    return lax.squeeze(lax.dynamic_slice(laid, starts, sizes), _place_axes(window))


def over_taps(taps: Sequence[int], step: Step, first: Array, *others: Array) -> Array:
    """What `step` finds, tap after tap, from `first` on; `others` are all arrays that it reads."""
    (first,) = vary_together([first], *others)
    table = None if range(len(taps)) == taps else np.asarray(taps, np.int32)

    def one(turn: Array, found: Array) -> Array:
        turn = turn.astype(np.int32)
        tap = turn if table is None else lax.dynamic_index_in_dim(table, turn, keepdims=False)
        return step(tap, found)

    end = np.int32(len(taps))
    found: Array = lax.fori_loop(
        np.int32(0), end, one, first, unroll=taps_of_a_round(len(taps), back=False)
    )
    return found


def sums_of_taps(count: int, part: Callable[[Array], Array], over: Sequence[int]) -> Array:
    """The sums of `part(tap)` over the axes `over`, which stay with size 1, of `count` taps along a new first axis."""

    def one(_: None, tap: Array) -> tuple[None, Array]:
        term = part(tap)
        return None, jnp.sum(term, axis=tuple(over), keepdims=True, dtype=term.dtype)

    rows: Array = lax.scan(one, None, jnp.arange(count, dtype=np.int32))[1]
    return rows


@dataclasses.dataclass(frozen=True)
class _Back:
    """An axis seen from its elements, which meet another window each turn.

    Without dilation a turn is a block of taps, one for each place. With dilation it is one tap, and windows are
    spread to where they start.
    """

    dim: Axis

    @property
    def block(self) -> int:
        return self.dim.stride if self.dim.dilation == 1 else 1

    @property
    def gap(self) -> int:
        """Rows from a window to the next."""
        return self.dim.stride // self.block

    @property
    def turns(self) -> int:
        return -(-self.dim.window // self.block)

    @property
    def reach(self) -> int:
        """Rows between the first turn and the last."""
        return (self.turns - 1) * self.dim.dilation

    @property
    def rows(self) -> int:
        return (self.dim.out - 1) * self.gap + 1 + self.reach


def to_elements(
    window: Window,
    term: Callable[..., Array],
    parts: Sequence[Array],
    x: Array | None = None,
    kernel: Array | None = None,
) -> Array:
    """The sum of `term(tap, real, *parts)` over the windows that cover each element of the input.

    `parts` have an element for each window, and the first is zero where no windows are, as the term is then.
    `real` is None, or False where an element is none of a window's taps. Given x and a kernel, with the
    taps along its first axis, what they have there follows after the parts.
    """
    backs = [_Back(dim) for dim in window.dims]
    ends = [(back.reach, back.reach, back.gap - 1) for back in backs]
    parts = [slices.pad(part, window.axes, ends, 0) for part in parts]
    sizes = [(back.rows, back.block) for back in backs]
    whole = [math.prod(pair) for pair in sizes]
    empty = slices.zeros_like(parts[0], window.axes, whole)
    none = [0] * len(backs)
    first, reads = _in_blocks(empty, window, none, sizes, 0), [*parts]
    if x is not None and kernel is not None:
        x = _in_blocks(x, window, [dim.low for dim in window.dims], sizes, 0)
        kernel = _as_image(kernel, window)
        blocks = [(back.turns, back.block) for back in backs]
        kernel = _in_blocks(kernel, window, none, blocks, 0)
        reads += [x, kernel]
    (first,) = vary_together([first], *reads)

    def one(turn: Array, found: Array) -> Array:
        turn = turn.astype(np.int32)
        starts: list[Any] = [np.int32(0)] * parts[0].ndim
        rows: list[Any] = [np.int32(0)] * found.ndim
        cut = list(parts[0].shape)
        tap: Any = np.int32(0)
        size, real = 1, []
        for back, axis in zip(backs[::-1], _row_axes(window)[::-1], strict=True):
            along = lax.rem(turn, np.int32(back.turns))
            turn = lax.div(turn, np.int32(back.turns))
            dim = back.dim
            starts[dim.axis] = np.int32(back.reach) - along * np.int32(dim.dilation)
            cut[dim.axis] = back.rows
            rows[axis] = along
            at = along * np.int32(back.block)
            if back.block > 1:
                places = np.arange(back.block, dtype=np.int32)
                at = at + slices.along(places, axis + 1, found.ndim)
            if dim.window % back.block:
                real.append(at < dim.window)
            tap, size = tap + at * np.int32(size), size * dim.window
        read = [lax.dynamic_slice(part, starts, cut) for part in parts]
        read = [lax.expand_dims(part, _place_axes(window)) for part in read]
        if x is not None and kernel is not None:
            ones = dict.fromkeys(_row_axes(window), 1)
            row = [ones.get(axis, n) for axis, n in enumerate(kernel.shape)]
            read += [x, lax.dynamic_slice(kernel, rows, row)]
        read = [slices.broadcast_like(each, found) for each in read]
        here = functools.reduce(jnp.logical_and, real) if real else None
        here = None if here is None else slices.broadcast_like(here, found)
        return found + term(slices.broadcast_like(tap, found), here, *read)

    turns = math.prod(back.turns for back in backs)
    unroll = taps_of_a_round(turns, back=True)
    found: Array = lax.fori_loop(np.int32(0), np.int32(turns), one, first, unroll=unroll)
    for axis in sorted(window.axes):
        found = lax.collapse(found, axis, axis + 2)
    pairs = zip(window.dims, whole, strict=True)
    crop = [(-dim.low, dim.low + dim.size - size, 0) for dim, size in pairs]
    return slices.pad(found, window.axes, crop, 0)


def _as_image(kernel: Array, window: Window) -> Array:
    """The taps along the first axis as the pooled axes of what follows, which are of size 1."""
    kernel = lax.squeeze(kernel, [axis + 1 for axis in window.axes])
    kernel = lax.reshape(kernel, (*window.window_shape, *kernel.shape[1:]))
    return jnp.moveaxis(kernel, range(len(window.axes)), window.axes)
