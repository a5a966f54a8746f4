"""Max and min pools over windows. `pool_op` chooses the op by the window and the handling of ties.

The ops differ in their residual. If x contains masked elements or padding of a shard, an extra argument of `primal`
marks the elements that may be selected.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import Kind, TieOrder, Ties, reduction_identity
from jaxpool._kernels.select import pick, route, select, select_value
from jaxpool._kernels.select_and_scatter import select_and_scatter, shared_window_extrema
from jaxpool._kernels.slices import materialise
from jaxpool._kernels.split_ties import (
    BitWords,
    mean_of_tied_elements,
    mean_of_tied_elements_transpose,
    tie_bits_of_input,
)
from jaxpool._ops.chosen import TapResidualPool
from jaxpool._ops.op import Op, problem_of, tracing_platform
from jaxpool._ops.reduction import Reduction
from jaxpool._plan.max_pool import (
    MaxPlan,
    choose_residual,
    plan_max,
    plan_scatter,
    uses_select_and_scatter,
)
from jaxpool._plan.problem import Platform


def _max_plan(window: Window, x: Array, platform: Platform) -> MaxPlan:
    return plan_max(problem_of(window, x, platform))


def _transpose_plan(window: Window, dy: Array, platform: Platform) -> MaxPlan:
    return plan_max(problem_of(window, dy, platform, window.unpooled_shape(dy.shape)))


@dataclasses.dataclass(frozen=True)
class MaxPool(Op):
    """Base class of max and min pools."""

    window: Window
    kind: Kind
    ties: TieOrder = "first"  # tie order in `value`

    def value(self, platform: Platform, x: Array) -> Array:
        return select_value(x, self.kind, self.ties, _max_plan(self.window, x, platform))


@dataclasses.dataclass(frozen=True)
class SelectPool(MaxPool):
    """Max or min pool that selects one element per window. Residual: its tap (window index), an integer per output.

    `inside_taps` optionally holds the first (for ties "last", the last) tap of each window that may be selected.
    """

    def primal(self, platform: Platform, x: Array, *inside_taps: Array) -> tuple[Array, Array]:
        plan = _max_plan(self.window, x, platform)
        kernel = functools.partial(
            select, window=self.window, kind=self.kind, ties=self.ties, plan=plan
        )
        y, index = materialise(plan.barrier, kernel, x)
        for bound in inside_taps:
            min_or_max = lax.min if self.ties == "last" else lax.max
            index = min_or_max(index, jnp.broadcast_to(bound, index.shape))
        return y, index

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        return pick(x_dot, index, _max_plan(self.window, x_dot, platform))

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        return (route(dy, index, _transpose_plan(self.window, dy, platform)),)


@dataclasses.dataclass(frozen=True)
class InputResidualPool(SelectPool):
    """Max or min pool that selects one element per window. Residual: x, so that the backward pass selects again."""

    def saved_residual(self, y: Any, *args: Any) -> Any:
        return args

    def value_with_residual(self, platform: Platform, x: Array) -> Array:
        problem = problem_of(self.window, x, platform)
        if not uses_select_and_scatter(problem):
            return self.value(platform, x)
        return shared_window_extrema(x, self.kind, plan_scatter(problem))

    def linear(self, platform: Platform, residual: tuple[Array], x_dot: Array) -> Array:
        return super().linear(platform, self.primal(platform, *residual)[1], x_dot)

    def transpose(self, platform: Platform, residual: tuple[Array], dy: Array) -> tuple[Array]:
        (x,) = residual
        problem = problem_of(self.window, x, platform)
        if not uses_select_and_scatter(problem):
            return super().transpose(platform, self.primal(platform, x)[1], dy)
        plan = plan_scatter(problem)
        return (select_and_scatter(x, dy, self.kind, self.ties, plan),)


@dataclasses.dataclass(frozen=True)
class TieBitsPool(TapResidualPool, MaxPool):
    """Max or min pool with ties "split". Residual: one bit per tap (window index), set where the tap ties.

    `inside_bits` optionally holds one bit per tap, set where the tap may be selected.
    """

    materialises_inputs = True

    def primal(self, platform: Platform, x: Array, *inside_bits: Array) -> tuple[Array, BitWords]:
        def kernel(x: Array) -> tuple[Array, BitWords]:
            y = self.value(platform, x)
            return y, tie_bits_of_input(x, y, self.window, reduction_identity(x.dtype, self.kind))

        y, words = materialise(_max_plan(self.window, x, platform).barrier, kernel, x)
        if inside_bits:
            pairs = zip(words, inside_bits, strict=True)
            words = tuple(word & jnp.broadcast_to(bits, word.shape) for word, bits in pairs)
        return y, words


@dataclasses.dataclass(frozen=True)
class FindTiesPool(MaxPool):
    """Max or min pool over large windows with ties "split". Residual: x, y and `inside_mask`.

    `inside_mask` is an optional bool array that broadcasts to x, False at elements that may not be selected.
    """

    materialises_inputs = True
    materialises_residual = True

    def primal(self, platform: Platform, x: Array, *mask: Array) -> tuple[Array, tuple[Array, ...]]:
        y: Array = materialise(
            _max_plan(self.window, x, platform).barrier, functools.partial(self.value, platform), x
        )
        return y, (x, y, *mask)

    def linear(self, platform: Platform, residual: tuple[Array, ...], x_dot: Array) -> Array:
        x, _, *mask = residual
        return mean_of_tied_elements(x_dot, x, self.window, self.kind, *mask)

    def transpose(self, platform: Platform, residual: tuple[Array, ...], dy: Array) -> tuple[Array]:
        x, y, *mask = residual
        return (mean_of_tied_elements_transpose(dy, x, y, self.window, self.kind, *mask),)


def pool_op(window: Window, kind: Kind, ties: Ties | TieOrder, *, saves_index: bool = False) -> Op:
    """The op of a max or min pool. With `saves_index`, its residual is an index, unless ties are split."""
    if ties == "last_nan":
        return SelectPool(window, kind, ties)
    residual_kind = choose_residual(
        window, split=ties == "split", platform="portable" if saves_index else tracing_platform()
    )
    if residual_kind == "rank":
        return Reduction(kind, ties, window.axes, window.input_shape)
    if ties != "split":
        return (InputResidualPool if residual_kind == "input" else SelectPool)(window, kind, ties)
    return (TieBitsPool if residual_kind == "bits" else FindTiesPool)(window, kind)
