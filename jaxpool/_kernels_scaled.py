"""Windowed sums of terms too large or too small to be written down: each sum carries its own scale.

A state `(scale, total, ...)` stands for `total * weight(scale)`, the weight being an exponential or
a power that would overflow. Joining two states weighs the smaller one against the larger, with a
factor of at most 1, so nothing ever does. A sum is the same whatever scales it is written with:
they are constants to AD, and jax differentiates what is left, to any order and in both modes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool import _kernels as kernels
from jaxpool._kernels_fold import State, window_fold
from jaxpool._window import Window, full_window

Rate = float | Array  # one number, or an array of the rank of x and of size 1 along the pooled axes
Gap = Callable[[Array, Array], Array]


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros whose derivative is 1, also where x is infinite."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def keep(state: State) -> State:
    """The state, computed once, however many read it; its tangents and cotangents likewise."""
    kept: State = kernels.materialise(lambda *arrays: arrays, *state)
    return kept


@keep.defjvp
def _keep_jvp(primals: tuple[State], tangents: tuple[State]) -> tuple[State, State]:
    return keep(*primals), keep(*tangents)


def difference(a: Array, b: Array) -> Array:
    """How far `a` is above `b`; equal infinities are level."""
    return lax.select(lax.eq(a, b), lax.full_like(a, 0), a - b)


def log_ratio(a: Array, b: Array) -> Array:
    """`log(a / b)` of numbers that are not negative; equal zeros and infinities are level."""
    return lax.select(lax.eq(a, b), lax.full_like(a, 0), lax.log(a / b))


def scaled_fold(
    scale: Array, sums: Sequence[Array], window: Window, gap: Gap, rate: Rate, lowest: float
) -> State:
    """The largest scale of each window and its sums at that scale; padding counts as nothing.

    `sums[0]`, written at one scale, is `exp(-rate * gap(higher, scale))` as much at a higher one.
    With `difference` for `gap`, `sums[1]` may hold the sum of each term of `sums[0]` times the
    height of its element above the scale.
    """
    info = jnp.finfo(scale.dtype)
    limit = math.log(2) * (info.nmant - info.minexp)  # exp(-limit) is the least number above 0

    def join(a: State, b: State) -> State:
        above = gap(a[0], b[0])
        behind, distance = lax.lt(above, lax.full_like(above, 0)), lax.abs(above)
        far = jnp.greater(distance * lax.stop_gradient(rate), limit)
        near = lax.select(far, lax.full_like(distance, 0), distance)
        factor = jnp.where(far, 0, lax.exp(-near * rate))
        ahead = [lax.select(behind, q, p) for p, q in zip(a, b, strict=True)]
        other = [lax.select(behind, p, q) for p, q in zip(a, b, strict=True)]
        ahead[0] = lax.select(lax.ne(above, above), above, ahead[0])
        total = ahead[1] + factor * other[1]
        if len(sums) == 1:
            return ahead[0], total
        return ahead[0], total, ahead[2] + factor * (other[2] - near * other[1])

    fills = (lowest, *[0] * len(sums))
    return window_fold((lax.stop_gradient(scale), *sums), fills, window, join, keep)


def lay_out(x: Array, window: Window, rate: Any) -> tuple[Array, Window, Any, np.ndarray]:
    """x, its window and rate as `scaled_fold` takes them, and which elements are no padding.

    Outputs that share an element share its sums too, but not if each has a rate of its own: then
    every window is laid out along new axes, as many elements as all windows have together.
    """
    if not isinstance(rate, jax.Array) or all(rate.shape[axis] == 1 for axis in window.axes):
        return x, window, rate, np.ones((1,) * x.ndim, bool)
    wide, real = _apart(x, window), _real_taps(window, x.ndim)
    taps = range(x.ndim, wide.ndim)
    return wide, full_window(wide.shape, taps), lax.expand_dims(rate, taps), real


def _apart(x: Array, window: Window) -> Array:
    """The windows of x side by side: the shape of the output, then one axis of taps a pooled axis."""
    x = kernels.pad_input(x, window, 1)
    for dim in window.dims:
        starts = [tap * dim.dilation for tap in range(dim.window)]
        taps = [kernels.view(x, [dim.axis], [start], [dim.out], [dim.stride]) for start in starts]
        x = jnp.stack(taps, axis=-1)
    return x


def _real_taps(window: Window, ndim: int) -> np.ndarray:
    """For windows side by side, which taps are elements of x; of size 1 along all other axes."""
    rank = len(window.dims)
    real = np.ones((1,) * (ndim + rank), bool)
    for which, dim in enumerate(window.dims):
        taps, outputs = np.arange(dim.window), range(dim.out)
        inside = [(dim.first_real(o) <= taps) & (taps <= dim.last_real(o)) for o in outputs]
        shape = [1] * (ndim + rank)
        shape[dim.axis], shape[ndim + which] = dim.out, dim.window
        real = real & np.stack(inside).reshape(shape)
    return real
