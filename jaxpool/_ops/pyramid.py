"""Adaptive pools of many sizes at once, by a program that does not grow with the number of sizes.

Axes are pooled one at a time, the last axis first. Blocks of 1, 2, 4, ... positions are joined to the windows of all
levels. A maximum joins two blocks, which may overlap. A sum joins disjoint blocks:

    a window of 7 positions     maximum  [0 1 2 3]        sum  [0]
                                               [3 4 5 6]          [1 2][3 4 5 6]

The output has one axis of cells for the pooled axes: one level after another, each in row-major order.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, wins
from jaxpool._kernels.dtypes import index_dtype, losing
from jaxpool._ops.op import Op
from jaxpool._plan import stages
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, linear_plan

State = tuple[Array, ...]


def _window(size: int, level: Array, number: Array) -> tuple[Array, Array]:
    """Start and length of window `number` of `level` windows over `size` positions."""
    start = number * np.int32(size) // level
    return start, ((number + 1) * np.int32(size) + level - 1) // level - start


@dataclasses.dataclass(frozen=True)
class Pyramid(Op):
    """The pools of all levels over the consecutive `axes`, which one axis of cells replaces in the output."""

    levels: tuple[int, ...]  # windows along each axis
    axes: tuple[int, ...]
    sizes: tuple[int, ...]  # sizes of the axes

    def plan(self, platform: Platform, x: Any) -> OpPlan:
        each = [stages.along([axis], "blocks", 2) for axis in reversed(self.axes)]
        back = stages.along(self.axes, "gathered", 2 ** len(self.axes), "a level after the other")
        why = f"{len(self.levels)} levels in loops over all of them"
        return linear_plan(sum(each, ()), back, why)

    def _first_cells(self, rank: int) -> np.ndarray:
        """The first cell of each level over `rank` axes, and the number of cells. For rank 0, levels share one cell."""
        counts = [level**rank if rank else 0 for level in self.levels]
        return np.cumsum([0, *counts], dtype=np.int32)

    def _windows(self, along: int) -> tuple[Array, Array, Array]:
        """Start and length along axis `along` of each cell over it and later axes, and its cell over the later axes."""
        rest = len(self.axes) - along - 1
        *firsts, count = self._first_cells(rest + 1)
        cell = jnp.arange(count, dtype=np.int32)
        which = jnp.searchsorted(jnp.asarray(firsts), cell, side="right").astype(np.int32) - 1
        level = jnp.asarray(self.levels, np.int32)[which]
        unit = jnp.asarray([level**rest for level in self.levels], np.int32)[which]
        number = cell - jnp.asarray(firsts)[which]
        start, length = _window(self.sizes[along], level, number // unit)
        return start, length, number % unit + jnp.asarray(self._first_cells(rest))[which]

    def _sides(self, x: Array, pooled: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The sizes of x before and after its `pooled` axes, or its one axis of cells."""
        return x.shape[: self.axes[0]], x.shape[self.axes[0] + pooled :]

    def _flat(self, x: Array, *sizes: int) -> Array:
        """x reshaped to one axis before `sizes` and one axis after."""
        before, after = self._sides(x, len(sizes))
        return lax.reshape(x, (math.prod(before), *sizes, math.prod(after)))

    def _pooled(self, x: Array, *more: Array, fill: Any) -> State:
        """The pooled cells of x, and of the arrays `more` that are carried along."""
        before, after = self._sides(x, len(self.axes))
        state = tuple(self._flat(each, *self.sizes)[..., None, :] for each in (x, *more))
        for along in reversed(range(len(self.axes))):
            state = self._along(along, state, fill)
        return tuple(lax.reshape(y, (*before, y.shape[1], *after)) for y in state)

    def _along(self, along: int, state: State, fill: Any) -> State:
        """The cells over one more axis, from the state at its positions and the cells over the later axes."""
        axis, size, inner = along + 1, self.sizes[along], state[0].shape[along + 2]
        start, length, other = self._windows(along)
        rounds = min(size, -(-size // self.levels[0]) + 1).bit_length()

        def at(blocks: State, place: Array) -> State:
            flat = [lax.collapse(each, axis, axis + 2) for each in blocks]
            where = place * np.int32(inner) + other
            return tuple(jnp.take(each, where, axis, mode="clip") for each in flat)

        def later(x: Array, width: Array, fill: Any) -> Array:
            x = slices.pad(x, (axis,), [(0, 2 ** (rounds - 1), 0)], fill)
            return lax.dynamic_slice_in_dim(x, width, size, axis)

        def one_round(turn: Array, carried: tuple[State, State]) -> tuple[State, State]:
            blocks, results = carried
            turn = turn.astype(np.int32)
            width = lax.shift_left(np.int32(1), turn)
            results = self._found(results, at, blocks, turn, start, length)
            fills = [fill, *[0] * (len(blocks) - 1)]
            pairs = zip(blocks, fills, strict=True)
            return self._joined(blocks, tuple(later(x, width, f) for x, f in pairs)), results

        first = vary_together([lax.full_like(each, 0) for each in at(state, start)], *state)
        carried = (tuple(vary_together(state)), first)
        results: State = lax.fori_loop(np.int32(0), np.int32(rounds), one_round, carried)[1]
        return results

    def _joined(self, blocks: State, later: State) -> State:
        """Join neighbouring blocks to blocks of twice the length."""
        raise TypeError(f"{type(self).__name__} joins nothing")

    def _found(
        self, found: State, at: Any, blocks: State, turn: Array, start: Array, length: Array
    ) -> State:
        """Update the result of each window with the blocks of `2**turn` positions."""
        raise TypeError(f"{type(self).__name__} finds nothing")

    def _lengths(self, dtype: Any) -> Array:
        """Number of elements of each cell."""
        total = jnp.ones(1, dtype)
        for along in reversed(range(len(self.axes))):
            _, length, other = self._windows(along)
            total = length.astype(dtype) * total[other]
        return total

    def _covering(self) -> np.ndarray:
        """Rows of a level, its first cell, and per axis the number of a window among those of a position."""

        def sharers(level: int, size: int) -> int:
            if size % level == 0 or level % size == 0:
                return max(1, level // size)
            return -(-level // size) + 1

        rows: list[tuple[int, ...]] = []
        for level, first in zip(self.levels, self._first_cells(len(self.axes)), strict=False):
            each = [range(sharers(level, size)) for size in self.sizes]
            rows += [(level, first, *which) for which in itertools.product(*each)]
        return np.asarray(rows, np.int32)

    def _sent(self, dy: Array, position: Array | None = None) -> Array:
        """dx: the sum of dy over the windows that contain an element, or whose selected `position` it is."""
        before, after = self._sides(dy, 1)
        parts = [
            self._flat(each, dy.shape[self.axes[0]]) for each in (dy, position) if each is not None
        ]
        table = jnp.asarray(self._covering())
        shape = (parts[0].shape[0], *self.sizes, parts[0].shape[2])
        flat = (
            _flat_positions(self.sizes)
            if position is None
            else _flat_positions(self.sizes).astype(position.dtype)
        )

        def one(turn: Array, dx: Array) -> Array:
            level, first, *which = lax.dynamic_index_in_dim(table, turn, keepdims=False)
            cell, held = jnp.zeros((), np.int32), jnp.ones((), bool)
            for along, size in enumerate(self.sizes):
                others = [other for other in range(len(self.sizes)) if other != along]
                place = lax.expand_dims(jnp.arange(size, dtype=np.int32), others)
                number = place * level // np.int32(size) + which[along]
                start, _ = _window(size, level, number)
                held = held & (start <= place) & (number < level)
                cell = cell * level + number
            read = [jnp.take(each, first + cell, 1, mode="clip") for each in parts]
            held = held[None, ..., None]
            if position is not None:
                held = held & (read[1] == flat[None, ..., None])
            return dx + slices.only(jnp.broadcast_to(held, shape), read[0])

        zeros = vary_together([jnp.zeros(shape, dy.dtype)], *parts)[0]
        dx = lax.fori_loop(np.int32(0), np.int32(len(table)), one, zeros)
        return lax.reshape(dx, (*before, *self.sizes, *after))


def _flat_positions(sizes: Sequence[int]) -> Array:
    return lax.reshape(jnp.arange(math.prod(sizes), dtype=np.int32), tuple(sizes))


@dataclasses.dataclass(frozen=True)
class PyramidMax(Pyramid):
    """The maxima, the first of tied elements. The residual is the flat position of each maximum."""

    def value(self, platform: Platform, x: Array) -> Array:
        return self._pooled(x, fill=losing(x.dtype, "max"))[0]

    def primal(self, platform: Platform, x: Array) -> tuple[Array, Any]:
        dtype = index_dtype(math.prod(self.sizes))
        where = range(self.axes[0], self.axes[0] + len(self.axes))
        flat = lax.broadcast_in_dim(_flat_positions(self.sizes).astype(dtype), x.shape, where)
        y, position = self._pooled(x, flat, fill=losing(x.dtype, "max"))
        return y, position

    def _joined(self, blocks: State, later: State) -> State:
        ahead = wins(decode(later[0]), decode(blocks[0]), "max", "first")
        return tuple(lax.select(ahead, b, a) for a, b in zip(blocks, later, strict=True))

    def _found(
        self, found: State, at: Any, blocks: State, turn: Array, start: Array, length: Array
    ) -> State:
        width = lax.shift_left(np.int32(1), turn)
        whole = self._joined(at(blocks, start), at(blocks, start + length - width))
        here = (length >= width) & (length < 2 * width)
        return tuple(jnp.where(here[:, None], a, b) for a, b in zip(whole, found, strict=True))

    def linear(self, platform: Platform, position: Array, x_dot: Array) -> Array:
        flat = self._flat(position, position.shape[self.axes[0]]).astype(np.int32)
        x_dot = self._flat(x_dot, *self.sizes)
        read = jnp.take_along_axis(lax.collapse(x_dot, 1, x_dot.ndim - 1), flat, 1, mode="clip")
        return lax.reshape(read, position.shape)

    def transpose(self, platform: Platform, position: Array, dy: Array) -> tuple[Array]:
        return (self._sent(dy, position),)


@dataclasses.dataclass(frozen=True)
class PyramidMean(Pyramid):
    """The means. There is no residual."""

    linear_in_x = True

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        return self._divided(self._pooled(x, fill=0)[0])

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        return (self._sent(self._divided(dy)),)

    def _divided(self, y: Array) -> Array:
        others = [axis for axis in range(y.ndim) if axis != self.axes[0]]
        return y / lax.expand_dims(self._lengths(y.dtype), others)

    def _joined(self, blocks: State, later: State) -> State:
        return tuple(map(lax.add, blocks, later))

    def _found(
        self, found: State, at: Any, blocks: State, turn: Array, start: Array, length: Array
    ) -> State:
        width = lax.shift_left(np.int32(1), turn)
        part = at(blocks, start + (length & (width - 1)))
        here = (length & width != 0)[:, None]
        return tuple(a + jnp.where(here, b, 0) for a, b in zip(found, part, strict=True))
