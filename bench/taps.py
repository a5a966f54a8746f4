"""Ranks, morphology, blur and the k largest: our call, a plain one in jax.numpy, and the reference of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench._case import DILATE, Case
from bench.cases import CASES
from jaxpool.testing import pools

TAPS = tuple(dict.fromkeys(case.op for case in CASES if "taps" in case.tags))
Op = Callable[..., Any]


def kernel(case: Case) -> np.ndarray:
    """What a dilation adds, the same for all channels."""
    return np.cos(np.arange(math.prod(case.window))).reshape(case.window).astype(case.dtype)


def ours(case: Case, function: Op) -> Op:
    """The call of this library."""
    return case.bound(function, **({"kernel": kernel(case)} if case.op == DILATE else {}))


def plain(case: Case) -> Op:
    """Windows stacked along a new axis, sorted, added up or compared; jax differentiates it."""
    if not case.window:
        return lambda x: _largest(x, case.output[0], case.axes[0])

    def stacked(x: jax.Array, how: dict[str, Any]) -> jax.Array:
        pads = dict(zip(case.axes, case.pads, strict=True))
        x = jnp.pad(x, [pads.get(axis, (0, 0)) for axis in range(x.ndim)], **how)
        taps = []
        for tap in np.ndindex(*case.window):
            index = [slice(None)] * x.ndim
            for axis, first, stride in zip(case.axes, tap, case.strides, strict=True):
                stop = first + (case.output_shape[axis] - 1) * stride + 1
                index[axis] = slice(first, stop, stride)
            taps.append(x[tuple(index)])
        return jnp.stack(taps, -1)

    if pools()[case.op].adds:
        rows = [[math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)] for n in case.window]
        weights = np.outer(*rows).ravel().astype(case.dtype)
        return lambda x: (stacked(x, {"mode": "reflect"}) * weights).sum(-1)
    if case.op == DILATE:
        return lambda x: (stacked(x, {"constant_values": -np.inf}) + kernel(case).ravel()).max(-1)

    def median(x: jax.Array) -> jax.Array:
        windows = stacked(x, {"constant_values": np.inf})
        place = jnp.isfinite(windows).sum(-1, keepdims=True) // 2
        return jnp.take_along_axis(jnp.sort(windows, -1), place, -1)[..., 0]

    return median


def _largest(x: jax.Array, k: int, axis: int) -> jax.Array:
    order = jnp.argsort(x, axis, descending=True)
    first = jnp.sort(jax.lax.slice_in_dim(order, 0, k, axis=axis), axis)
    return jnp.take_along_axis(x, first, axis)


def reference(case: Case, x: np.ndarray, dy: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Value and cotangent, by loops."""
    answer = ours(case, pools()[case.op].meaning)(x)
    return answer.y, None if dy is None else answer.exact_cotangents(dy)[0]
