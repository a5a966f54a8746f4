"""Adaptive pools of arrays that may be sharded along pooled axes.

Window i of n over a length L begins at `floor(i * L / n)`. With s shards, where s divides n, the first window of shard
j is i = j * n / s. It begins at `j * L / s`, the first row of the shard, so each shard pools its own rows without
communication. If all output sizes are 1, the pool is a reduction over whole axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jax import Array, lax

from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.positions import input_position_of_tap
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._shards.place import Place, on_shards
from jaxpool._shards.split import check_even
from jaxpool._shards.whole import whole_pool


@dataclasses.dataclass(frozen=True)
class _Split:
    """The window of an adaptive pool over the global array, and the sharding of the array; None on one device."""

    window: Window
    place: Place | None

    def over(self, x: Array) -> Window:
        """The window over x or a shard x."""
        place, dims = self.place, self.window.dims
        if place is None:
            return self.window
        outs = tuple(dim.out // place.count(dim.axis) for dim in dims)
        return adaptive_window(x.shape, outs, self.window.axes)


def _max(split: _Split, ties: Ties, x: Array, autodiff: Autodiff = "jvp") -> Array:
    return apply(adaptive_max_op(split.over(x), ties), autodiff, x)


def _mean(split: _Split, ties: Ties, x: Array, autodiff: Autodiff = "jvp") -> Array:
    return apply(adaptive_avg_op(split.over(x)), autodiff, dtypes.as_float(x))


def _argmax(split: _Split, ties: Ties, x: Array, autodiff: Autodiff = "jvp") -> tuple[Array, Array]:
    window = split.over(x)
    op = adaptive_max_op(window, "first" if ties == "split" else ties, index=True)
    if ties == "split":
        y = apply(adaptive_max_op(window, ties), autodiff, x)
        _, tap = apply_with_residual(op, autodiff, lax.stop_gradient(x))
    else:
        y, tap = apply_with_residual(op, autodiff, x)
    position = input_position_of_tap(tap, window)
    if split.place is None:
        return y, position
    # Convert a flat position in the shard to a flat position in the global array.
    of_array, unit = lax.full_like(position, 0), 1
    for dim, local_dim in reversed([*zip(split.window.dims, window.dims, strict=True)]):
        size, names = np.int32(local_dim.size), split.place.names[dim.axis]
        first = lax.axis_index(names) * size if names else np.int32(0)
        of_array = of_array + (position % size + first) * np.int32(unit)
        position, unit = position // size, unit * dim.size
    return y, of_array


def adaptive_pool(
    kind: Literal["max", "mean", "argmax"],
    place: Place | None,
    x: Array,
    window: Window,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive pool of x; `window` is the window over the global array.

    Raises `ArgumentError` if shards of the output would differ in size.
    """
    body: Callable[..., Any] = {"max": _max, "mean": _mean, "argmax": _argmax}[kind]
    if place is None:
        return body(_Split(window, place), ties, x, autodiff=autodiff)
    if kind != "argmax" and set(window.output_shape) == {1}:
        return whole_pool(kind, place, x, window.axes, ties=ties, autodiff=autodiff)
    more = "" if kind == "argmax" else ", or 1 along every axis"
    for dim in window.dims:
        check_even(place, dim.axis, dim.out, "output_shape", window.output_shape, more)
    return on_shards(body, place, x, settings=(_Split(window, place), ties), autodiff=autodiff)
