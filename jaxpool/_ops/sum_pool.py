"""Sum and average pools: linear ops, and the divisors of averages. No op saves x for the backward pass."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast
from jaxpool._kernels.positions import int32_iota, num_taps_inside_windows
from jaxpool._kernels.sums import Epilogue, window_sum, window_sum_transpose
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.sum_pool import plan_sum

CountKind = Literal["counted", "real"]  # elements of input and padding, or of the input only


def element_counts(window: Window, kind: CountKind, y: Array) -> Array:
    """The number of elements of each window, at least 1, in the dtype of y; a scalar if all windows have as many."""
    constant = constant_count(window, kind)
    if constant is not None:
        return jnp.asarray(constant, y.dtype)
    counts = [counts_along(dim, kind).astype(y.dtype) for dim in window.dims]
    return slices.outer_broadcast(jnp.multiply, counts, window.axes, y.ndim)


def constant_count(window: Window, kind: CountKind) -> int | None:
    """The number of elements per window if all windows have the same number, else None."""
    counts = [_constant_count_along(dim, kind) for dim in window.dims]
    constant = [count for count in counts if count is not None]
    return math.prod(constant) if len(constant) == len(counts) else None


@functools.lru_cache(maxsize=1024)
def _constant_count_along(dim: Axis, kind: CountKind) -> int | None:
    """`constant_count` along one axis. Cached, because every average pool with this axis calls the function."""
    outputs = dim.representative_windows()
    counts = (
        dim.num_taps_inside(outputs) if kind == "real" else dim.num_taps_counted(outputs)
    ).clip(1)
    return int(counts[0]) if counts.min() == counts.max() else None


def counts_along(dim: Axis, kind: CountKind) -> Any:
    """The number of elements of each window along an axis, at least 1. Without padding, the result has one entry."""
    if not dim.is_padded:
        return np.array([dim.window])
    return (
        num_taps_inside_windows(dim)
        if kind == "real"
        else dim.num_taps_counted(int32_iota(dim.out))
    ).clip(1)


@dataclasses.dataclass(frozen=True)
class SumPool(Op):
    """Sum over each window, divided by its number of elements or by a constant. No residual."""

    window: Window
    divisor_kind: Literal["not", "counted", "real"] | float = "not"

    linear_in_x = True

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        plan = plan_sum(problem_of(self.window, x, platform))
        return window_sum(x, plan, self._epilogue(x.dtype))

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        shape = self.window.unpooled_shape(dy.shape)
        plan = plan_sum(problem_of(self.window, dy, platform, shape), is_transposed=True)
        wide_dy = cast(dy, accumulator_dtype(dy.dtype))
        if self._has_constant_divisor():  # one division per element of dx, after the sum
            return (window_sum_transpose(dy, plan, self._epilogue(dy.dtype)),)
        return (window_sum_transpose(self._divide_sum(wide_dy), plan, Epilogue(dy.dtype)),)

    def _epilogue(self, dtype: DType) -> Epilogue:
        return Epilogue(dtype, None if self.divisor_kind == "not" else self._divide_sum)

    def _divide_sum(self, y: Array) -> Array:
        return y if self.divisor_kind == "not" else y / self._divisor(y)

    def _has_constant_divisor(self) -> bool:
        """True if all windows have the same divisor."""
        if self.divisor_kind != "counted" and self.divisor_kind != "real":
            return True
        return constant_count(self.window, self.divisor_kind) is not None

    def _divisor(self, y: Array) -> Array:
        """The divisor with the dtype of y: a scalar, or an array that broadcasts to y."""
        if self.divisor_kind == "counted" or self.divisor_kind == "real":
            return element_counts(self.window, self.divisor_kind, y)
        return jnp.asarray(1 if self.divisor_kind == "not" else self.divisor_kind, y.dtype)


@dataclasses.dataclass(frozen=True)
class CountedAverage(Op):
    """Sum over each window divided by a count. The array of counts is the extra argument and the residual."""

    window: Window

    linear_in_x = True

    def linear(self, platform: Platform, extra_args: tuple[Array], x: Array) -> Array:
        plan = plan_sum(problem_of(self.window, x, platform))
        return window_sum(x, plan, Epilogue(x.dtype, lambda total: total / extra_args[0]))

    def transpose(self, platform: Platform, extra_args: tuple[Array], dy: Array) -> tuple[Array]:
        shape = self.window.unpooled_shape(dy.shape)
        plan = plan_sum(problem_of(self.window, dy, platform, shape), is_transposed=True)
        wide_dy = cast(dy, accumulator_dtype(dy.dtype)) / extra_args[0]
        return (window_sum_transpose(wide_dy, plan, Epilogue(dy.dtype)),)
