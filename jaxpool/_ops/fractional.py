"""Fractional max and average pools: windows of one width at random starts, which are known only at run time.

An ordinary pool with stride 1 computes a window at every position, and the outputs at the random starts are selected.
Random numbers move a start only a little: window i starts at one of a few positions known at trace time
(`possible_starts`). The forward pass reads the outputs at all these positions and selects one. The backward pass reads,
for each position, the few windows that may start there (`possible_windows`). A gather would need a scatter as its
transpose; without scatters, sums are deterministic.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import TieOrder, accumulator_dtype, cast, full_like
from jaxpool._kernels.positions import (
    IntArray,
    flat_position_of_tap,
    int32_iota,
    scaled_floor_division,
)
from jaxpool._ops.op import Op, Residual
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_of


@dataclasses.dataclass(frozen=True)
class FractionalAxis:
    """`out` windows of `width` elements, at nearly equal distances along an axis of `size` elements."""

    axis: int
    size: int
    width: int
    out: int
    random_dtype: str = "float32"  # dtype of the random numbers, or a less precise dtype

    @property
    def last_start(self) -> int:
        """The largest possible start, which is the start of the last window."""
        return self.size - self.width

    def starts(self, sample: Array) -> Array:
        """The starts of the windows along `axis`. `sample` holds random numbers and has size 1 along `axis`."""
        sample = jnp.moveaxis(sample, self.axis, -1)
        last_start = full_like(sample, self.last_start, np.int32)
        if self.out == 1:
            return jnp.moveaxis(last_start, -1, self.axis)
        dtype = sample.dtype.type
        alpha = dtype(self.last_start) / dtype(self.out - 1)
        i = int32_iota(self.out - 1).astype(dtype).reshape((1,) * (sample.ndim - 1) + (-1,))
        starts = ((i + sample) * alpha).astype(np.int32) - (sample * alpha).astype(np.int32)
        return jnp.moveaxis(lax.concatenate([starts, last_start], sample.ndim - 1), -1, self.axis)

    @property
    def _offsets(self) -> range:
        """The possible offsets of the start of window i from `i * last_start // (out - 1)`.

        A random number moves a start forward by at most 1. Rounding may move a start back by 1 if its exact value is an
        integer. On long axes, rounding moves starts in both directions, by up to four rounding errors of `size`.
        """
        if self.out == 1:
            return range(1)
        rounding = 2 * float(jnp.finfo(self.random_dtype).eps)
        error = math.ceil(self.size * rounding) if self.size * self.out * rounding >= 1 else 0
        has_exact_start = int(math.gcd(self.last_start, self.out - 1) > 1)
        return range(-max(error, has_exact_start), 2 + error)

    def possible_starts(self) -> list[IntArray]:
        """One vector of window starts per offset in `_offsets`; traced arrays on long axes, else NumPy arrays."""
        start = int32_iota(self.out)
        if self.out == 1:
            start = start + np.int32(self.last_start)
        else:
            start = scaled_floor_division(start, self.out, self.last_start, self.out - 1)
        return [(start + np.int32(offset)).clip(0, self.last_start) for offset in self._offsets]

    def possible_windows(self) -> list[IntArray]:
        """Vectors with the index of a window that may start at each position; `out` or more means no window."""
        start = int32_iota(self.last_start + 1)
        if self.out == 1:
            return [np.int32(self.last_start) - start]
        gaps, offsets = self.out - 1, self._offsets
        earliest = (start - np.int32(offsets[-1])).clip(0)
        fraction = self.last_start + 1, gaps, self.last_start
        first = scaled_floor_division(earliest, *fraction, self.last_start - 1)  # rounds up
        return [first + np.int32(k) for k in range(-(-len(offsets) * gaps // self.last_start))]

    def gather_at_starts(self, start: Array, x: Array) -> Array:
        """The elements of x at the starts of the windows. x has one element per position from 0 to `last_start`."""
        first_candidate, *other_candidates = self.possible_starts()
        y = self._take_clipped(x, first_candidate)
        for candidates in other_candidates:
            candidate = slices.broadcast_like(self._expand(candidates, start.ndim), start)
            is_start = slices.broadcast_like(lax.eq(start, candidate), y)
            y = lax.select(is_start, self._take_clipped(x, candidates), y)
        return y

    def add_at_starts(self, start: Array, y: Array) -> Array:
        """The transpose of `gather_at_starts`: add each element of y at the start of its window."""
        position = self._expand(jnp.arange(self.last_start + 1, dtype=np.int32), y.ndim)
        parts = []
        for windows in self.possible_windows():
            is_start = self._take_clipped(start, windows) == position
            is_start &= self._expand(windows, y.ndim) < np.int32(self.out)
            part = self._take_clipped(y, windows)
            parts.append(slices.where_or_zero(slices.broadcast_like(is_start, part), part))
        return slices.add_terms(parts)

    def _expand(self, vector: IntArray, ndim: int) -> Array:
        return jnp.expand_dims(vector, [axis for axis in range(ndim) if axis != self.axis])

    def _take_clipped(self, x: Array, indices: IntArray) -> Array:
        return jnp.take(x, indices, self.axis, mode="clip")


class FractionalOp(Op):
    """Base class of pools over windows at random starts. Extra arguments: random numbers, one array per pooled axis."""

    dims: tuple[FractionalAxis, ...]
    # The pool with stride 1, which computes an output at every possible start.
    dense_pool: Any

    @property
    def window(self) -> Window:
        """The window of `dense_pool`."""
        dims = [
            Axis(dim.axis, dim.size, dim.width, 1, 1, 0, 0, dim.last_start + 1) for dim in self.dims
        ]
        return Window(tuple(dims))

    def starts(self, samples: Sequence[Array]) -> tuple[Array, ...]:
        """The random starts of the windows, one array per pooled axis."""
        return tuple(dim.starts(u) for dim, u in zip(self.dims, samples, strict=True))

    def _gather_starts(self, platform: Platform, starts: Sequence[Array], y: Array) -> Array:
        """The elements of y at the random starts of the windows, along every pooled axis."""
        for dim, start in zip(self.dims, starts, strict=True):
            y = slices.materialise(barrier_of(platform), dim.gather_at_starts, start, y)
        return y

    def _transpose_at_starts(
        self, platform: Platform, residual: Residual, starts: Sequence[Array], dy: Array
    ) -> tuple[Array]:
        """The cotangent of x: the transpose of `_gather_starts`, then that of `dense_pool` with its `residual`."""
        y = cast(dy, accumulator_dtype(dy.dtype))
        for dim, start in zip(self.dims[::-1], starts[::-1], strict=True):
            y = slices.materialise(barrier_of(platform), dim.add_at_starts, start, y)
        return (cast(self.dense_pool.transpose(platform, residual, y)[0], dy.dtype),)


@dataclasses.dataclass(frozen=True)
class FractionalMax(FractionalOp):
    """Fractional max pool. Residual: the selected tap (window index) at every possible start, and the random starts."""

    dims: tuple[FractionalAxis, ...]
    ties: TieOrder = "first"

    @property
    def dense_pool(self) -> SelectPool:
        return SelectPool(self.window, "max", self.ties)

    def value(self, platform: Platform, x: Array, *samples: Array) -> Array:
        y = slices.materialise(
            barrier_of(platform), functools.partial(self.dense_pool.value, platform), x
        )
        return self._gather_starts(platform, self.starts(samples), y)

    def primal(self, platform: Platform, x: Array, *samples: Array) -> tuple[Array, Residual]:
        starts = self.starts(samples)
        y, tap = self.dense_pool.primal(platform, x)
        return self._gather_starts(platform, starts, y), (tap, starts)

    def position(self, residual: tuple[Array, tuple[Array, ...]]) -> Array:
        """The flat position in the input of the maximum of each window."""
        tap, starts = residual
        for dim, start in zip(self.dims, starts, strict=True):
            tap = dim.gather_at_starts(start, tap)
        return flat_position_of_tap(tap, self.window, starts)

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        tap, starts = residual
        pool_linear = functools.partial(self.dense_pool.linear, platform, tap)
        y = slices.materialise(barrier_of(platform), pool_linear, x_dot)
        return self._gather_starts(platform, starts, y)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        tap, starts = residual
        return self._transpose_at_starts(platform, tap, starts, dy)


@dataclasses.dataclass(frozen=True)
class FractionalMean(FractionalOp):
    """Fractional average pool. Residual: the random numbers."""

    dims: tuple[FractionalAxis, ...]
    linear_in_x = True

    @property
    def dense_pool(self) -> SumPool:
        return SumPool(self.window, "counted")

    def linear(self, platform: Platform, samples: tuple[Array, ...], x: Array) -> Array:
        wide_x = cast(x, accumulator_dtype(x.dtype))
        pool_linear = functools.partial(self.dense_pool.linear, platform, ())
        y = slices.materialise(barrier_of(platform), pool_linear, wide_x)
        return cast(self._gather_starts(platform, self.starts(samples), y), x.dtype)

    def transpose(self, platform: Platform, samples: tuple[Array, ...], dy: Array) -> tuple[Array]:
        return self._transpose_at_starts(platform, (), self.starts(samples), dy)
