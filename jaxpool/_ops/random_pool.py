"""Pools with chance: the ops, given their random numbers, and the types of these."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Order, decode, encode
from jaxpool._kernels.dtypes import DType, accumulator, is_float
from jaxpool._kernels.patches import (
    chosen_tap,
    greatest,
    lay_out,
    split,
    stands_at,
    tap_axes,
)
from jaxpool._kernels.positions import add_at, flat_position, read_at
from jaxpool._kernels.select import select
from jaxpool._ops.apply import apply_given
from jaxpool._ops.expected_pool import ExpectedPool
from jaxpool._ops.op import Op, problem_of
from jaxpool._ops.ranged import ranged
from jaxpool._plan.max_pool import plan_max
from jaxpool._plan.others import loses_nan
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, along, of_steps, taps


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

    The random numbers, one array per axis, have the shape of the input with 1 along pooled axes.
    """

    axes: tuple[int, ...]
    window_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    sizes: tuple[int, ...]
    ties: Order = "first"

    @property
    def tiles(self) -> Window:
        """The windows side by side, as they are laid out."""
        dims = zip(self.axes, self.window_shape, self.output_shape, strict=True)
        return Window(tuple(Axis(axis, n * w, w, w, 1, 0, 0, n) for axis, w, n in dims))

    def plan(self, on: Platform, x: Any, *samples: Any) -> OpPlan:
        laid = problem_of(self.tiles, x, on, self.tiles.unpooled(x.shape))
        gathered, scattered = along(self.axes, "gathered"), along(self.axes, "scattered")
        forward = (*gathered, *of_steps(plan_max(laid).forward))
        return OpPlan(forward, gathered, scattered)

    def primal(self, on: Platform, x: Array, *samples: Array) -> tuple[Array, Array]:
        dims = zip(self.axes, self.sizes, self.window_shape, self.output_shape, strict=True)
        starts = [
            window_starts(sample, axis, size, width, out)
            for sample, (axis, size, width, out) in zip(samples, dims, strict=True)
        ]
        tiles = self.tiles
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


def side_by_side(shape: Sequence[Any], window: Window) -> tuple[Any, ...]:
    """The shape of windows one after another along their own axes, before they are `split`."""
    sizes = {dim.axis: dim.out * dim.window for dim in window.dims}
    return tuple(sizes.get(axis, size) for axis, size in enumerate(shape))


@dataclasses.dataclass(frozen=True)
class StochasticPool(Op):
    """An element of each window, drawn with the weight max(x, 0); keeps its tap.

    `noise` holds a Gumbel variate for each tap of each window, side by side: the maximum of `log(weight) + noise`
    falls on a tap with the probability of its weight.
    """

    window: Window

    def plan(self, on: Platform, x: Any, *noise: Any) -> OpPlan:
        copied, drawn = along(self.window.axes, "copied"), taps(self.window, "reduced")
        back = along(self.window.axes, "repeated")
        return OpPlan((*copied, *drawn), (*copied, *drawn), (*back, *copied))

    def primal(self, on: Platform, x: Array, noise: Array) -> tuple[Array, Array]:
        weight = lax.max(x.astype(noise.dtype), lax.full_like(noise, 0, shape=x.shape))
        # All that is real ties where all weights are 0, and stands above the padding.
        lowest = lax.full_like(weight, jnp.finfo(weight.dtype).min)
        score = lay_out(lax.max(lax.log(weight), lowest), self.window, -np.inf)
        score = score + split(noise, self.window)
        best = greatest(score, self.window, loses_nan=loses_nan(on))
        index = chosen_tap(score, best, self.window, "first")
        return encode(self._drawn(index, decode(x)), x.dtype), index

    def linear(self, on: Platform, index: Array, x_dot: Array) -> Array:
        return self._drawn(index, x_dot.astype(accumulator(x_dot.dtype))).astype(x_dot.dtype)

    def transpose(self, on: Platform, index: Array, dy: Array) -> tuple[Array]:
        wide = dy.astype(accumulator(dy.dtype))
        x = slices.zeros_like(wide, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(functools.partial(self._drawn, index), x)(wide)
        return (dx.astype(dy.dtype),)

    def _drawn(self, index: Array, x: Array) -> Array:
        """The elements that were drawn: slices and sums alone, which jax transposes without scatters."""
        laid = lay_out(x, self.window, 0)
        found = lax.select(stands_at(index, self.window), laid, lax.full_like(laid, 0))
        return jnp.sum(found, axis=tap_axes(self.window), dtype=x.dtype)


def drawn(op: StochasticPool, x: Array, *noise: Array) -> Array:
    """The elements that `noise` draws; without any, what a draw gives on average."""
    if noise:
        return apply_given(op, x, *noise)[0]
    return ranged(ExpectedPool(op.window), x if is_float(x.dtype) else x.astype(np.float32))
