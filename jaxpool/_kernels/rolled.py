"""Windows walked tap by tap in a loop that the program holds once: it does not grow with them, and holds a few arrays.

For ranks, draws and grey morphology of large windows, whose loops always run: `tap_loop.py` is for those that do not.
What is read lies in planes, one for each place that a stride steps over. So a tap of all windows is one
block of a plane, and what reads it runs over neighbours:

    stride 2, window 3    elements    0 1 2 3 4 5 6
                          plane 0     0 2 4 6            tap 0 from 0 on, tap 2 from 1 on
                          plane 1     1 3 5 .            tap 1 from 0 on
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import accumulator, cast, index_dtype
from jaxpool._plan.others import turns

State = tuple[Array, ...]
Join = Callable[[State, Array, Sequence[Array]], State]


@dataclasses.dataclass(frozen=True)
class Walk:
    """A walk over the taps of a window: over all, or over `taps`, flat and in the order in which they are joined.

    `joined`: what lies next to each other at a position of the minor pooled axis makes one axis with
    that, in planes and in what is `flat`. Short rows are then parts of longer ones, which vectorise.
    `weighted`: each tap has a weight that is read beside its elements.
    """

    window: Window
    joined: bool = False
    taps: Sequence[int] | None = None
    weighted: bool = False

    @property
    def numbers(self) -> np.ndarray:
        """The flat taps, in their order."""
        return np.arange(self.window.size) if self.taps is None else np.asarray(self.taps)

    @property
    def _lengths(self) -> list[int]:
        """How many positions planes have along each pooled axis."""
        return [-(-dim.needed // dim.stride) for dim in self.window.dims]

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each tap its plane, and the position there of the first window along each pooled axis."""
        along = np.unravel_index(self.numbers, self.window.window_shape)
        pairs = [*zip(along, self.window.dims, strict=True)]
        turns = [tap * dim.dilation % dim.stride for tap, dim in pairs]
        starts = [tap * dim.dilation // dim.stride for tap, dim in pairs]
        strides = [dim.stride for dim in self.window.dims]
        return np.ravel_multi_index(turns, strides), np.stack(starts, 1)

    def flat(self, y: Array) -> Array:
        """An array of the output, what is joined as one axis."""
        return lax.collapse(y, max(self.window.axes)) if self.joined else y

    def _units(self, shape: Sequence[Any]) -> list[int]:
        """How many places of a plane a position takes along each pooled axis."""
        minor = max(self.window.axes)
        row = math.prod(shape[minor + 1 :]) if self.joined else 1
        return [row if axis == minor else 1 for axis in self.window.axes]

    def _apart(self, shape: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The shape with the places between windows as axes of their own, and the order in which these come first."""
        sizes: list[Any] = []
        first, rest = {}, []
        strides = {dim.axis: dim.stride for dim in self.window.dims}
        for axis, size in enumerate(shape):
            rest.append(len(sizes))
            sizes.append(size // strides.get(axis, 1))
            if axis in strides:
                first[axis] = len(sizes)
                sizes.append(strides[axis])
        return tuple(sizes), (*(first[axis] for axis in self.window.axes), *rest)

    def planes(self, x: Array, fill: Any) -> Array:
        """The planes of x along a first axis; padding holds `fill`."""
        dims, lengths = self.window.dims, self._lengths
        whole = [n * dim.stride for dim, n in zip(dims, lengths, strict=True)]
        sides = [(d.low, n - d.low - d.size, 0) for d, n in zip(dims, whole, strict=True)]
        x = slices.pad(x, self.window.axes, sides, fill)
        shape, order = self._apart(x.shape)
        x = lax.collapse(lax.transpose(lax.reshape(x, shape), order), 0, len(dims))
        return lax.collapse(x, max(self.window.axes) + 1) if self.joined else x

    def from_planes(self, x: Array, shape: Sequence[Any]) -> Array:
        """The array of `shape` of which x are the planes."""
        dims, padded = self.window.dims, [*shape]
        for dim, n in zip(dims, self._lengths, strict=True):
            padded[dim.axis] = n * dim.stride
        apart, order = self._apart(padded)
        x = lax.reshape(x, tuple(apart[axis] for axis in order))
        x = lax.transpose(x, [order.index(axis) for axis in range(len(order))])
        sides = [(-dim.low, dim.low + dim.size - padded[dim.axis], 0) for dim in dims]
        return slices.pad(lax.reshape(x, tuple(padded)), self.window.axes, sides, 0)

    def fold(
        self, join: Join, first: Sequence[Array], xs: Sequence[Array], shape: Any, *others: Array
    ) -> State:
        """`join(state, tap, blocks)` over the taps: a block, flat, of each of xs, planes of an array of `shape`.

        `others` are all arrays that `join` reads beside.
        """
        units = self._units(shape)
        plane, starts = self._places()
        sizes = [n * unit for n, unit in zip(self.window.output_shape, units, strict=True)]

        def one(state: State, tap: Array, plane: Array, *begin: Array) -> State:
            return join(state, tap, [self._block(x, plane, begin, sizes) for x in xs])

        table = np.column_stack([self.numbers, plane, starts * units])
        first = vary_together(first, *xs, *others)
        return self._rolled(one, first, jnp.asarray(table, np.int32))

    def at(self, planes: Array, tap: Array) -> Array:
        """The elements at one tap, which may be traced, of all windows; nothing of it is joined."""
        table = jnp.asarray(np.column_stack(self._places()), np.int32)
        plane, *begin = lax.dynamic_index_in_dim(table, tap, keepdims=False)
        return self._block(planes, plane, begin, self.window.output_shape)

    def spread(
        self, term: Callable[..., Array], ys: Sequence[Array], *own: Array, dtype: Any
    ) -> Array:
        """The sum of `term(tap, *blocks, *own)` over the windows that cover an element, as planes.

        A block of each of ys says what the window has at whose `tap` each element is, or 0 where
        there is none; `own`, planes, are what the elements have.
        """
        dims, units, lengths = self.window.dims, self._units(ys[0].shape), self._lengths
        plane, starts = self._places()
        reach, count = starts.max(0), math.prod(dim.stride for dim in dims)
        table = np.zeros((count, int(np.bincount(plane).max()), 1 + len(dims)), np.int32)
        table[..., 0] = self.window.size  # a row more than a plane needs is of no tap
        for which in range(count):
            (ours,) = np.nonzero(plane == which)
            rows = [self.numbers[ours], (reach - starts[ours]) * units]
            table[which, : len(ours)] = np.column_stack(rows)
        uneven = bool((table[..., 0] == self.window.size).any())
        limits = zip(dims, lengths, reach.tolist(), strict=True)
        sides = [(far, n - dim.out, 0) for dim, n, far in limits]
        flat = [self.flat(slices.pad(y, self.window.axes, sides, 0)) for y in ys]
        around = [lax.expand_dims(y, (0,)) for y in flat]
        sizes = [n * unit for n, unit in zip(lengths, units, strict=True)]

        def of_plane(given: Any) -> Array:
            table, *own = given

            def one(state: State, tap: Array, *begin: Array) -> State:
                blocks = [self._block(y, np.int32(0), begin, sizes) for y in around]
                part = term(tap, *blocks, *own)
                if uneven:
                    part = lax.select(
                        tap < np.int32(self.window.size), part, lax.full_like(part, 0)
                    )
                return (state[0] + part,)

            nothing = [np.int32(0)] * len(dims)
            zeros = lax.full_like(self._block(around[0], np.int32(0), nothing, sizes), 0, dtype)
            return self._rolled(one, vary_together([zeros], *around, *own), table)[0]

        if count > 1:
            return lax.map(of_plane, (jnp.asarray(table), *own))
        one_plane = [lax.squeeze(x, (0,)) for x in (jnp.asarray(table), *own)]
        return lax.expand_dims(of_plane(one_plane), (0,))

    def _block(
        self, planes: Array, plane: Any, begin: Sequence[Any], sizes: Sequence[int]
    ) -> Array:
        """What lies in a plane from `begin` on along each pooled axis."""
        at, shape = [plane, *[np.int32(0)] * (planes.ndim - 1)], [1, *planes.shape[1:]]
        for axis, first, size in zip(self.window.axes, begin, sizes, strict=True):
            at[axis + 1], shape[axis + 1] = first, size
        return lax.squeeze(lax.dynamic_slice(planes, at, shape), (0,))

    def _rolled(self, one: Callable[..., State], first: State, table: Array) -> State:
        """`one(state, *row)` over the rows of a table, several in a turn."""
        count, at_once, rest = turns(table.shape[0], weighted=self.weighted)

        def several(begin: Any, count: int, state: State) -> State:
            for which in range(count):
                row = lax.dynamic_index_in_dim(table, begin + np.int32(which), keepdims=False)
                state = one(state, *(row[column] for column in range(table.shape[1])))
            return state

        def turn(number: Array, state: State) -> State:
            return several(number * np.int32(at_once), at_once, state)

        if count:
            first = lax.fori_loop(np.int32(0), np.int32(count), turn, first)
        return several(np.int32(count * at_once), rest, first)


def by_counting(walk: Walk, key: Array, place: Any, fill: Any) -> Array:
    """The key of each window that has `place` others before it: a bit at a time, by how many keys are less."""
    info, shape = jnp.iinfo(key.dtype), walk.window.pooled(key.shape)
    short = jnp.iinfo(np.int16)
    narrow = info.bits <= short.bits and len(walk.numbers) <= short.max
    counted, planes = np.dtype(np.int16 if narrow else np.int32), walk.planes(key, fill)
    like = slices.tap_of(slices.pad_input(key, walk.window, fill), walk.window, 0)
    place = walk.flat(slices.broadcast_like(jnp.asarray(place, counted), like))

    def one_bit(step: Array, found: Array) -> Array:
        bit = lax.shift_left(jnp.ones((), key.dtype), (info.bits - 1 - step).astype(key.dtype))
        more = found + bit

        def join(state: State, _: Array, blocks: Sequence[Array]) -> State:
            return (state[0] + lax.lt(blocks[0], more).astype(counted),)

        (less,) = walk.fold(join, [lax.full_like(found, 0, counted)], [planes], key.shape)
        return lax.select(lax.le(less, place), more, found)

    least = vary_together([lax.full_like(walk.flat(like), info.min)], planes)[0]
    found = lax.fori_loop(np.int32(0), np.int32(info.bits), one_bit, least)
    return lax.reshape(found, shape)


def tap_of_key(walk: Walk, key: Array, y: Array, fill: Any, *, last: bool) -> Array:
    """The first tap, or the last, at which each window of keys holds y."""
    dtype = index_dtype(walk.window.size)
    lost = 0 if last else walk.window.size - 1
    wanted = walk.flat(y)

    def join(state: State, tap: Array, blocks: Sequence[Array]) -> State:
        number = lax.broadcast(tap.astype(dtype), wanted.shape)
        found = lax.select(lax.eq(blocks[0], wanted), number, lax.full_like(number, lost))
        return ((lax.max if last else lax.min)(state[0], found),)

    first = lax.full_like(wanted, lost, dtype)
    (tap,) = walk.fold(join, [first], [walk.planes(key, fill)], key.shape)
    return lax.reshape(tap, y.shape)


def pick(walk: Walk, x: Array, tap: Array) -> Array:
    """The element of x at the `tap` of each window."""
    wide, chosen = cast(x, accumulator(x.dtype)), walk.flat(tap)

    def join(state: State, number: Array, blocks: Sequence[Array]) -> State:
        return (state[0] + slices.at_tap(number, blocks[0], chosen),)

    first = lax.full_like(chosen, 0, wide.dtype)
    (y,) = walk.fold(join, [first], [walk.planes(wide, 0)], x.shape)
    return cast(lax.reshape(y, tap.shape), x.dtype)


def route(walk: Walk, dy: Array, tap: Array) -> Array:
    """The transpose of `pick`."""
    wide = cast(dy, accumulator(dy.dtype))
    dx = walk.spread(slices.at_tap, [wide, tap], dtype=wide.dtype)
    return cast(walk.from_planes(dx, walk.window.unpooled(dy.shape)), dy.dtype)


def _level(walk: Walk, key: Array, y: Array, fill: Any, *xs: Array) -> State:
    """How many keys of each window are y, at least 1, and the sums of xs over those."""
    wanted = walk.flat(y)

    def join(state: State, _: Array, blocks: Sequence[Array]) -> State:
        key, *values = blocks
        level = lax.eq(key, wanted)
        more = [lax.convert_element_type(level, state[0].dtype)]
        more += [slices.only(level, value) for value in values]
        return tuple(map(lax.add, state, more))

    first = [lax.full_like(wanted, 0, np.int32), *(lax.full_like(wanted, 0, x.dtype) for x in xs)]
    planes = [walk.planes(key, fill), *(walk.planes(x, 0) for x in xs)]
    count, *sums = (
        lax.reshape(each, y.shape) for each in walk.fold(join, first, planes, key.shape)
    )
    return lax.max(count, lax.full_like(count, 1)), *sums


def pick_level(walk: Walk, key: Array, y: Array, fill: Any, x: Array) -> Array:
    """The mean of x over the taps of each window at which its keys are y."""
    count, total = _level(walk, key, y, fill, cast(x, accumulator(x.dtype)))
    return cast(total / count.astype(total.dtype), x.dtype)


def route_level(walk: Walk, key: Array, y: Array, fill: Any, dy: Array) -> Array:
    """The transpose of `pick_level`."""
    (count,) = _level(walk, key, y, fill)
    wide = cast(dy, accumulator(dy.dtype))

    def term(tap: Array, part: Array, y: Array, key: Array) -> Array:
        return slices.only(lax.eq(key, y), part)

    share = wide / count.astype(wide.dtype)
    dx = walk.spread(term, [share, y], walk.planes(key, fill), dtype=wide.dtype)
    return cast(walk.from_planes(dx, key.shape), dy.dtype)
