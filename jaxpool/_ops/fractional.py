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
from jaxpool._kernels.positions import flat_position_of_tap, int32_range, scaled_floor_division
from jaxpool._ops.op import Op
from jaxpool._ops.select_pool import SelectPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_on


@dataclasses.dataclass(frozen=True)
class RandomAxis:
    """`out` windows of `width` elements over an axis of `size` elements, at nearly equal distances."""

    axis: int
    size: int
    width: int
    out: int
    chance: str = "float32"  # dtype of the random numbers, or a less precise dtype

    @property
    def last(self) -> int:
        """The last possible start, which is the start of the last window."""
        return self.size - self.width

    def starts(self, sample: Array) -> Array:
        """The starts of the windows along the axis, from random numbers with size 1 there."""
        sample = jnp.moveaxis(sample, self.axis, -1)
        last = lax.full_like(sample, self.last, np.int32)
        if self.out == 1:
            return jnp.moveaxis(last, -1, self.axis)
        dtype = sample.dtype.type
        alpha = dtype(self.last) / dtype(self.out - 1)
        i = int32_range(self.out - 1).astype(dtype).reshape((1,) * (sample.ndim - 1) + (-1,))
        before = ((i + sample) * alpha).astype(np.int32) - (sample * alpha).astype(np.int32)
        return jnp.moveaxis(lax.concatenate([before, last], sample.ndim - 1), -1, self.axis)

    @property
    def _strays(self) -> range:
        """The possible offsets of the start of window i from `i * last // (out - 1)`.

        A random number moves a start by at most 1. Rounding may move it back by 1 if the exact start is an integer. On
        long axes it moves any start in both directions, by up to four rounding errors of the last start.
        """
        if self.out == 1:
            return range(1)
        rounding = 2 * float(jnp.finfo(self.chance).eps)
        error = math.ceil(self.size * rounding) if self.size * self.out * rounding >= 1 else 0
        exact = int(math.gcd(self.last, self.out - 1) > 1)
        return range(-max(error, exact), 2 + error)

    def places_of(self) -> list[Any]:
        """One vector of window starts per possible offset: a NumPy array, or a traced array on long axes."""
        number = int32_range(self.out)
        exact = number + np.int32(self.last)  # the start of a single window
        if self.out > 1:
            exact = scaled_floor_division(
                FloorDivisionTable(self.out, self.last, self.out - 1), number
            )
        return [(exact + np.int32(stray)).clip(0, self.last) for stray in self._strays]

    def windows_at(self) -> list[Any]:
        """Vectors with one window per place, which may begin there; `out` or more means no window."""
        place = int32_range(self.last + 1)
        if self.out == 1:
            return [np.int32(self.last) - place]
        gaps, strays = self.out - 1, self._strays
        before = (place - np.int32(strays[-1])).clip(0)
        round_up = self.last - 1
        first = scaled_floor_division(
            FloorDivisionTable(self.last + 1, gaps, self.last), before, round_up
        )
        return [first + np.int32(k) for k in range(-(-len(strays) * gaps // self.last))]

    def at_starts(self, start: Array, x: Array) -> Array:
        """The elements of x, which has one per possible start, at the starts of the windows."""
        first, *others = self.places_of()
        y = self._taken(x, first)
        for places in others:
            begins = lax.eq(start, slices.broadcast_like(self._along(places, start.ndim), start))
            y = lax.select(slices.broadcast_like(begins, y), self._taken(x, places), y)
        return y

    def to_starts(self, start: Array, y: Array) -> Array:
        """The transpose of `at_starts`."""
        place, parts = self._along(jnp.arange(self.last + 1, dtype=np.int32), y.ndim), []
        for windows in self.windows_at():
            begins = lax.bitwise_and(
                self._taken(start, windows) == place,
                self._along(windows, y.ndim) < np.int32(self.out),
            )
            part = self._taken(y, windows)
            parts.append(slices.where_or_zero(slices.broadcast_like(begins, part), part))
        return functools.reduce(lax.add, parts)

    def _along(self, vector: Any, ndim: int) -> Any:
        return jnp.expand_dims(vector, [axis for axis in range(ndim) if axis != self.axis])

    def _taken(self, x: Array, at: Any) -> Array:
        return jnp.take(x, at, self.axis, mode="clip")


@dataclasses.dataclass(frozen=True)
class Fractional(Op):
    """Base class of pools over random windows. Extra arguments: one array of random numbers per pooled axis."""

    dims: tuple[RandomAxis, ...]

    @property
    def window(self) -> Window:
        """The window of the pool over all possible starts."""
        dims = [(d.axis, d.size, d.width, d.last + 1) for d in self.dims]
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

    def _begun(self, platform: Platform, starts: Sequence[Array], y: Array) -> Array:
        """The elements of y at the starts of the windows."""
        for dim, start in zip(self.dims, starts, strict=True):
            y = materialise(barrier_on(platform), dim.at_starts, start, y)
        return y

    def _transposed(
        self, platform: Platform, residual: Any, starts: Sequence[Array], dy: Array
    ) -> tuple[Array]:
        """The transpose of `_begun`, and of the pool with its `residual`."""
        y = cast(dy, accumulator_dtype(dy.dtype))
        for dim, start in zip(self.dims[::-1], starts[::-1], strict=True):
            y = materialise(barrier_on(platform), dim.to_starts, start, y)
        return (cast(self.pool.transpose(platform, residual, y)[0], dy.dtype),)


@dataclasses.dataclass(frozen=True)
class FractionalPool(Fractional):
    """Fractional max pool. Residual: the tap that the window at each place selects, and the starts."""

    ties: TieOrder = "first"

    @property
    def pool(self) -> SelectPool:
        return SelectPool(self.window, "max", self.ties)

    def value(self, platform: Platform, x: Array, *samples: Array) -> Array:
        y = materialise(barrier_on(platform), functools.partial(self.pool.value, platform), x)
        return self._begun(platform, self.starts(samples), y)

    def primal(self, platform: Platform, x: Array, *samples: Array) -> tuple[Array, Any]:
        starts = self.starts(samples)
        y, tap = self.pool.primal(platform, x)
        return self._begun(platform, starts, y), (tap, starts)

    def position(self, residual: tuple[Array, tuple[Array, ...]]) -> Array:
        """The flat position of each maximum in the input."""
        tap, starts = residual
        for dim, start in zip(self.dims, starts, strict=True):
            tap = dim.at_starts(start, tap)
        return flat_position_of_tap(tap, self.window, starts, self.window.input_shape)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        tap, starts = residual
        every = materialise(
            barrier_on(platform), functools.partial(self.pool.linear, platform), tap, x_dot
        )
        return self._begun(platform, starts, every)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        tap, starts = residual
        return self._transposed(platform, tap, starts, dy)


@dataclasses.dataclass(frozen=True)
class FractionalMean(Fractional):
    """Fractional average pool. Residual: the random numbers."""

    linear_in_x = True

    @property
    def pool(self) -> SumPool:
        return SumPool(self.window, "counted")

    def linear(self, platform: Platform, samples: tuple[Array, ...], x: Array) -> Array:
        mean = functools.partial(self.pool.linear, platform, ())
        every = materialise(barrier_on(platform), mean, cast(x, accumulator_dtype(x.dtype)))
        return cast(self._begun(platform, self.starts(samples), every), x.dtype)

    def transpose(self, platform: Platform, samples: tuple[Array, ...], dy: Array) -> tuple[Array]:
        return self._transposed(platform, (), self.starts(samples), dy)
