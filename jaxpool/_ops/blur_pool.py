"""Averages with binomial weights."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jax import Array, lax

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import accumulator, cast
from jaxpool._kernels.keep import keep
from jaxpool._kernels.passes import Grow, Source, carry_out
from jaxpool._ops.op import Op
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.problem import Platform, keep_on
from jaxpool._plan.steps import Step, step_over
from jaxpool._plan.tuning import TUNING


def blur_steps(window: Window, on: Platform) -> tuple[Step, ...]:
    """Small windows in one step, large ones an axis at a time."""
    if window.size <= TUNING[on].pass_taps:
        return (step_over(window.dims),)
    return tuple(step_over([dim]) for dim in reversed(window.dims))


@dataclasses.dataclass(frozen=True)
class BlurPool(Op):
    """The average of each window with the weights `C(k - 1, tap) / 2^(k - 1)` along each axis; keeps nothing."""

    window: Window

    linear_in_x = True

    def _weights(self, step: Step) -> np.ndarray:
        """Of each flat tap of a step."""
        rows = [
            [math.comb(len(a.taps) - 1, tap) for tap in range(len(a.taps))] for a in step.accesses
        ]
        weights = np.asarray([math.prod(each) for each in itertools.product(*rows)], float)
        return weights / weights.sum()

    def _carried_out(self, on: Platform, x: Array, *, turned: bool) -> Array:
        y = cast(x, accumulator(x.dtype))
        steps = blur_steps(self.window, on)
        for step in reversed(steps) if turned else steps:
            kernel = functools.partial(_pass, step, self._weights(step), turned)
            y = kernel(y) if len(steps) == 1 else keep(keep_on(on), kernel, y)
        return cast(y, x.dtype)

    def linear(self, on: Platform, residual: tuple[()], x: Array) -> Array:
        return self._carried_out(on, x, turned=False)

    def transpose(self, on: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        return (self._carried_out(on, dy, turned=True),)


def _pass(step: Step, weights: np.ndarray, turned: bool, x: Array) -> Array:
    phases = step.transposed if turned else step.phases

    def term(tap: int, parts: Sequence[Array], grow: Grow) -> Array:
        return grow(parts[0] * lax.full_like(parts[0], weights[tap]), 0)

    return carry_out(in_one_region(phases), step.axes, [Source([x], [0], phases)], term, lax.add)
