"""Pools with chance: the ops, given their random numbers, and the types of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order, decode, encode
from jaxpool._kernels.dtypes import DType, accumulator, cast, index_dtype, is_float
from jaxpool._kernels.keep import keep
from jaxpool._kernels.positions import add_at, flat_position, read_at
from jaxpool._kernels.rolled import State
from jaxpool._kernels.select import first_taps, select
from jaxpool._ops.chosen import fold, pick, send
from jaxpool._ops.expected_pool import ExpectedPool
from jaxpool._ops.op import Op, apply_given, problem_of
from jaxpool._ops.ranged import ranged
from jaxpool._plan.max_pool import plan_max
from jaxpool._plan.problem import Platform, keep_on


def chance_dtype(dtype: DType) -> DType:
    """The type of the random numbers for a pool of `dtype`."""
    return jnp.dtype(np.float64 if dtype == np.float64 else np.float32)


def _starts(sample: Array, size: int, width: int, out: int) -> Array:
    """Where `out` windows of `width` begin over `size` positions; the last axis of `sample`, of 1."""
    last = lax.full_like(sample, size - width, np.int32)
    if out == 1:
        return last
    dtype = sample.dtype.type
    alpha = dtype(size - width) / dtype(out - 1)
    i = np.arange(out - 1, dtype=dtype).reshape((1,) * (sample.ndim - 1) + (-1,))
    before = ((i + sample) * alpha).astype(np.int32) - (sample * alpha).astype(np.int32)
    return lax.concatenate([before, last], sample.ndim - 1)


def window_starts(sample: Array, axis: int, size: int, width: int, out: int) -> Array:
    """Where `out` windows of `width` begin over `size` positions along `axis`, where `sample` has size 1."""
    return jnp.moveaxis(_starts(jnp.moveaxis(sample, axis, -1), size, width, out), -1, axis)


def _laid_out_at(x: Array, tiles: Window, starts: Sequence[Array]) -> Array:
    """The windows of x that begin at `starts`, side by side along their own axes as those of `tiles`.

    `starts[i]` is an int32 array of the rank of x that holds the windows along the axis of
    `tiles.dims[i]`, 1 along the other pooled axes, and the size of x along all others.
    """
    for dim, start in zip(tiles.dims, starts, strict=True):
        taps = slices.along(np.arange(dim.window, dtype=np.int32), dim.axis + 1, x.ndim + 1)
        at = lax.collapse(lax.expand_dims(start, (dim.axis + 1,)) + taps, dim.axis, dim.axis + 2)
        x = jnp.take_along_axis(x, at, axis=dim.axis, mode="promise_in_bounds")
    return x


@dataclasses.dataclass(frozen=True)
class FractionalPool(Op):
    """The maximum of windows that random numbers place; keeps the position of each maximum.

    The random numbers, one array an axis, have the shape of the input with 1 along pooled axes.
    """

    axes: tuple[int, ...]
    window_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    sizes: tuple[int, ...]
    ties: Order = "first"

    def primal(self, on: Platform, x: Array, *samples: Array) -> tuple[Array, Array]:
        dims = zip(self.axes, self.sizes, self.window_shape, self.output_shape, strict=True)
        starts = [
            window_starts(sample, axis, size, width, out)
            for sample, (axis, size, width, out) in zip(samples, dims, strict=True)
        ]
        shapes = zip(self.axes, self.window_shape, self.output_shape, strict=True)
        tiles = Window(tuple(Axis(axis, n * w, w, w, 1, 0, 0, n) for axis, w, n in shapes))
        tiled = _laid_out_at(x, tiles, starts)
        plan = plan_max(problem_of(tiles, tiled, on))
        y, tap = select(tiled, tiles, "max", self.ties, plan)
        return y, flat_position(tap, tiles, starts, self.sizes)

    def linear(self, on: Platform, position: Array, x_dot: Array) -> Array:
        return read_at(x_dot, position, self.axes)

    def transpose(self, on: Platform, position: Array, dy: Array) -> tuple[Array]:
        return (add_at(dy, position, self.axes, self.sizes),)


def weight_dtype(dtype: DType) -> DType:
    """The type in which elements of `dtype` are weighed."""
    return accumulator(dtype) if is_float(dtype) else jnp.dtype(np.float32)


def _weight(x: Array) -> Array:
    return lax.max(x, lax.full_like(x, 0))


@dataclasses.dataclass(frozen=True)
class StochasticPool(Op):
    """An element of each window, drawn with the weight max(x, 0); keeps its tap.

    `chance` holds a number in [0, 1) for each window, of whose total weight it is a share. The weights of a
    window, tap after tap, cover its total; where that share falls is the tap that is drawn:

        weights 1 0 3 2, chance 0.5    0[1][  3  ][ 2 ]6    the third tap covers 1 to 4
    """

    window: Window

    def primal(self, on: Platform, x: Array, chance: Array) -> tuple[Array, Array]:
        index = self._drawn(on, cast(x, chance.dtype), chance)
        return encode(pick(self.window, decode(x), index, on), x.dtype), index

    def _drawn(self, on: Platform, x: Array, chance: Array) -> Array:
        """The tap of each window on which its share falls, the first that is real where nothing weighs anything."""
        window, dtype = self.window, index_dtype(self.window.size)
        # As many elements as there are taps, made smaller by this, have a sum within the range of the type.
        small = np.asarray(0.5 ** window.size.bit_length(), x.dtype)
        most = lax.full_like(chance, jnp.finfo(x.dtype).max)

        def weigh(state: State, _: Any, elements: Sequence[Array], *own: Array) -> State:
            # Of sums of products XLA would make a product of sums.
            return state[0] + _weight(elements[0]), state[1] + _weight(elements[0] * small)

        def measured(x: Array, chance: Array) -> tuple[Array, Array]:
            nothing = lax.full_like(chance, 0)
            total, part = fold(window, on, weigh, [nothing, nothing], [x], [0])
            # An infinite weight ends where no number reaches, a NaN where infinity does not.
            share = chance * jnp.where(jnp.isinf(total), part, total)
            share = jnp.where(jnp.isinf(part), most, jnp.where(jnp.isnan(part), np.inf, share))
            return share, jnp.where(jnp.isinf(total), small, 1)

        def cover(state: State, tap: Any, elements: Sequence[Array], *own: Array) -> State:
            (before, found), (share, scale, first) = state, own
            weight = _weight(elements[0] * scale)
            here = lax.bitwise_and(lax.bitwise_not(weight <= 0), before <= share)
            number = lax.broadcast(tap.astype(dtype), found.shape)
            here = lax.bitwise_or(here, first == number)
            return before + weight, lax.select(here, number, found)

        share, scale = keep(keep_on(on), measured, x, chance)
        first = slices.broadcast_like(first_taps(window, x.ndim), chance)
        start = [lax.full_like(chance, 0), lax.full_like(chance, 0, dtype)]
        return fold(window, on, cover, start, [x], [0], share, scale, first)[1]

    def linear(self, on: Platform, index: Array, x_dot: Array) -> Array:
        return pick(self.window, x_dot, index, on)

    def transpose(self, on: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (send(self.window, dy, index, on),)


def drawn(op: StochasticPool, x: Array, *chance: Array) -> Array:
    """The elements that `chance` draws; without any, what a draw gives on average."""
    if chance:
        return apply_given(op, x, *chance)[0]
    return ranged(ExpectedPool(op.window), x if is_float(x.dtype) else x.astype(np.float32))
