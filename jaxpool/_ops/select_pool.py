"""Max and min pools over windows. `pool_op` chooses the op, which determines the residual; `select_pool` applies it.

If x contains masked elements or padding of a shard, an extra argument of `primal` marks the elements to select from.
"""

import dataclasses
import functools

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import split_ties
from jaxpool._kernels.dtypes import (
    Kind,
    TieOrder,
    Ties,
    is_tied_with,
    reduction_identity,
    scalar_like,
    to_comparison_dtype,
)
from jaxpool._kernels.positions import input_position_of_tap
from jaxpool._kernels.select import is_centre_selected, pick, route, select, select_value
from jaxpool._kernels.select_and_scatter import select_and_scatter, shared_window_extrema
from jaxpool._kernels.slices import Ints, materialise, store_arguments
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._ops.chosen import TapResidualPool
from jaxpool._ops.op import Op, Residual, problem_of
from jaxpool._ops.primitives import tracing_platform
from jaxpool._ops.reduction import Reduction
from jaxpool._plan import max_pool as plans
from jaxpool._plan.problem import Platform, barrier_of


@dataclasses.dataclass(frozen=True)
class MaxPool(Op):
    """Base class of max and min pools. Extra arguments of `primal` mark elements; `value` does not need them."""

    window: Window
    kind: Kind
    ties: TieOrder = "first"  # tie order in `value`

    def _plan(self, platform: Platform, x: Array, shape: Ints | None = None) -> plans.MaxPlan:
        return plans.plan_max(problem_of(self.window, x, platform, shape))

    def value(self, platform: Platform, x: Array, *_: Array) -> Array:
        return select_value(x, self.kind, self.ties, self._plan(platform, x))


@dataclasses.dataclass(frozen=True)
class SelectPool(MaxPool):
    """Max or min pool that selects one element per window. Residual: its tap (window index), an integer per output.

    `inside_taps` optionally holds the first (for ties "last", the last) tap of each window that may be selected.
    """

    def primal(self, platform: Platform, x: Array, *inside_taps: Array) -> tuple[Array, Array]:
        plan = self._plan(platform, x)
        kernel = functools.partial(
            select, window=self.window, kind=self.kind, ties=self.ties, plan=plan
        )
        y, index = materialise(plan.barrier, kernel, x)
        for bound in inside_taps:
            min_or_max = lax.min if self.ties == "last" else lax.max
            index = min_or_max(index, jnp.broadcast_to(bound, index.shape))
        return y, index

    def linear(self, platform: Platform, index: Array, x_dot: Array) -> Array:
        return pick(x_dot, index, self._plan(platform, x_dot))

    def transpose(self, platform: Platform, index: Array, dy: Array) -> tuple[Array]:
        plan = self._plan(platform, dy, self.window.unpooled_shape(dy.shape))
        return (route(dy, index, plan),)


@dataclasses.dataclass(frozen=True)
class InputResidualPool(SelectPool):
    """Max or min pool that selects one element per window. Residual: x, so that the backward pass selects again."""

    saves_arguments = True

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        return args

    def value_with_residual(self, platform: Platform, x: Array) -> Array:
        problem = problem_of(self.window, x, platform)
        if not plans.uses_select_and_scatter(problem):
            return self.value(platform, x)
        return shared_window_extrema(x, self.kind, plans.plan_scatter(problem))

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        return super().linear(platform, self.primal(platform, *residual)[1], x_dot)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        (x,) = residual
        problem = problem_of(self.window, x, platform)
        if not plans.uses_select_and_scatter(problem):
            return super().transpose(platform, self.primal(platform, x)[1], dy)
        return (select_and_scatter(x, dy, self.kind, self.ties, plans.plan_scatter(problem)),)


@dataclasses.dataclass(frozen=True)
class TieBitsPool(TapResidualPool, MaxPool):
    """Max or min pool with ties "split". Residual: one bit per tap (window index), set where the tap ties.

    `inside_bits` optionally holds one bit per tap, set where the tap may be selected.
    """

    materialises_inputs = True

    def primal(self, platform: Platform, x: Array, *inside_bits: Array) -> tuple[Array, Residual]:
        def kernel(x: Array) -> tuple[Array, split_ties.BitWords]:
            y, fill = self.value(platform, x), reduction_identity(x.dtype, self.kind)
            return y, split_ties.tie_bits_of_input(x, y, self.window, fill)

        y, words = materialise(self._plan(platform, x).barrier, kernel, x)
        if inside_bits:
            pairs = zip(words, inside_bits, strict=True)
            words = tuple(word & jnp.broadcast_to(bits, word.shape) for word, bits in pairs)
        return y, words


