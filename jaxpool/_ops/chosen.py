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
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.problem import Platform
from jaxpool._plan.rank_pool import plan_rank, rows_joined, unrolled, walked_back


def walk_over(window: Window, x: Array, platform: Platform, shape: object = None) -> rolled.TapLoop:
    """Return a loop over the taps of the windows of x, or of an array of `shape` with the dtype of x."""
    return rolled.TapLoop(window, rows_joined(problem_of(window, x, platform, shape)))


def fold(
    window: Window,
    platform: Platform,
    join: Callable[..., rolled.State],
    first: Sequence[Array],
    xs: Sequence[Array],
    fills: Sequence[Any],
    *own: Array,
) -> rolled.State:
    """Fold `join(state, tap, elements, *own)` over the taps of the windows, with the initial state `first`.

    `elements` are the elements of xs at the tap; padding holds `fills`. The state and `own` have the output shape.
    """
    state = tuple(first)
    if unrolled(window):
        padded = [slices.pad_input(x, window, fill) for x, fill in zip(xs, fills, strict=True)]
        for tap in range(window.size):
            elements = [slices.elements_at_tap(x, window, tap) for x in padded]
            state = join(state, np.int32(tap), elements, *own)
        return state
    walk = walk_over(window, xs[0], platform)
    flat = [walk.collapse_minor_axes(each) for each in own]

    def step(state: rolled.State, tap: Array, elements: Sequence[Array]) -> rolled.State:
        return join(state, tap, elements, *flat)

    planes = [walk.split_into_planes(x, fill) for x, fill in zip(xs, fills, strict=True)]
    final = walk.fold_over_taps(
        step, [walk.collapse_minor_axes(each) for each in state], planes, xs[0].shape
    )
    return tuple(lax.reshape(each, like.shape) for each, like in zip(final, state, strict=True))


def pick(window: Window, x: Array, residual: Any, platform: Platform) -> Array:
    """The element of x at the selected tap of each window, or the mean over the tied taps, given as words of bits."""
    if isinstance(residual, tuple):
        return mean_of_tied_taps(x, residual, window)
    if walked_back(window):
        return rolled.selection_of_tap(walk_over(window, x, platform), residual).pick(x)
    return route.pick(x, residual, plan_rank(problem_of(window, x, platform)))


def send(window: Window, dy: Array, residual: Any, platform: Platform) -> Array:
    """The transpose of `pick`, without a scatter operation."""
    shape = window.unpooled(dy.shape)
    problem = problem_of(window, dy, platform, shape)
    if isinstance(residual, tuple):
        return mean_of_tied_taps_transpose(dy, residual, plan_ties(problem))
    if walked_back(window):
        return rolled.selection_of_tap(walk_over(window, dy, platform, shape), residual).route(dy)
    return route.route(dy, residual, plan_rank(problem))


class TapPool(Op):
    """Base class of pools whose residual is the selected tap of each window, or one bit per tied tap."""

    window: Window

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        return pick(self.window, x_dot, residual, platform)

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        return (send(self.window, dy, residual, platform),)
