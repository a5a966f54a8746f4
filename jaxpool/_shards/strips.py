"""A pool of a shard and the rows of its neighbouring shards, without a copy of the shard.

The shard is pooled alone, with padding in place of its neighbours, which is correct for windows inside the shard.
Windows that cross an end of the shard are pooled again, over a strip of rows, and overwrite the result:

    3 windows per shard, window 3, stride 1        shard  [d e f]
    pooled by itself                              . d e   d e f   e f .
    strips, with a row of each neighbour          c d e           e f g

Residuals of windows that cross an end are overwritten too; indices in residuals are relative to a window and need no
shift. In the backward pass, rows of the shard get cotangents from all windows at once, with padding in place of the
neighbours. Rows of the neighbours get cotangents from the strips.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array, lax
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import PyTree
from jaxpool._kernels.slices import materialise
from jaxpool._ops.op import Op
from jaxpool._ops.primitives import linear_map
from jaxpool._plan.problem import Platform, barrier_of
from jaxpool._shards.halo import Ends, Strip


@dataclasses.dataclass(frozen=True)
class TakeSlices(Op):
    """The linear map from x to x and some slices of x; `slices` has (axis, start, stop) for each slice.

    The transpose of this op updates slices of dx. The transpose of `lax.slice` would add arrays of the size of x.
    """

    slices: tuple[tuple[int, int, int], ...]

    linear_in_x = True
    is_pool = False

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> list[Array]:
        rows = [lax.slice_in_dim(x, first, stop, axis=axis) for axis, first, stop in self.slices]
        return [x, *rows]

    def transpose(
        self, platform: Platform, residual: tuple[()], dx: Array, *drows: Array
    ) -> tuple[Array]:
        for (axis, first, last), rows in zip(self.slices, drows, strict=True):
            rows = rows + lax.slice_in_dim(dx, first, last, axis=axis)
            dx = lax.dynamic_update_slice_in_dim(dx, rows, first, axis)
        return (dx,)


def fetch_halos(strips: Sequence[Strip], x: Array, fill: ArrayLike) -> list[Array]:
    """Return x, and for each strip the rows that the strip reads from a neighbouring shard; `fill` beyond the array."""
    cuts = tuple((strip.axis, *strip.neighbour_rows) for strip in strips)
    x, *ends = linear_map(TakeSlices(cuts), (), [x], nonzero=(True,))
    halos: list[Array] = []
    for strip, rows in zip(strips, ends, strict=True):
        rows = _add_corners(strips, halos, rows, strip, strip.neighbour_rows)
        halos.append(strip.halo.receive_rows(rows, fill, is_after=strip.is_after))
    return [x, *halos]


def _add_corners(
    strips: Sequence[Strip], halos: Sequence[Array], rows: Array, strip: Strip, ends: Ends
) -> Array:
    """`rows`, which lie between `ends` along the axis of `strip`, with the halos along preceding sharded axes."""
    for other, halo in zip(strips, halos, strict=False):
        if other.axis == strip.axis:
            break
        corner = lax.slice_in_dim(halo, *ends, axis=strip.axis)
        rows = _append_halo(rows, corner, other)
    return rows


def _append_halo(rows: Array, halo: Array, strip: Strip) -> Array:
    return lax.concatenate([rows, halo] if strip.is_after else [halo, rows], strip.axis)


@dataclasses.dataclass(frozen=True)
class StripPool(Op):
    """A pool of a shard, whose inputs are the shard and the halos that `fetch_halos` returns for `strips`.

    `pool` runs on the shard without its halo, and on each strip with the window of the strip. Extra arguments of
    `pool` follow the inputs, with an entry for each window. Only strips use extra arguments, because only halos
    contain padding values as elements.
    """

    pool: Any
    strips: tuple[Strip, ...]

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the op: the shard, and a halo for each strip."""
        return 1 + len(self.strips)

    @property
    def linear_in_x(self) -> bool:
        """`linear_in_x` of `pool`: True if the pool is a linear map of x."""
        return bool(self.pool.linear_in_x)

    @property
    def materialises_inputs(self) -> bool:
        """`materialises_inputs` of `pool`: True if XLA must store the pool's inputs in memory."""
        return bool(self.pool.materialises_inputs)

    def value(self, platform: Platform, *args: Array) -> PyTree:
        kernel = functools.partial(self.pool.value, platform)
        y = materialise(barrier_of(platform), kernel, args[0])
        return self._pool_strips("value", platform, y, *args)

    def primal(self, platform: Platform, *args: Array) -> PyTree:
        return self._pool_strips("primal", platform, self.pool.primal(platform, args[0]), *args)

    def _pool_strips(
        self, method: str, platform: Platform, outputs: PyTree, *args: Array
    ) -> PyTree:
        """The `outputs` of a method of `pool` for the shard alone, with the windows of the strips pooled again."""
        x, *halos = args[: self.num_inputs]
        for strip in self.strips:
            extra_args = _slice_windows(strip, args[self.num_inputs :])
            pool_rows = getattr(self._pool_of(strip), method)
            part = pool_rows(platform, self._rows(strip, x, halos), *extra_args)
            outputs = _update_windows(strip, outputs, part)
        return outputs

    def linear(self, platform: Platform, residual: PyTree, x: Array, *halos: Array) -> Array:
        linear = functools.partial(self.pool.linear, platform, residual)
        y: Array = materialise(barrier_of(platform), linear, x)
        for strip in self.strips:
            rows, part = self._rows(strip, x, halos), _slice_windows(strip, residual)
            y = _update_windows(strip, y, self._pool_of(strip).linear(platform, part, rows))
        return y

    def transpose(self, platform: Platform, residual: PyTree, dy: Array) -> tuple[Array, ...]:
        transpose = functools.partial(self.pool.transpose, platform, residual)
        (dx,) = materialise(barrier_of(platform), transpose, dy)
        halos = []
        for strip in self.strips:
            part = _slice_windows(strip, (residual, dy))
            (drows,) = self._pool_of(strip).transpose(platform, *part)
            first, stop = strip.neighbour_rows
            start = len(strip.rows) - (stop - first) if strip.is_after else 0
            halos.append(lax.slice_in_dim(drows, start, start + stop - first, axis=strip.axis))
        return dx, *halos

    def _pool_of(self, strip: Strip) -> Any:
        return dataclasses.replace(self.pool, window=strip.window)

    def _rows(self, strip: Strip, x: Array, halos: Sequence[Array]) -> Array:
        """The rows of a strip: rows of the shard, extended along preceding sharded axes, and the halo of the strip."""
        rows = lax.slice_in_dim(x, *strip.shard_rows, axis=strip.axis)
        rows = _add_corners(self.strips, halos, rows, strip, strip.shard_rows)
        return _append_halo(rows, halos[self.strips.index(strip)], strip)


def _slice_windows(strip: Strip, arrays: PyTree) -> PyTree:
    """Slices of a pytree of arrays with one entry per window: the entries for the windows of a strip."""
    ends = strip.windows.start, strip.windows.stop
    return jax.tree.map(lambda x: lax.slice_in_dim(x, *ends, axis=strip.axis), arrays)


def _update_windows(strip: Strip, arrays: PyTree, updates: PyTree) -> PyTree:
    """The pytree `arrays`, with `updates` in place of the entries for the windows of a strip."""

    def update(x: Array, rows: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(x, rows, strip.windows.start, strip.axis)

    return jax.tree.map(update, arrays, updates)
