"""Windowed folds: an associative `join_states` over all elements of a window, or over all windows of an element.

A state is a tuple of arrays of one shape. Unlike a selection, a fold takes every element exactly once, so it halves a
window into disjoint parts:

    7 taps    [a b c d e f g] = [a b c] join [d e f] join [g]

A long window costs about 2 log2(length) joins per axis. JAX differentiates folds itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._plan.program_length import in_one_go

State = tuple[Array, ...]
Join = Callable[[State, State], State]


def _fold_axis(
    state: State,
    join_states: Join,
    axis: int,
    num_taps: int,
    dilation: int,
    stride: int,
    num_windows: int,
) -> State:
    """Fold `num_windows` windows along an axis, of `num_taps` elements each."""

    def state_at_tap(state: State, tap: int) -> State:
        starts, outs, strides = [tap * dilation], [num_windows], [stride]
        return tuple(slices.strided_slice(array, [axis], starts, outs, strides) for array in state)

    if in_one_go(num_taps, stride):
        total = state_at_tap(state, 0)
        for tap in range(1, num_taps):
            total = join_states(total, state_at_tap(state, tap))
        return total
    half = num_taps // 2
    needed = (num_windows - 1) * stride + 1 + half * dilation
    halves = _fold_axis(state, join_states, axis, half, dilation, 1, needed)
    total = join_states(state_at_tap(halves, 0), state_at_tap(halves, half))
    return join_states(total, state_at_tap(state, num_taps - 1)) if num_taps % 2 else total


def _pad_state(
    state: State, fill_values: Sequence[Any], axis: int, padding_config: slices.PaddingConfig
) -> State:
    pairs = zip(state, fill_values, strict=True)
    return tuple(slices.pad(array, [axis], [padding_config], fill) for array, fill in pairs)


def fold_windows(
    state: State, fill_values: Sequence[Any], window: Window, join_states: Join
) -> State:
    """Join the elements of each window; padding holds `fill_values`."""
    pairs = zip(state, fill_values, strict=True)
    state = tuple(slices.pad_input(array, window, fill) for array, fill in pairs)
    for dim in reversed(window.dims):
        sizes = (dim.window, dim.dilation, dim.stride, dim.out)
        state = _fold_axis(state, join_states, dim.axis, *sizes)
    return state


def fold_covering_windows(
    state: State, fill_values: Sequence[Any], window: Window, join_states: Join
) -> State:
    """Join the windows that cover each input element; an element that no window covers gets `fill_values`."""
    for dim in window.dims:
        around, crop = (dim.span - 1, dim.span - 1, dim.stride - 1), (-dim.low, -dim.tail, 0)
        sizes = (dim.window, dim.dilation, 1, dim.needed)
        state = _pad_state(state, fill_values, dim.axis, around)
        state = _fold_axis(state, join_states, dim.axis, *sizes)
        state = _pad_state(state, fill_values, dim.axis, crop)
    return state
