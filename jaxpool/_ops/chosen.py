"""Read the selected element of each window, and scatter cotangents to it: for rank pools and random draws.

A maximum can be selected one axis at a time. A rank cannot: two overlapping windows may select different elements of
their intersection. Small windows use one expression per tap (window index), large windows a loop over the taps.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax

from jaxpool._geometry.window import Window
from jaxpool._kernels import rolled, select, slices
from jaxpool._kernels.split_ties import mean_of_tied_taps, mean_of_tied_taps_transpose
from jaxpool._ops.op import Op, Residual, problem_of
from jaxpool._plan.max_pool import plan_one_pass
from jaxpool._plan.problem import Platform, taps_per_loop_step
from jaxpool._plan.rank_pool import merges_rows, plan_rank, unrolls_taps, uses_backward_loop


def make_tap_loop(
    window: Window, x: Array, platform: Platform, shape: slices.Ints | None = None
) -> rolled.TapLoop:
    """Return a loop over the taps (window indices) of a pool of x, or of an array of `shape` with the dtype of x."""
    merges = merges_rows(problem_of(window, x, platform, shape))
    return rolled.TapLoop(window, taps_per_loop_step(), merges)


def fold_taps(
    window: Window,
    platform: Platform,
    join_tap: Callable[..., rolled.State],
    initial_state: Sequence[Array],
    x: Array,
    *window_arrays: Array,
) -> rolled.State:
    """Fold `join_tap(state, tap, elements, *window_arrays)` over the taps (window indices), from `initial_state`.

    `elements` are the elements of x at index `tap` of every window; padding holds 0. The state and `window_arrays` have
    the output shape.
    """
    state = tuple(initial_state)
    if unrolls_taps(window):
        padded = slices.pad_input(x, window, 0)
        for tap in range(window.size):
            elements = slices.elements_at_tap(padded, window, tap)
            state = join_tap(state, np.int32(tap), elements, *window_arrays)
        return state
    tap_loop = make_tap_loop(window, x, platform)
    flat_arrays = [tap_loop.collapse_output(each) for each in window_arrays]

    def step(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
        return join_tap(state, tap, elements[0], *flat_arrays)

    flat_state = [tap_loop.collapse_output(each) for each in state]
    result = tap_loop.fold_over_taps(step, flat_state, [tap_loop.to_planes(x, 0)], x.shape)
    return tuple(lax.reshape(each, like.shape) for each, like in zip(result, state, strict=True))


def pick_selected(window: Window, x: Array, residual: Residual, platform: Platform) -> Array:
    """The element of x at the window index `residual`, or for a `residual` of tie bits, the mean over tied elements."""
    if isinstance(residual, tuple):
        return mean_of_tied_taps(x, residual, window)
    if uses_backward_loop(window):
        return rolled.tap_selection(make_tap_loop(window, x, platform), residual).pick(x)
    return select.pick(x, residual, plan_rank(problem_of(window, x, platform)))


def pick_selected_transpose(
    window: Window, dy: Array, residual: Residual, platform: Platform
) -> Array:
    """The transpose of `pick_selected`, without a scatter operation."""
    shape = window.unpooled_shape(dy.shape)
    problem = problem_of(window, dy, platform, shape)
    if isinstance(residual, tuple):
        return mean_of_tied_taps_transpose(dy, residual, plan_one_pass(problem))
    if uses_backward_loop(window):
        return rolled.tap_selection(make_tap_loop(window, dy, platform, shape), residual).route(dy)
    return select.route(dy, residual, plan_rank(problem))


class TapResidualPool(Op):
    """Base class of pools whose residual is the tap (window index) of the selected element, or one tie bit per tap."""

    window: Window

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        return pick_selected(self.window, x_dot, residual, platform)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        return (pick_selected_transpose(self.window, dy, residual, platform),)
