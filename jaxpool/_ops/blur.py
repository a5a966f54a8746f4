"""Averages with binomial weights."""

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
from jaxpool._kernels.dtypes import DType, accumulator, cast
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import Grow, Source, added, carry_out
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.max_pool import Pass
from jaxpool._plan.others import blur_groups, blur_layout, keeps_reflected
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.stages import OpPlan, Stage, linear_plan, of_layout
from jaxpool._plan.steps import step_over


@dataclasses.dataclass(frozen=True)
class BlurPool(Op):
    """The average of each window, weighted along each axis of k taps by `C(k - 1, tap) / 2^(k - 1)`; keeps nothing."""

    window: Window

    linear_in_x = True

    def plan(self, on: Platform, x: Any) -> OpPlan:
        shape = over_border(self.window).unpooled(self.window.pooled(x.shape))
        forward: list[Stage] = []
        back: list[Stage] = []
        groups = blur_groups(over_border(self.window), on)
        for group in groups:
            like = jax.ShapeDtypeStruct(shape, accumulator(x.dtype), sharding=x.sharding)
            for stages, turned, last in ((forward, False, groups[-1]), (back, True, groups[0])):
                one, end = _pass(group, like, on, turned=turned), group is last
                reads = [_phases(one, turned=turned)]
                stages.append(of_layout(one.step.axes, reads, one.layout, one, last=end))
            shape = group.pooled(shape)
        return linear_plan(forward, back[::-1], "the border is mirrored before")

    def _reflected(self, x: Array) -> Array:
        sides = {dim.axis: (dim.low, max(0, dim.tail)) for dim in self.window.dims}
        return jnp.pad(x, [sides.get(axis, (0, 0)) for axis in range(x.ndim)], "reflect")

    def _passes(self, x: Array, *, on: Platform, turned: bool) -> Array:
        """Over what is reflected, a group of axes after another, or `turned` from the output to that."""
        groups = blur_groups(over_border(self.window), on)
        for window in groups[::-1] if turned else groups:
            kernel = functools.partial(_weighted, window=window, on=on, turned=turned)
            last = window is groups[0 if turned else -1]
            x = kernel(x) if last else materialise(barrier_on(on), kernel, x)
        return x

    def linear(self, on: Platform, residual: tuple[()], x: Array) -> Array:
        wide = materialise(barrier_on(on), self._reflected, cast(x, accumulator(x.dtype)))
        return cast(self._passes(wide, on=on, turned=False), x.dtype)

    def transpose(self, on: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        wide = cast(dy, accumulator(dy.dtype))
        back = functools.partial(self._passes, on=on, turned=True)
        spread = materialise(barrier_on(on), back, wide) if keeps_reflected(on) else back(wide)
        x = slices.zeros_like(wide, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(self._reflected, x)(spread)
        return (cast(dx, dy.dtype),)


def _pass(window: Window, x: Any, on: Platform, *, turned: bool) -> Pass:
    """The pass over a group of axes."""
    problem = problem_of(window, x, on, window.unpooled(x.shape))
    return Pass(step_over(window.dims), blur_layout(problem, turned=turned))


def _phases(one: Pass, *, turned: bool) -> tuple[Phases, ...]:
    """What a pass reads along each of its axes."""
    return one.step.transposed if turned else one.step.phases


def _weighted(x: Array, *, window: Window, on: Platform, turned: bool) -> Array:
    """The sums of the windows of x, each tap with its weight, or `turned` from sums to elements."""
    lines = [binomial(n, x.dtype) for n in window.window_shape]
    weights = functools.reduce(np.multiply.outer, lines).ravel()
    one = _pass(window, x, on, turned=turned)

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> Array:
        weight = lax.full_like(parts[0], weights[tap])
        return grow(parts[0] * weight, fill=0)

    source = Source([x], [0], _phases(one, turned=turned))
    return carry_out(one.layout, one.step.axes, [source], term, added)


def over_border(window: Window) -> Window:
    """The window over an array to which the border that it reaches was added."""
    return Window(tuple(map(_without_padding, window.dims)))


def _without_padding(dim: Axis) -> Axis:
    return dataclasses.replace(dim, size=dim.low + dim.size + max(0, dim.tail), low=0, high=0)


def binomial(count: int, dtype: DType) -> np.ndarray:
    """The weights of `count` taps, in float64; none less than `dtype` holds as more than 0, so that inf stays inf."""
    line = [math.comb(count - 1, tap) / 2 ** (count - 1) for tap in range(count)]
    return np.maximum(line, float(jnp.finfo(dtype).tiny))
