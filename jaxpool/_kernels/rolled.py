"""Loops over the taps of large windows, for ranks, random pools and grey morphology.

The loop body is in the program once, and the loop holds a few arrays. `tap_loop.py` is for loops that rarely run. An
array is split into planes, one per phase of the strides. Each tap of all windows is then a block of one plane, which
XLA reads without strides:

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

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._geometry.window import Window
from jaxpool._kernels import slices, tap_loop
from jaxpool._kernels.dtypes import DType, accumulator, cast, index_dtype
from jaxpool._kernels.split_ties import shared
from jaxpool._plan.program_length import turns

State = tuple[Array, ...]
Join = Callable[[State, Array, Sequence[Array]], State]


@dataclasses.dataclass(frozen=True)
class Walk:
    """A loop over all taps of a window, or over the flat taps `taps` in their order.

    `joined`: the minor pooled axis and all axes after it are collapsed, in planes and in `flat` arrays. Short rows
    then become parts of longer rows, which vectorise.
    `weighted`: each tap has a weight that the loop reads with its elements.
    """

    window: Window
    joined: bool = False
    taps: Sequence[int] | None = None
    weighted: bool = False

    @property
    def numbers(self) -> np.ndarray:
        """Flat taps in loop order."""
        return np.arange(self.window.size) if self.taps is None else np.asarray(self.taps)

    @property
    def _lengths(self) -> list[int]:
        """Size of a plane along each pooled axis."""
        return [-(-dim.needed // dim.stride) for dim in self.window.dims]

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Plane of each tap, and the position of the first window in it along each pooled axis."""
        along = np.unravel_index(self.numbers, self.window.window_shape)
        pairs = [*zip(along, self.window.dims, strict=True)]
        phases = [tap * dim.dilation % dim.stride for tap, dim in pairs]
        starts = [tap * dim.dilation // dim.stride for tap, dim in pairs]
        strides = [dim.stride for dim in self.window.dims]
        return np.ravel_multi_index(phases, strides), np.stack(starts, 1)

    def flat(self, y: Array) -> Array:
        """Collapse the axes of an output-shaped array that are `joined`."""
        return lax.collapse(y, max(self.window.axes)) if self.joined else y

    def _units(self, shape: Sequence[Any]) -> list[int]:
        """Number of plane elements per position along each pooled axis."""
        minor = max(self.window.axes)
        row = math.prod(shape[minor + 1 :]) if self.joined else 1
        return [row if axis == minor else 1 for axis in self.window.axes]

    def _apart(self, shape: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Shape with an axis of phases after each pooled axis, and the permutation that moves phases to the front."""
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
        """Planes of x, stacked along a new first axis; padding holds `fill`."""
        dims, lengths = self.window.dims, self._lengths
        whole = [n * dim.stride for dim, n in zip(dims, lengths, strict=True)]
        sides = [(d.low, n - d.low - d.size, 0) for d, n in zip(dims, whole, strict=True)]
        x = slices.pad(x, self.window.axes, sides, fill)
        shape, order = self._apart(x.shape)
        x = lax.collapse(lax.transpose(lax.reshape(x, shape), order), 0, len(dims))
        return lax.collapse(x, max(self.window.axes) + 1) if self.joined else x

    def from_planes(self, x: Array, shape: Sequence[Any]) -> Array:
        """Invert `planes` for an array of `shape`."""
        dims, padded = self.window.dims, [*shape]
        for dim, n in zip(dims, self._lengths, strict=True):
            padded[dim.axis] = n * dim.stride
        split_shape, order = self._apart(padded)
        x = lax.reshape(x, tuple(split_shape[axis] for axis in order))
        x = lax.transpose(x, [order.index(axis) for axis in range(len(order))])
        sides = [(-dim.low, dim.low + dim.size - padded[dim.axis], 0) for dim in dims]
        return slices.pad(lax.reshape(x, tuple(padded)), self.window.axes, sides, 0)

    def fold(
        self, join: Join, first: Sequence[Array], xs: Sequence[Array], shape: Any, *others: Array
    ) -> State:
        """Fold `join(state, tap, blocks)` over the taps; `blocks` are the elements of all windows at the tap.

        There is one flat block for each of `xs`, which are planes of arrays of `shape`. `others` are all further
        arrays that `join` reads.
        """
        units = self._units(shape)
        plane, starts = self._places()
        sizes = [n * unit for n, unit in zip(self.window.output_shape, units, strict=True)]

        def one(state: State, tap: Array, plane: Array, *begin: Array) -> State:
            return join(state, tap, [self._block(x, plane, begin, sizes) for x in xs])

        table = np.column_stack([self.numbers, plane, starts * units])
        first = match_varying_mesh_axes(first, *xs, *others)
        return self._rolled(one, first, jnp.asarray(table, np.int32))

    def at(self, planes: Array, tap: Array) -> Array:
        """Elements of all windows at one tap, which may be traced; for walks that are not `joined`."""
        table = jnp.asarray(np.column_stack(self._places()), np.int32)
        plane, *begin = lax.dynamic_index_in_dim(table, tap, keepdims=False)
        return self._block(planes, plane, begin, self.window.output_shape)

    def spread(
        self, term: Callable[..., Array], ys: Sequence[Array], *own: Array, dtype: Any
    ) -> Array:
        """Sum `term(tap, *blocks, *own)` over the windows that cover each element; returns planes.

        The blocks hold the elements of `ys` for the window that has each element at `tap`, or 0 if there is no
        such window. `own` are planes with the data of the elements.
        """
        dims, units, lengths = self.window.dims, self._units(ys[0].shape), self._lengths
        plane, starts = self._places()
        reach, count = starts.max(0), math.prod(dim.stride for dim in dims)
        table = np.zeros((count, int(np.bincount(plane).max()), 1 + len(dims)), np.int32)
        table[..., 0] = self.window.size  # marks surplus rows, which have no tap
        for which in range(count):
            (in_plane,) = np.nonzero(plane == which)
            rows = [self.numbers[in_plane], (reach - starts[in_plane]) * units]
            table[which, : len(in_plane)] = np.column_stack(rows)
        uneven = bool((table[..., 0] == self.window.size).any())
        limits = zip(dims, lengths, reach.tolist(), strict=True)
        sides = [(before, n - dim.out, 0) for dim, n, before in limits]
        flat = [self.flat(slices.pad(y, self.window.axes, sides, 0)) for y in ys]
        padded = [lax.expand_dims(y, (0,)) for y in flat]
        sizes = [n * unit for n, unit in zip(lengths, units, strict=True)]

        def of_plane(extra_args: Any) -> Array:
            table, *own = extra_args

            def one(state: State, tap: Array, *begin: Array) -> State:
                blocks = [self._block(y, np.int32(0), begin, sizes) for y in padded]
                part = term(tap, *blocks, *own)
                if uneven:
                    part = lax.select(
                        tap < np.int32(self.window.size), part, lax.full_like(part, 0)
                    )
                return (state[0] + part,)

            origin = [np.int32(0)] * len(dims)
            zeros = lax.full_like(self._block(padded[0], np.int32(0), origin, sizes), 0, dtype)
            return self._rolled(one, match_varying_mesh_axes([zeros], *padded, *own), table)[0]

        if count > 1:
            return lax.map(of_plane, (jnp.asarray(table), *own))
        one_plane = [lax.squeeze(x, (0,)) for x in (jnp.asarray(table), *own)]
        return lax.expand_dims(of_plane(one_plane), (0,))

    def _block(
        self, planes: Array, plane: Any, begin: Sequence[Any], sizes: Sequence[int]
    ) -> Array:
        """Block of a plane, from `begin` on along each pooled axis."""
        at, shape = [plane, *[np.int32(0)] * (planes.ndim - 1)], [1, *planes.shape[1:]]
        for axis, first, size in zip(self.window.axes, begin, sizes, strict=True):
            at[axis + 1], shape[axis + 1] = first, size
        return lax.squeeze(lax.dynamic_slice(planes, at, shape), (0,))

    def _rolled(self, one: Callable[..., State], first: State, table: Array) -> State:
        """Fold `one(state, *row)` over the rows of a table, several rows per loop step."""
        count, per_step, rest = turns(table.shape[0], weighted=self.weighted)

        def several(begin: Any, count: int, state: State) -> State:
            for which in range(count):
                row = lax.dynamic_index_in_dim(table, begin + np.int32(which), keepdims=False)
                state = one(state, *(row[column] for column in range(table.shape[1])))
            return state

        def turn(number: Array, state: State) -> State:
            return several(number * np.int32(per_step), per_step, state)

        if count:
            first = lax.fori_loop(np.int32(0), np.int32(count), turn, first)
        return several(np.int32(count * per_step), rest, first)


def by_counting(walk: Walk, key: Array, place: Any, fill: Any) -> Array:
    """Key of rank `place`, from 0, in each window: a search bit by bit that counts smaller keys."""
    info, shape = jnp.iinfo(key.dtype), walk.window.pooled(key.shape)
    int16 = jnp.iinfo(np.int16)
    narrow = info.bits <= int16.bits and len(walk.numbers) <= int16.max
    counted, planes = np.dtype(np.int16 if narrow else np.int32), walk.planes(key, fill)
    like = slices.tap_of(slices.pad_input(key, walk.window, fill), walk.window, 0)
    place = walk.flat(slices.broadcast_like(jnp.asarray(place, counted), like))

    def one_bit(step: Array, lower_bound: Array) -> Array:
        bit = lax.shift_left(jnp.ones((), key.dtype), (info.bits - 1 - step).astype(key.dtype))
        candidate = lower_bound + bit

        def join(state: State, _: Array, blocks: Sequence[Array]) -> State:
            return (state[0] + lax.lt(blocks[0], candidate).astype(counted),)

        (smaller,) = walk.fold(join, [lax.full_like(lower_bound, 0, counted)], [planes], key.shape)
        return lax.select(lax.le(smaller, place), candidate, lower_bound)

    least = match_varying_mesh_axes([lax.full_like(walk.flat(like), info.min)], planes)[0]
    lower_bound = lax.fori_loop(np.int32(0), np.int32(info.bits), one_bit, least)
    return lax.reshape(lower_bound, shape)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The taps that each window of a walk selects: those where `won(tap, *ys, *elements)` is True.

    `ys` are output-shaped, and `elements` are the elements at the tap of arrays that are given as `planes`. With
    `split`, windows select several taps, which share a cotangent. With `masked`, `won` may be True in the padding.
    """

    walk: Walk
    won: Callable[..., Array]
    ys: Sequence[Array]
    planes: Sequence[Array] = ()
    split: bool = False
    masked: bool = False

    def at(self, tap: Array) -> Array:
        """Mask of the windows that select a tap, which may be traced; for walks that are not `joined`."""
        return self._real(tap, self.ys, [self.walk.at(each, tap) for each in self.planes])

    def _real(self, tap: Array, ys: Sequence[Array], elements: Sequence[Array]) -> Array:
        won = self.won(tap, *ys, *elements)
        if not self.masked:
            return won
        is_real = tap_loop.real_at(self.walk.window, tap, won.ndim)
        return lax.bitwise_and(won, slices.broadcast_like(is_real, won))

    def _fold(
        self,
        walk: Walk,
        join: Callable[..., Sequence[Array]],
        dtypes: Sequence[DType],
        xs: Sequence[Array] = (),
        *others: Array,
    ) -> State:
        """Fold `join(state, tap, selected, *elements)`, from zeros of `dtypes`; `xs` are planes."""
        ys, count = [self.walk.flat(y) for y in self.ys], len(self.planes)

        def step(state: State, tap: Array, blocks: Sequence[Array]) -> State:
            selected = self._real(tap, ys, blocks[:count])
            return tuple(join(state, tap, selected, *blocks[count:]))

        first = [lax.full_like(ys[0], 0, dtype) for dtype in dtypes]
        final = walk.fold(step, first, [*self.planes, *xs], self.ys[0].shape, *ys, *others)
        return tuple(lax.reshape(each, self.ys[0].shape) for each in final)

    def one_tap(self, *, last: bool) -> Array:
        """First or last selected tap of each window, or 0 if there is none."""

        def join(state: State, tap: Array, selected: Array) -> State:
            (chosen,) = state
            number = lax.broadcast(tap.astype(chosen.dtype), chosen.shape)
            return (lax.select(selected, number, chosen),)

        numbers = self.walk.numbers if last else self.walk.numbers[::-1]
        walk = dataclasses.replace(self.walk, taps=tuple(numbers.tolist()))
        return self._fold(walk, join, [index_dtype(self.walk.window.size)])[0]

    def mean(
        self, term: Callable[..., Array], dtype: DType, xs: Sequence[Array], *others: Array
    ) -> Array:
        """Sum, or with `split` mean, of `term(tap, *elements)` in `dtype` over the selected taps of each window.

        `xs` are planes. `others` are all further arrays that `term` reads.
        """

        def join(state: State, tap: Array, selected: Array, *elements: Array) -> list[Array]:
            terms = [slices.where_or_zero(selected, term(tap, *elements))]
            counts = [selected.astype(np.int32)] if self.split else []
            return [*map(lax.add, state, [*terms, *counts])]

        dtypes = [dtype, np.int32][: 1 + self.split]
        total, *counts = self._fold(self.walk, join, dtypes, xs, *others)
        return shared(total, *counts)

    def pick(self, x: Array) -> Array:
        """Selected element of x in each window, or with `split` the mean of the selected elements."""
        wide = cast(x, accumulator(x.dtype))
        planes = self.walk.planes(wide, 0)
        return cast(self.mean(lambda tap, element: element, wide.dtype, [planes]), x.dtype)

    def share(self, dy: Array) -> Array:
        """dy, divided by the number of selected taps with `split`."""
        if not self.split:
            return dy

        def join(state: State, tap: Array, selected: Array) -> list[Array]:
            return [state[0] + selected.astype(np.int32)]

        return shared(dy, *self._fold(self.walk, join, [np.int32]))

    def spread(self, share: Array, dtype: DType) -> Array:
        """Add the share of each window to its selected elements, and return the result in `dtype`."""

        def term(tap: Array, part: Array, *rest: Array) -> Array:
            return slices.where_or_zero(self.won(tap, *rest), part)

        dx = self.walk.spread(term, [share, *self.ys], *self.planes, dtype=share.dtype)
        return cast(self.walk.from_planes(dx, self.walk.window.unpooled(share.shape)), dtype)

    def route(self, dy: Array) -> Array:
        """Transpose of `pick`."""
        return self.spread(self.share(cast(dy, accumulator(dy.dtype))), dy.dtype)


def by_tap(walk: Walk, tap: Array) -> Selection:
    """The selection of one flat `tap` in each window."""
    return Selection(walk, slices.is_tap, [tap])


def by_key(walk: Walk, key: Array, y: Array, fill: Any) -> Selection:
    """The selection of all taps of each window whose key equals y; padding holds `fill`."""
    return Selection(walk, lambda _, y, key: lax.eq(key, y), [y], [walk.planes(key, fill)], True)
