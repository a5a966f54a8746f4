"""The two linear maps that the index of a selection defines: dense, no scatter.

`pick` reads any array at the taps that `select` found (its derivative); `route` sends a cotangent
back to them (the transpose of `pick`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
from jax import Array, lax

from jaxpool._geometry.window import Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.lookup import groups_looked_up, looked_up_route
from jaxpool._kernels.phases import add_pieces, assemble
from jaxpool._kernels.regions import collect
from jaxpool._kernels.select import Order
from jaxpool._plan.steps import Step, select_steps


def _chosen(step: Step, which: int, index: Array, ties: Order) -> Array:
    """Where `index`, the flat tap within a window, lies in piece `which`; in an overlap, in the one `ties` picks."""
    starts, last = step.starts, which == len(step.starts) - 1
    if ties != "last":
        low = starts[which - 1] + step.reach if which else 0
        high = starts[which] + step.reach
    else:
        low, high = starts[which], starts[-1] if last else starts[which + 1]
    if len(starts) == 1:
        return lax.full_like(index, True, bool)
    from_low = lax.full_like(index, low)
    if last:
        return lax.ge(index, from_low)
    if high == low + 1:
        return lax.eq(index, from_low)
    below = lax.lt(index, lax.full_like(index, high))
    return below if low == 0 else lax.bitwise_and(lax.ge(index, from_low), below)


def _within(step: Step, ties: Order) -> Callable[[int, Array], Array]:
    """Of each output, the flat tap within piece q where that piece was chosen, else 0."""
    dtype = kernels.index_dtype(step.reach)

    def within(q: int, index: Array) -> Array:
        lower = index - lax.full_like(index, step.starts[q])
        kept = lax.select(_chosen(step, q, index, ties), lower, lax.full_like(index, 0))
        return kept.astype(dtype)

    return within


def _lower_index(step: Step, axes: tuple[int, ...], ties: Order, index: Array) -> Array:
    """The index before a step from the index after it: what each intermediate element was chosen as.

    All windows that chose an intermediate element agree on where it came from, so joining them by
    max loses nothing; an element that none chose gets 0, and nothing is read from it or sent to it.
    """
    return assemble(_within(step, ties), [index], axes, step, lax.max)


def pick(x: Array, index: Array, window: Window, ties: Order) -> Array:
    """The elements of x at the taps `index`: linear in x, and written for the way jax transposes it."""
    steps = select_steps(window)
    indices = [index]
    for step in reversed(steps[1:]):
        lower = functools.partial(_lower_index, step, window.axes, ties)
        indices.append(kernels.materialise(lower, indices[-1]))

    def picked(value: Array, index: Array, step: Step) -> Array:
        def kept(q: int, piece: Array, index: Array) -> Array:
            return lax.select(_chosen(step, q, index, ties), piece, lax.full_like(piece, 0))

        return add_pieces(kept, value, [index], window.axes, step)

    value = x.astype(kernels.accumulator(x.dtype))
    for step, chosen in zip(steps, reversed(indices), strict=True):
        kernel = functools.partial(picked, step=step)
        value = (
            kernel(value, chosen)
            if step is steps[-1]
            else kernels.materialise(kernel, value, chosen)
        )
    return value.astype(x.dtype)


def _sender(step: Step, ties: Order) -> Callable[[int, Array, Array], Array]:
    """What each output sends to piece q: its cotangent where it chose that piece, else 0."""

    def sent(q: int, dy: Array, index: Array) -> Array:
        return lax.select(_chosen(step, q, index, ties), dy, lax.full_like(dy, 0))

    return sent


def route(dy: Array, index: Array, window: Window, ties: Order) -> Array:
    """The transpose of `pick`: each element of dy added to the position its window chose, zeros elsewhere.

    `index` is one that `select` gave, or any of windows that do not meet.
    """
    by_steps = functools.partial(route_by_steps, window=window, ties=ties)
    groups = groups_looked_up(dy, window)
    if not groups:
        return by_steps(dy, index)
    # The tangents are not looked up: jax transposes them without scatters, and as often as asked.
    looked_up = jax.custom_jvp(functools.partial(looked_up_route, groups=groups))
    looked_up.defjvp(lambda xs, dxs: (looked_up(*xs), by_steps(dxs[0], xs[1])))
    return lax.platform_dependent(dy, index, cpu=looked_up, default=by_steps)


def route_by_steps(dy: Array, index: Array, window: Window, ties: Order) -> Array:
    """`route`, for those whom jax transposes."""
    dx = kernels.widen(dy, window)
    first, *later = select_steps(window)
    if not later:
        return collect(_sender(first, ties), (dx, index), window).astype(dy.dtype)

    def before(dx: Array, index: Array, step: Step) -> Array:
        return assemble(_sender(step, ties), [dx, index], window.axes, step, lax.add)

    for step in reversed(later):
        # Apart: what is linear in dy is transposed without the rest.
        lower = functools.partial(_lower_index, step, window.axes, ties)
        dx, index = (
            kernels.materialise(functools.partial(before, step=step), dx, index),
            kernels.materialise(lower, index),
        )
    return before(dx, index, first).astype(dy.dtype)
