"""Windowed folds: an associative `join` over all elements of a window, or over all windows of an element.

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
    state: State, join: Join, axis: int, taps: int, dilation: int, stride: int, out: int
) -> State:
    """Fold `out` windows along an axis, of `taps` elements each."""

    def at(state: State, tap: int) -> State:
        starts, outs, strides = [tap * dilation], [out], [stride]
        return tuple(slices.view(array, [axis], starts, outs, strides) for array in state)

    if in_one_go(taps, stride):
        total = at(state, 0)
        for tap in range(1, taps):
            total = join(total, at(state, tap))
        return total
    half = taps // 2
    needed = (out - 1) * stride + 1 + half * dilation
    halves = _fold_axis(state, join, axis, half, dilation, 1, needed)
    total = join(at(halves, 0), at(halves, half))
    return join(total, at(state, taps - 1)) if taps % 2 else total


def _padded(state: State, fills: Sequence[Any], axis: int, sides: slices.Sides) -> State:
    pairs = zip(state, fills, strict=True)
    return tuple(slices.pad(array, [axis], [sides], fill) for array, fill in pairs)


def window_fold(state: State, fills: Sequence[Any], window: Window, join: Join) -> State:
    """Join the elements of each window; padding holds `fills`."""
    pairs = zip(state, fills, strict=True)
    state = tuple(slices.pad_input(array, window, fill) for array, fill in pairs)
    for dim in reversed(window.dims):
        sizes = (dim.window, dim.dilation, dim.stride, dim.out)
        state = _fold_axis(state, join, dim.axis, *sizes)
    return state


def window_unfold(state: State, fills: Sequence[Any], window: Window, join: Join) -> State:
    """Join the windows that cover each input element; an element that no window covers gets `fills`."""
    for dim in window.dims:
        around, crop = (dim.span - 1, dim.span - 1, dim.stride - 1), (-dim.low, -dim.tail, 0)
        sizes = (dim.window, dim.dilation, 1, dim.needed)
        state = _padded(state, fills, dim.axis, around)
        state = _fold_axis(state, join, dim.axis, *sizes)
        state = _padded(state, fills, dim.axis, crop)
    return state
