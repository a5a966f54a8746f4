"""Windowed folds: an associative `join` of all elements of a window, or of all windows that cover an element.

A state is a tuple of arrays of equal shape. A fold joins every element exactly once, whereas a maximum may read an
element twice. A fold therefore cuts a window into disjoint halves:

    7 taps    [a b c d e f g] = [a b c] join [d e f] join [g]

A long window costs about 2 log2(length) joins per axis. JAX differentiates folds, without custom derivative rules.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._plan.problem import folds_sequentially

State = tuple[Array, ...]
Join = Callable[[State, State], State]


def _fold_axis(
    state: State, join: Join, axis: int, num_taps: int, dilation: int, stride: int, num_windows: int
) -> State:
    """Join the elements of each of `num_windows` windows along an axis; a window has `num_taps` elements."""

    def state_at_tap(state: State, tap: int) -> State:
        starts, outs, strides = [tap * dilation], [num_windows], [stride]
        return tuple(slices.strided_slice(array, [axis], starts, outs, strides) for array in state)

    if folds_sequentially(num_taps, stride):
        return functools.reduce(join, (state_at_tap(state, tap) for tap in range(num_taps)))
    half = num_taps // 2
    num_halves = (num_windows - 1) * stride + 1 + half * dilation
    halves = _fold_axis(state, join, axis, half, dilation, 1, num_halves)
    total = join(state_at_tap(halves, 0), state_at_tap(halves, half))
    return join(total, state_at_tap(state, num_taps - 1)) if num_taps % 2 else total


def fold_windows(state: State, fills: Sequence[Any], window: Window, join: Join) -> State:
    """Join the elements of each window; `fills` are the values of the padding, one per array of `state`."""
    pairs = zip(state, fills, strict=True)
    state = tuple(slices.pad_input(array, window, fill) for array, fill in pairs)
    for dim in reversed(window.dims):
        sizes = (dim.window, dim.dilation, dim.stride, dim.out)
        state = _fold_axis(state, join, dim.axis, *sizes)
    return state


def fold_covering_windows(state: State, fills: Sequence[Any], window: Window, join: Join) -> State:
    """Join the states of the windows that cover each input element; an element that no window covers gets `fills`."""
    for dim in window.dims:

        def pad(state: State, config: slices.PaddingConfig, axis: int = dim.axis) -> State:
            pairs = zip(state, fills, strict=True)
            return tuple(slices.pad(array, [axis], [config], fill) for array, fill in pairs)

        state = pad(state, (dim.span - 1, dim.span - 1, dim.stride - 1))
        state = _fold_axis(state, join, dim.axis, dim.window, dim.dilation, 1, dim.covered_size)
        state = pad(state, (-dim.low, -dim.used_high, 0))
    return state
