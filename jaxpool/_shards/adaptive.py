"""Adaptive pools of arrays that are sharded along pooled axes.

Window i of n over a length L begins at `floor(i * L / n)`. With s shards, where s divides n, the first window of shard
j is i = j * n / s. It begins at `j * L / s`, the first row of the shard, so each shard pools its own rows without
communication. If all output sizes are 1, the pool is a reduction over whole axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax import Array, lax

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.positions import window_position
from jaxpool._ops.adaptive_pool import adaptive_avg_op, adaptive_max_op
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._shards.place import Place, on_shards
from jaxpool._shards.split import around, either
from jaxpool._shards.whole import whole_pool


@dataclasses.dataclass(frozen=True)
class _Adaptive:
    """An adaptive pool of `window` over the global array, with the mesh axes and shard count of each pooled axis."""

    window: Window
    names: tuple[tuple[str, ...], ...]
    counts: tuple[int, ...]

    def local(self, x: Array) -> Window:
        """The windows of a shard x."""
        pairs = zip(self.window.output_shape, self.counts, strict=True)
        return adaptive_window(x.shape, tuple(out // n for out, n in pairs), self.window.axes)


@dataclasses.dataclass(frozen=True)
class _Max(_Adaptive):
    ties: Ties

    def __call__(self, x: Array) -> Array:
        return apply(adaptive_max_op(self.local(x), self.ties), "jvp", x)


@dataclasses.dataclass(frozen=True)
class _Mean(_Adaptive):
    def __call__(self, x: Array) -> Array:
        return apply(adaptive_avg_op(self.local(x)), "jvp", dtypes.as_float(x))


@dataclasses.dataclass(frozen=True)
class _Argmax(_Adaptive):
    ties: Ties

    def __call__(self, x: Array) -> tuple[Array, Array]:
        window = self.local(x)
        order = "first" if self.ties == "split" else self.ties
        y, tap = apply_with_residual(adaptive_max_op(window, order, index=True), "jvp", x)
        if self.ties == "split":
            y = apply(adaptive_max_op(window, "split"), "jvp", x)
        return y, self._whole_position(window_position(tap, window), window)

    def _whole_position(self, position: Array, window: Window) -> Array:
        """Convert a flat position in the shard to a flat position in the global array."""
        whole, unit = lax.full_like(position, 0), 1
        dims = zip(self.window.dims, window.dims, self.names, strict=True)
        for dim, local_dim, names in reversed([*dims]):
            size = np.int32(local_dim.size)
            first = lax.axis_index(names) * size if names else np.int32(0)
            whole = whole + (position % size + first) * np.int32(unit)
            position, unit = position // size, unit * dim.size
        return whole


def adaptive_pool(
    kind: Literal["max", "mean", "argmax"],
    place: Place,
    x: Array,
    window: Window,
    ties: Ties = "first",
    autodiff: Autodiff = "jvp",
) -> Any:
    """The adaptive pool of x; `window` is the window over the global array.

    Raises `ArgumentError` if shards of the output would differ in size.
    """
    if kind != "argmax" and set(window.output_shape) == {1}:
        return whole_pool(kind, place, x, window.axes, ties=ties, autodiff=autodiff)
    counts = tuple(place.count(axis) for axis in window.axes)
    _check_outputs(window, counts, kind)
    names = tuple(place.names[axis] for axis in window.axes)
    if kind == "mean":
        return on_shards(_Mean(window, names, counts), place, x, autodiff=autodiff)
    body = _Max if kind == "max" else _Argmax
    return on_shards(body(window, names, counts, ties), place, x, autodiff=autodiff)


def _check_outputs(window: Window, counts: Sequence[int], kind: str) -> None:
    """Raise unless every device has the same number of windows along each axis."""
    for dim, count in zip(window.dims, counts, strict=True):
        if dim.out % count:
            rule = f"of a size along axis {dim.axis} that its {count} shards divide"
            rule += "" if kind == "argmax" else ", or 1 along every axis"
            hint = f"Use {either(around(dim.out, count, 1))} there."
            raise ArgumentError("output_shape", rule, window.output_shape, hint)
