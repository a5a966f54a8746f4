"""Fractional max and average pools: windows of one width at random starts, which are known only at run time.

An ordinary pool with stride 1 computes every possible window, and the outputs at the random starts are selected. A
gather could select them, but its transpose is a scatter. Random numbers move a start only a little: window i begins at
one of a few places known at trace time (`places_of`). The forward pass reads all of them and selects one. The backward
pass reads, for each place, the few windows that may begin there (`windows_at`) and adds the cotangents of the windows
that do. No direction scatters, so sums are deterministic.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.adaptive import FloorDivisionTable
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import TieOrder
from jaxpool._kernels.dtypes import accumulator_dtype, cast
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import flat_position_of_tap, int32_iota, scaled_floor_division
from jaxpool._ops.op import Op
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_of


@dataclasses.dataclass(frozen=True)
class FractionalAxis:
    """`out` windows of `width` elements over an axis of `size` elements, at nearly equal distances."""

    axis: int
    size: int
    width: int
    out: int
    random_dtype: str = "float32"  # dtype of the random numbers, or a less precise dtype

    @property
    def last_start(self) -> int:
        """The last possible start, which is the start of the last window."""
        return self.size - self.width

    def starts(self, sample: Array) -> Array:
        """The starts of the windows along the axis, from random numbers with size 1 there."""
        sample = jnp.moveaxis(sample, self.axis, -1)
        last_start = lax.full_like(sample, self.last_start, np.int32)
        if self.out == 1:
            return jnp.moveaxis(last_start, -1, self.axis)
        dtype = sample.dtype.type
        alpha = dtype(self.last_start) / dtype(self.out - 1)
        i = int32_iota(self.out - 1).astype(dtype).reshape((1,) * (sample.ndim - 1) + (-1,))
        earlier_starts = ((i + sample) * alpha).astype(np.int32) - (sample * alpha).astype(np.int32)
        return jnp.moveaxis(
            lax.concatenate([earlier_starts, last_start], sample.ndim - 1), -1, self.axis
        )

    @property
    def _start_offsets(self) -> range:
        """The possible offsets of the start of window i from `i * last // (out - 1)`.

        A random number moves a start by at most 1. Rounding may move it back by 1 if the exact start is an integer. On
        long axes it moves any start in both directions, by up to four rounding errors of the last start.
        """
        if self.out == 1:
            return range(1)
        rounding = 2 * float(jnp.finfo(self.random_dtype).eps)
        error = math.ceil(self.size * rounding) if self.size * self.out * rounding >= 1 else 0
        has_exact_start = int(math.gcd(self.last_start, self.out - 1) > 1)
        return range(-max(error, has_exact_start), 2 + error)

    def possible_starts(self) -> list[Any]:
        """One vector of window starts per possible offset: a NumPy array, or a traced array on long axes."""
        window_index = int32_iota(self.out)
        exact_start = window_index + np.int32(self.last_start)  # the start of a single window
        if self.out > 1:
            exact_start = scaled_floor_division(
                FloorDivisionTable(self.out, self.last_start, self.out - 1), window_index
            )
        return [
            (exact_start + np.int32(offset)).clip(0, self.last_start)
            for offset in self._start_offsets
        ]

    def possible_windows(self) -> list[Any]:
        """Vectors with one window per place, which may begin there; `out` or more means no window."""
        start = int32_iota(self.last_start + 1)
        if self.out == 1:
            return [np.int32(self.last_start) - start]
        gaps, offsets = self.out - 1, self._start_offsets
        exact_start = (start - np.int32(offsets[-1])).clip(0)
        round_up = self.last_start - 1
        first_window = scaled_floor_division(
            FloorDivisionTable(self.last_start + 1, gaps, self.last_start), exact_start, round_up
        )
        return [
            first_window + np.int32(k) for k in range(-(-len(offsets) * gaps // self.last_start))
        ]

    def gather_at_starts(self, start: Array, x: Array) -> Array:
        """The elements of x, which has one per possible start, at the starts of the windows."""
        first_candidate, *other_candidates = self.possible_starts()
        y = self._take_clipped(x, first_candidate)
        for candidates in other_candidates:
            is_start = lax.eq(
                start, slices.broadcast_like(self._expand_vector(candidates, start.ndim), start)
            )
            y = lax.select(slices.broadcast_like(is_start, y), self._take_clipped(x, candidates), y)
        return y

    def add_at_starts(self, start: Array, y: Array) -> Array:
        """The transpose of `gather_at_starts`."""
        position, parts = (
            self._expand_vector(jnp.arange(self.last_start + 1, dtype=np.int32), y.ndim),
            [],
        )
        for windows in self.possible_windows():
            is_start = lax.bitwise_and(
                self._take_clipped(start, windows) == position,
                self._expand_vector(windows, y.ndim) < np.int32(self.out),
            )
            part = self._take_clipped(y, windows)
            parts.append(slices.where_or_zero(slices.broadcast_like(is_start, part), part))
        return functools.reduce(lax.add, parts)

    def _expand_vector(self, vector: Any, ndim: int) -> Any:
        return jnp.expand_dims(vector, [axis for axis in range(ndim) if axis != self.axis])

    def _take_clipped(self, x: Array, indices: Any) -> Array:
        return jnp.take(x, indices, self.axis, mode="clip")


@dataclasses.dataclass(frozen=True)
class FractionalOp(Op):
    """Base class of pools over random windows. Extra arguments: one array of random numbers per pooled axis."""

    dims: tuple[FractionalAxis, ...]

    @property
    def window(self) -> Window:
        """The window of the pool over all possible starts."""
        dims = [(d.axis, d.size, d.width, d.last_start + 1) for d in self.dims]
        return Window(
            tuple(Axis(axis, size, width, 1, 1, 0, 0, n) for axis, size, width, n in dims)
        )

    def starts(self, samples: Sequence[Array]) -> tuple[Array, ...]:
        """The starts of the windows along each axis."""
        pairs = zip(self.dims, samples, strict=True)
        return tuple(dim.starts(sample) for dim, sample in pairs)

    @property
    def pool(self) -> SelectPool | SumPool:
        """The pool of the windows at all possible starts."""
        raise NotImplementedError

    def _gather_starts(self, platform: Platform, starts: Sequence[Array], y: Array) -> Array:
        """The elements of y at the starts of the windows."""
        for dim, start in zip(self.dims, starts, strict=True):
            y = materialise(barrier_of(platform), dim.gather_at_starts, start, y)
        return y

    def _transposed(
        self, platform: Platform, residual: Any, starts: Sequence[Array], dy: Array
    ) -> tuple[Array]:
        """The transpose of `_gather_starts`, and of the pool with its `residual`."""
        y = cast(dy, accumulator_dtype(dy.dtype))
        for dim, start in zip(self.dims[::-1], starts[::-1], strict=True):
            y = materialise(barrier_of(platform), dim.add_at_starts, start, y)
        return (cast(self.pool.transpose(platform, residual, y)[0], dy.dtype),)


@dataclasses.dataclass(frozen=True)
class FractionalMax(FractionalOp):
    """Fractional max pool. Residual: the tap that the window at each place selects, and the starts."""

    ties: TieOrder = "first"

    @property
    def pool(self) -> SelectPool:
        return SelectPool(self.window, "max", self.ties)

    def value(self, platform: Platform, x: Array, *samples: Array) -> Array:
        y = materialise(barrier_of(platform), functools.partial(self.pool.value, platform), x)
        return self._gather_starts(platform, self.starts(samples), y)

    def primal(self, platform: Platform, x: Array, *samples: Array) -> tuple[Array, Any]:
        starts = self.starts(samples)
        y, tap = self.pool.primal(platform, x)
        return self._gather_starts(platform, starts, y), (tap, starts)

    def position(self, residual: tuple[Array, tuple[Array, ...]]) -> Array:
        """The flat position of each maximum in the input."""
        tap, starts = residual
        for dim, start in zip(self.dims, starts, strict=True):
            tap = dim.gather_at_starts(start, tap)
        return flat_position_of_tap(tap, self.window, starts, self.window.input_shape)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        tap, starts = residual
        all_outputs = materialise(
            barrier_of(platform), functools.partial(self.pool.linear, platform), tap, x_dot
        )
        return self._gather_starts(platform, starts, all_outputs)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        tap, starts = residual
        return self._transposed(platform, tap, starts, dy)


@dataclasses.dataclass(frozen=True)
class FractionalMean(FractionalOp):
    """Fractional average pool. Residual: the random numbers."""

    linear_in_x = True

    @property
    def pool(self) -> SumPool:
        return SumPool(self.window, "counted")

    def linear(self, platform: Platform, samples: tuple[Array, ...], x: Array) -> Array:
        mean = functools.partial(self.pool.linear, platform, ())
        all_outputs = materialise(barrier_of(platform), mean, cast(x, accumulator_dtype(x.dtype)))
        return cast(self._gather_starts(platform, self.starts(samples), all_outputs), x.dtype)

    def transpose(self, platform: Platform, samples: tuple[Array, ...], dy: Array) -> tuple[Array]:
        return self._transposed(platform, (), self.starts(samples), dy)
