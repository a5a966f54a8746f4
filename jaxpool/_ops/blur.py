"""Averages with binomial weights, in one pass per group of axes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import Phases
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import PadToRegion, Source, add_terms, run_pass
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.blur import blur_groups, blur_layout
from jaxpool._plan.max_pool import Pass
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.steps import step_over
from jaxpool._plan.tuning import tuning


@dataclasses.dataclass(frozen=True)
class BlurPool(Op):
    """The average of each window with weights `C(k - 1, tap) / 2^(k - 1)` along each axis of k taps. No residual."""

    window: Window

    linear_in_x = True

    def _reflected(self, x: Array) -> Array:
        sides = {dim.axis: (dim.low, max(0, dim.tail)) for dim in self.window.dims}
        return jnp.pad(x, [sides.get(axis, (0, 0)) for axis in range(x.ndim)], "reflect")

    def _passes(self, x: Array, *, platform: Platform, transposed: bool) -> Array:
        """The passes over x with its reflected border, or with `transposed` from the output back to it."""
        groups = blur_groups(over_border(self.window), platform)
        for window in groups[::-1] if transposed else groups:
            kernel = functools.partial(
                _weighted, window=window, platform=platform, transposed=transposed
            )
            last = window is groups[0 if transposed else -1]
            x = kernel(x) if last else materialise(barrier_on(platform), kernel, x)
        return x

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        wide = materialise(
            barrier_on(platform), self._reflected, cast(x, accumulator_dtype(x.dtype))
        )
        return cast(self._passes(wide, platform=platform, transposed=False), x.dtype)

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        wide = cast(dy, accumulator_dtype(dy.dtype))
        back = functools.partial(self._passes, platform=platform, transposed=True)
        spread = (
            materialise(barrier_on(platform), back, wide)
            if tuning(platform).reflected_apart
            else back(wide)
        )
        x = slices.zeros_like_with_sizes(wide, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(self._reflected, x)(spread)
        return (cast(dx, dy.dtype),)


def _pass(window: Window, x: Any, platform: Platform, *, transposed: bool) -> Pass:
    """The pass over one group of axes."""
    problem = problem_of(window, x, platform, window.unpooled(x.shape))
    return Pass(step_over(window.dims), blur_layout(problem, transposed=transposed))


def _phases(one: Pass, *, transposed: bool) -> tuple[Phases, ...]:
    """The accesses of a pass along each of its axes."""
    return one.step.transposed if transposed else one.step.phases


def _weighted(x: Array, *, window: Window, platform: Platform, transposed: bool) -> Array:
    """The weighted sums over the windows of x, or the `transposed` sums over the windows of each element."""
    lines = [binomial(n, x.dtype) for n in window.window_shape]
    weights = functools.reduce(np.multiply.outer, lines).ravel()
    one = _pass(window, x, platform, transposed=transposed)

    def term(tap: int, parts: Sequence[Array], grow: PadToRegion) -> Array:
        weight = lax.full_like(parts[0], weights[tap])
        return grow(parts[0] * weight, fill=0)

    source = Source([x], [0], _phases(one, transposed=transposed))
    return run_pass(one.layout, one.step.axes, [source], term, add_terms)


def over_border(window: Window) -> Window:
    """The window without padding, for an array that includes the border."""
    return Window(tuple(map(_without_padding, window.dims)))


def _without_padding(dim: Axis) -> Axis:
    return dataclasses.replace(dim, size=dim.low + dim.size + max(0, dim.tail), low=0, high=0)


def binomial(count: int, dtype: DType) -> np.ndarray:
    """The weights of `count` taps in float64, at least the smallest normal number of `dtype`, so that inf stays inf."""
    line = [math.comb(count - 1, tap) / 2 ** (count - 1) for tap in range(count)]
    return np.maximum(line, float(jnp.finfo(dtype).tiny))
