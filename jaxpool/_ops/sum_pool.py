"""Sum and average pools: linear ops, and the divisors of averages. No op saves x for the backward pass."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal

from jax import Array
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import accumulator_dtype, cast
from jaxpool._kernels.positions import CountKind, elements_per_window
from jaxpool._kernels.sums import Epilogue, window_sum, window_sum_transpose
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.problem import Platform
from jaxpool._plan.sum_pool import plan_sum

# No divisor, the number of elements with or without padding, or a number
Divisor = Literal["not", "counted", "real"] | float


def element_counts(window: Window, kind: CountKind, y: Array) -> Array:
    """The number of elements of each window, at least 1, in the dtype of y; a scalar if all windows have as many."""
    constant = constant_count(window, kind)
    if constant is not None:
        return jnp.asarray(constant, y.dtype)
    return elements_per_window(window, kind, y.ndim, y.dtype)


def constant_count(window: Window, kind: CountKind) -> int | None:
    """The number of elements per window if all windows have the same number, else None."""
    counts = [_constant_count_along(dim, kind) for dim in window.dims]
    constant = [count for count in counts if count is not None]
    return math.prod(constant) if len(constant) == len(counts) else None


@functools.lru_cache(maxsize=1024)
def _constant_count_along(dim: Axis, kind: CountKind) -> int | None:
    """`constant_count` along one axis. Cached, because every average pool with this axis calls the function."""
    count_fn = dim.num_taps_inside if kind == "real" else dim.num_taps_counted
    counts = count_fn(dim.representative_windows()).clip(1)
    return int(counts[0]) if counts.min() == counts.max() else None


@dataclasses.dataclass(frozen=True)
class SumPool(Op):
    """Sum over each window, divided by its number of elements, by a constant, or by an array, the extra argument.

    With `stores_result`, the result is stored in memory. Otherwise XLA recomputes the sums for every use.
    """

    window: Window
    divisor_kind: Divisor = "not"
    stores_result: bool = False

    linear_in_x = True

    def linear(self, platform: Platform, counts: tuple[Array, ...], x: Array) -> Array:
        plan = plan_sum(problem_of(self.window, x, platform))
        epilogue = Epilogue(x.dtype, self._division(counts)[0])
        kernel = functools.partial(window_sum, plan=plan, epilogue=epilogue)
        return slices.materialise(plan.barrier, kernel, x) if self.stores_result else kernel(x)

    def transpose(self, platform: Platform, counts: tuple[Array, ...], dy: Array) -> tuple[Array]:
        shape = self.window.unpooled_shape(dy.shape)
        plan = plan_sum(problem_of(self.window, dy, platform, shape), is_transposed=True)
        (divide, is_constant), epilogue = self._division(counts), Epilogue(dy.dtype)
        if is_constant:
            epilogue = Epilogue(dy.dtype, divide)  # one division per element of dx
        elif divide is not None:
            dy = divide(cast(dy, accumulator_dtype(dy.dtype)))
        kernel = functools.partial(window_sum_transpose, plan=plan, epilogue=epilogue)
        dx = slices.materialise(plan.barrier, kernel, dy) if self.stores_result else kernel(dy)
        return (dx,)

    def _division(self, counts: tuple[Array, ...]) -> tuple[Callable[[Array], Array] | None, bool]:
        """A function that divides sums in the accumulator dtype, or None, and whether all divisors are equal."""
        kind = self.divisor_kind
        if counts:
            return lambda total: total / counts[0], False
        if kind == "not":
            return None, True
        if kind == "counted" or kind == "real":
            is_constant = constant_count(self.window, kind) is not None
            return lambda total: total / element_counts(self.window, kind, total), is_constant
        return lambda total: total / jnp.asarray(kind, total.dtype), True


def sum_pool(window: Window, divisor: Divisor, x: Array, autodiff: Autodiff = "jvp") -> Array:
    """The sum over each window of x, divided as `SumPool` does."""
    return apply(SumPool(window, divisor), x, autodiff=autodiff)