@dataclasses.dataclass(frozen=True)
class FindTiesPool(MaxPool):
    """Max or min pool over large windows with ties "split". Residual: x, y and an optional mask.

    The mask broadcasts to x and is False at elements that may not be selected.
    """

    materialises_inputs = True
    materialises_residual = True

    def primal(self, platform: Platform, x: Array, *mask: Array) -> tuple[Array, tuple[Array, ...]]:
        barrier, kernel = self._plan(platform, x).barrier, functools.partial(self.value, platform)
        y = materialise(barrier, kernel, x)
        return y, (x, y, *mask)

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        x, _, *mask = residual
        folds = plans.plan_tie_folds(self.window)
        return split_ties.mean_of_tied_elements(x_dot, x, self.window, self.kind, folds, *mask)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        x, y, *mask = residual
        folds = plans.plan_tie_folds(self.window)
        transpose_fn = split_ties.mean_of_tied_elements_transpose
        return (transpose_fn(dy, x, y, self.window, self.kind, folds, *mask),)


@dataclasses.dataclass(frozen=True)
class LocalExtremumMask(MaxPool):
    """True for each element of x that ties with the extremum of the window around it. The windows have stride 1.

    x may contain halos, whose elements are in windows around other elements only.
    """

    def value(self, platform: Platform, x: Array) -> Array:
        def compare(x: Array) -> Array:
            y, centres = select_value(x, self.kind, self.ties, self._plan(platform, x)), x
            for dim in self.window.dims:
                start = (dim.window - 1) // 2 - dim.low
                centres = lax.slice_in_dim(centres, start, start + dim.out, axis=dim.axis)
            return is_tied_with(to_comparison_dtype(centres), to_comparison_dtype(y))

        mask: Array = store_arguments(barrier_of(platform), compare)(x)
        return mask


@dataclasses.dataclass(frozen=True)
class CentreMask(SelectPool):
    """True for each element of x that the window around it selects. The windows have stride 1."""

    def value(self, platform: Platform, x: Array) -> Array:
        step = plans.plan_centre_comparison(problem_of(self.window, x, platform))
        if step is None:
            return is_centre(self.primal(platform, x)[1], self.window)
        centre, plan = _centre_tap(self.window), self._plan(platform, x)
        widens = not plan.has_16_bit_comparisons
        return is_centre_selected(x, centre, self.kind, self.ties, step, widens=widens)


def is_centre(tap: Array, window: Window) -> Array:
    """True where `tap` is the flat index of the element that the window is around."""
    return lax.eq(tap, scalar_like(tap, _centre_tap(window)))


def _centre_tap(window: Window) -> int:
    return functools.reduce(lambda tap, dim: tap * dim.window + dim.low, window.dims, 0)


def pool_op(window: Window, kind: Kind, ties: Ties | TieOrder, *, saves_index: bool = False) -> Op:
    """The op of a max or min pool. With `saves_index`, its residual is an index, unless ties are split."""
    if ties == "last_nan":
        return SelectPool(window, kind, ties)
    platform = "portable" if saves_index else tracing_platform()
    residual_kind = plans.choose_residual(window, split=ties == "split", platform=platform)
    if residual_kind == "rank":
        return Reduction(kind, ties, window.axes, window.input_shape)
    if ties == "split":
        return (TieBitsPool if residual_kind == "bits" else FindTiesPool)(window, kind)
    return (InputResidualPool if residual_kind == "input" else SelectPool)(window, kind, ties)


def select_pool(
    window: Window, kind: Kind, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> Array:
    """The max or min pool of x."""
    return apply(pool_op(window, kind, ties), x, autodiff=autodiff)


def select_pool_with_tap(
    window: Window, kind: Kind, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max or min pool of x, and the tap of each selected element; of the first element if `ties` is "split"."""
    if ties == "split":
        _, tap = select_pool_with_tap(window, kind, "first", lax.stop_gradient(x), autodiff)
        return select_pool(window, kind, "split", x, autodiff), tap
    return apply_with_residual(SelectPool(window, kind, ties), x, autodiff=autodiff)


def max_pool_with_position(
    window: Window, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max pool of x, and the flat position of each maximum; the first position if `ties` is "split"."""
    y, tap = select_pool_with_tap(window, "max", ties, x, autodiff)
    return y, input_position_of_tap(tap, window)
