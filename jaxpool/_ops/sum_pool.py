"""Sums over windows and what they are divided by: the op of sum and average pools."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator, cast
from jaxpool._kernels.sums import Epilogue, window_spread, window_sum
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.sum_pool import plan_sum


def element_counts(window: Window, kind: Literal["counted", "real"], y: Array) -> np.ndarray:
    """How many elements each window has, at least 1, in the rank and type of the output y."""
    counts = np.ones((1,) * y.ndim, y.dtype)
    for dim in window.dims:
        along = np.asarray(counts_along(dim, kind), y.dtype)
        counts = counts * slices.along(along, dim.axis, y.ndim)
    return counts


@functools.lru_cache(maxsize=16)  # asked for several times a trace; long axes make long tuples
def counts_along(dim: Axis, kind: Literal["counted", "real"]) -> tuple[int, ...]:
    """How many elements each window of an axis has along it, at least 1."""
    count = dim.real if kind == "real" else dim.counted
    return tuple(max(1, count(output)) for output in range(dim.out))


@dataclasses.dataclass(frozen=True)
class SumPool(Op):
    """The sum over each window, divided by what `divide` says; keeps nothing."""

    window: Window
    divide: Literal["not", "counted", "real"] | float = "not"

    linear_in_x = True

    def linear(self, on: Platform, residual: tuple[()], x: Array) -> Array:
        plan = plan_sum(problem_of(self.window, x, on))
        return window_sum(x, plan, self._epilogue(x.dtype))

    def transpose(self, on: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        shape = self.window.unpooled(dy.shape)
        plan = plan_sum(problem_of(self.window, dy, on, shape), transposed=True)
        wide = cast(dy, accumulator(dy.dtype))
        if self._divisor(wide).ndim == 0:  # one division an element of x, not one a term
            return (window_spread(dy, plan, self._epilogue(dy.dtype)),)
        return (window_spread(self._divided(wide), plan, Epilogue(dy.dtype)),)

    def _epilogue(self, dtype: DType) -> Epilogue:
        return Epilogue(dtype, None if self.divide == "not" else self._divided)

    def _divided(self, y: Array) -> Array:
        return y if self.divide == "not" else y / jnp.asarray(self._divisor(y))

    def _divisor(self, y: Array) -> np.ndarray:
        """What y is divided by, in its type: a scalar, or a table that broadcasts to y."""
        if self.divide == "not":
            return np.ones((), y.dtype)
        if not isinstance(self.divide, str):
            return np.asarray(self.divide, y.dtype)
        counts = element_counts(self.window, self.divide, y)
        return counts.ravel()[0:1].reshape(()) if (counts == counts.flat[0]).all() else counts
