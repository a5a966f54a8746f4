"""Averages with binomial weights."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import accumulator, cast
from jaxpool._kernels.keep import keep
from jaxpool._kernels.passes import Grow, Source, added, carry_out
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.others import keeps_reflected
from jaxpool._plan.problem import Platform, keep_on


@dataclasses.dataclass(frozen=True)
class BlurPool(Op):
    """The average of each window, weighted along each axis of k taps by `C(k - 1, tap) / 2^(k - 1)`; keeps nothing."""

    window: Window

    linear_in_x = True

    def _reflected(self, x: Array) -> Array:
        sides = {dim.axis: (dim.low, max(0, dim.tail)) for dim in self.window.dims}
        return jnp.pad(x, [sides.get(axis, (0, 0)) for axis in range(x.ndim)], "reflect")

    def _pass(self, x: Array, *, on: Platform, turned: bool) -> Array:
        """Over what is reflected, or `turned` from the output to that."""
        sizes = self.window.window_shape
        rows = [[math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)] for n in sizes]
        weights = functools.reduce(np.multiply.outer, map(np.asarray, rows)).ravel()
        window = over_border(self.window)
        shape = window.unpooled(x.shape)
        plan = plan_ties(problem_of(window, x, on, shape))
        step = plan.step
        phases = step.transposed if turned else step.phases
        layout = plan.layout if turned else in_one_region(phases)

        def term(tap: int, parts: Sequence[Array], grow: Grow) -> Array:
            weight = lax.full_like(parts[0], weights[tap])
            return grow(parts[0] * weight, fill=0)

        source = Source([x], [0], phases)
        return carry_out(layout, step.axes, [source], term, added)

    def linear(self, on: Platform, residual: tuple[()], x: Array) -> Array:
        wide = keep(keep_on(on), self._reflected, cast(x, accumulator(x.dtype)))
        return cast(self._pass(wide, on=on, turned=False), x.dtype)

    def transpose(self, on: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        wide = cast(dy, accumulator(dy.dtype))
        back = functools.partial(self._pass, on=on, turned=True)
        spread = keep(keep_on(on), back, wide) if keeps_reflected(on) else back(wide)
        x = slices.zeros_like(wide, self.window.axes, self.window.input_shape)
        (dx,) = jax.linear_transpose(self._reflected, x)(spread)
        return (cast(dx, dy.dtype),)


def over_border(window: Window) -> Window:
    """The window over an array to which the border that it reaches was added."""
    return Window(tuple(map(_without_padding, window.dims)))


def _without_padding(dim: Axis) -> Axis:
    return dataclasses.replace(dim, size=dim.low + dim.size + max(0, dim.tail), low=0, high=0)
