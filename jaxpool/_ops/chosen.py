"""Read the element at the selected tap of each window, and scatter cotangents to it: for ranks and random draws.

A maximum is selected one axis at a time. A rank is not: two overlapping windows may select different elements of
their common part. Small windows use one expression per tap, large windows a loop over the taps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax

from jaxpool._geometry.window import Window
from jaxpool._kernels import rolled, route, slices
from jaxpool._kernels.split_ties import mean_of_tied_taps, mean_of_tied_taps_transpose
from jaxpool._ops.op import Op, problem_of
from jaxpool._plan.max_pool import plan_one_pass
from jaxpool._plan.problem import Platform
from jaxpool._plan.rank_pool import merges_rows, plan_rank, unrolls_taps, uses_backward_loop


def tap_loop_over(
    window: Window, x: Array, platform: Platform, shape: object = None
) -> rolled.TapLoop:
    """Return a loop over the taps of the windows of x, or of an array of `shape` with the dtype of x."""
    return rolled.TapLoop(window, merges_rows(problem_of(window, x, platform, shape)))


def fold_taps(
    window: Window,
    platform: Platform,
    join_tap: Callable[..., rolled.State],
    initial_state: Sequence[Array],
    xs: Sequence[Array],
    fills: Sequence[Any],
    *window_arrays: Array,
) -> rolled.State:
    """Fold `join_tap(state, tap, elements, *own)` over the taps of the windows, with the initial state `initial_state`.

    `elements` are the elements of xs at the tap; padding holds `fills`. The state and `window_arrays` have the output
    shape.
    """
    state = tuple(initial_state)
    if unrolls_taps(window):
        padded = [slices.pad_input(x, window, fill) for x, fill in zip(xs, fills, strict=True)]
        for tap in range(window.size):
            elements = [slices.elements_at_tap(x, window, tap) for x in padded]
            state = join_tap(state, np.int32(tap), elements, *window_arrays)
        return state
    tap_loop = tap_loop_over(window, xs[0], platform)
    flat_arrays = [tap_loop.collapse_output(each) for each in window_arrays]

    def step(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
        return join_tap(state, tap, elements, *flat_arrays)

    planes = [tap_loop.to_planes(x, fill) for x, fill in zip(xs, fills, strict=True)]
    final_state = tap_loop.fold_over_taps(
        step, [tap_loop.collapse_output(each) for each in state], planes, xs[0].shape
    )
    return tuple(
        lax.reshape(each, like.shape) for each, like in zip(final_state, state, strict=True)
    )


def pick_selected(window: Window, x: Array, residual: Any, platform: Platform) -> Array:
    """The element of x at the selected tap of each window, or the mean over the tied taps, given as words of bits."""
    if isinstance(residual, tuple):
        return mean_of_tied_taps(x, residual, window)
    if uses_backward_loop(window):
        return rolled.tap_selection(tap_loop_over(window, x, platform), residual).pick(x)
    return route.pick(x, residual, plan_rank(problem_of(window, x, platform)))


def pick_selected_transpose(window: Window, dy: Array, residual: Any, platform: Platform) -> Array:
    """The transpose of `pick_selected`, without a scatter operation."""
    shape = window.unpooled_shape(dy.shape)
    problem = problem_of(window, dy, platform, shape)
    if isinstance(residual, tuple):
        return mean_of_tied_taps_transpose(dy, residual, plan_one_pass(problem))
    if uses_backward_loop(window):
        return rolled.tap_selection(tap_loop_over(window, dy, platform, shape), residual).route(dy)
    return route.route(dy, residual, plan_rank(problem))


class TapResidualPool(Op):
    """Base class of pools whose residual is the selected tap of each window, or one bit per tied tap."""

    window: Window

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        return pick_selected(self.window, x_dot, residual, platform)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        return (pick_selected_transpose(self.window, dy, residual, platform),)
