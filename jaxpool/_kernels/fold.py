"""Windowed folds: an associative `join` over all elements of a window, or over all windows of an element.

A state is a tuple of arrays of one shape. Unlike a selection, a fold takes every element exactly
once, so it halves a window into parts that do not overlap; a long window costs about 2 log2(length)
joins an axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.phases import polyphase_pieces
from jaxpool._plan.steps import FLAT_TAPS, flat_step

# The sum over up to so many taps along one axis is written for its transpose in one step.
SUM_TAPS = 27
DIRECT_TAPS = 6  # along one axis, so many elements are joined one by one, longer windows by halves

State = tuple[Array, ...]
Join = Callable[[State, State], State]
Keep = Callable[[State], State]


def _fold_axis(
    state: State,
    join: Join,
    keep: Keep,
    axis: int,
    taps: int,
    dilation: int,
    stride: int,
    out: int,
) -> State:
    """`out` windows of `taps` elements, `dilation` apart, the windows `stride` apart."""

    def at(state: State, tap: int) -> State:
        return tuple(
            kernels.view(array, [axis], [tap * dilation], [out], [stride]) for array in state
        )

    if taps <= max(DIRECT_TAPS, stride):
        total = at(state, 0)
        for tap in range(1, taps):
            total = join(total if tap % DIRECT_TAPS else keep(total), at(state, tap))
        return keep(total)
    half = taps // 2
    reach = (out - 1) * stride + 1 + half * dilation
    halves = _fold_axis(state, join, keep, axis, half, dilation, 1, reach)
    total = join(at(halves, 0), at(halves, half))
    return keep(join(total, at(state, taps - 1)) if taps % 2 else total)


def _as_is(state: State) -> State:
    return state


def window_fold(
    state: State, fills: Sequence[Any], window: Window, join: Join, keep: Keep = _as_is
) -> State:
    """`join` over the elements of each window; padding holds `fills`.

    `keep` is applied to what every step gives.
    """
    state = tuple(
        kernels.pad_input(array, window, fill) for array, fill in zip(state, fills, strict=True)
    )
    for dim in reversed(window.dims):
        state = _fold_axis(
            state, join, keep, dim.axis, dim.window, dim.dilation, dim.stride, dim.out
        )
    return state


def window_unfold(state: State, fills: Sequence[Any], window: Window, join: Join) -> State:
    """`join` over the windows that cover each input element; one that no window covers gets `fills`."""
    for dim in window.dims:
        sides = [(dim.span - 1, dim.span - 1, dim.stride - 1)]
        apart = tuple(
            kernels.pad(array, [dim.axis], sides, fill)
            for array, fill in zip(state, fills, strict=True)
        )
        state = _fold_axis(apart, join, _as_is, dim.axis, dim.window, dim.dilation, 1, dim.needed)
        crop = [(-dim.low, -dim.tail, 0)]
        state = tuple(
            kernels.pad(array, [dim.axis], crop, fill)
            for array, fill in zip(state, fills, strict=True)
        )
    return state


def add(a: State, b: State) -> State:
    return (lax.add(a[0], b[0]),)


def _parts(window: Window) -> tuple[tuple[int, ...], Window]:
    """The axes that one window covers, and the window over the others."""
    whole = tuple(dim.axis for dim in window.dims if dim.whole)
    return whole, Window(tuple(dim for dim in window.dims if dim.axis not in whole))


def window_sum_polyphase(x: Array, window: Window) -> Array:
    """`window_sum`, written for the way jax transposes it."""
    whole, rest = _parts(window)
    if whole:
        x = jnp.sum(x, axis=whole, keepdims=True, dtype=x.dtype)
    if not rest.dims:
        return x
    if rest.size <= FLAT_TAPS:
        return _sum_of_pieces(x, rest)
    *earlier, last = [Window((dim,)) for dim in reversed(rest.dims)]
    for own in earlier:
        x = kernels.materialise(functools.partial(_axis_sum_polyphase, window=own), x)
    return _axis_sum_polyphase(x, last)


def _axis_sum_polyphase(x: Array, window: Window) -> Array:
    if window.size <= SUM_TAPS:
        return _sum_of_pieces(x, window)
    return window_fold((x,), (0,), window, add)[0]


def _sum_of_pieces(x: Array, window: Window) -> Array:
    return functools.reduce(lax.add, polyphase_pieces(x, window.axes, flat_step(window)))


def window_max(x: Array, window: Window, fill: Any) -> Array:
    """The maximum of each window, for those who need not know where it is; padding holds `fill`."""
    whole, rest = _parts(window)
    if whole:
        x = jnp.max(x, axis=whole, keepdims=True)
    return window_fold((x,), (fill,), rest, lambda a, b: (lax.max(a[0], b[0]),))[0]
