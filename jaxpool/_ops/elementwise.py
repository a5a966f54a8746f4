"""Elementwise maximum or minimum of several arrays, and `sharded_alike`, which gives its operands one sharding."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, reshard

from jaxpool._kernels.compare import (
    Ties,
    challenger_wins,
    from_comparison_dtype,
    is_tied_with,
    to_comparison_dtype,
)
from jaxpool._kernels.dtypes import Kind, accumulator_dtype, cast, index_dtype, is_float
from jaxpool._kernels.split_ties import BITS_PER_WORD, BitWords, divide_among_tied_taps, is_tap_tied
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform

Shape = tuple[Any, ...]
NaN = Literal["wins", "loses"]  # whether NaN wins against a number; NaNs tie


def _takes(
    challenger: Array, best: Array, kind: Kind, ties: Literal["first", "last"], nan: NaN
) -> Array:
    """True where `challenger` replaces `best`, which comes before it."""
    if nan == "wins" or not is_float(best.dtype):
        return challenger_wins(challenger, best, kind, ties)
    ahead, level_or_ahead = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    is_nan = lax.ne(best, best)
    if ties == "first":
        replaces_nan = lax.bitwise_and(is_nan, lax.eq(challenger, challenger))
        return lax.bitwise_or(ahead(challenger, best), replaces_nan)
    return lax.bitwise_or(level_or_ahead(challenger, best), is_nan)


def _reaches(x: Array, other: Array, kind: Kind, nan: NaN) -> Array:
    """True where x is the maximum or minimum of x and `other`, or ties."""
    reaches = (lax.ge if kind == "max" else lax.le)(x, other)
    if not is_float(x.dtype):
        return reaches
    over = x if nan == "wins" else other
    return lax.bitwise_or(reaches, lax.ne(over, over))


@dataclasses.dataclass(frozen=True)
class Extreme(Op):
    """Elementwise maximum or minimum of arrays of `shapes`. Residual: the index of the winner, or the tie bits."""

    kind: Kind
    ties: Ties
    shapes: tuple[Shape, ...]
    dtypes: tuple[Any, ...]
    nan: NaN = "wins"

    @property
    def inputs(self) -> int:
        return len(self.shapes)

    @property
    def stores_inputs(self) -> bool:
        """True if the tie bits need several words, which may be computed in separate passes."""
        return self.ties == "split" and len(self.shapes) > BITS_PER_WORD

    @property
    def shape(self) -> Shape:
        return jnp.broadcast_shapes(*self.shapes)

    @property
    def dtype(self) -> Any:
        return jnp.result_type(*self.dtypes)

    @property
    def _is_pair(self) -> bool:
        """True for two arrays with ties "split", which need fewer comparisons as one always wins."""
        return self.ties == "split" and len(self.shapes) == 2

    def _wide(self, x: Array, dtype: Any) -> Array:
        """Cast x to `dtype` and broadcast it to the shape of the result."""
        x, shape = cast(x, dtype), self.shape
        axes = range(len(shape) - x.ndim, len(shape))
        return lax.broadcast_in_dim(x, shape, axes) if x.shape != shape else x

    def _narrow(self, dx: Array, which: int) -> Array:
        """The transpose of `_wide`: sum over the broadcast axes."""
        shape, dtype = self.shapes[which], self.dtypes[which]
        lead = dx.ndim - len(shape)
        stretched = [
            lead + axis for axis, size in enumerate(shape) if size != dx.shape[lead + axis]
        ]
        axes = (*range(lead), *stretched)
        if axes:
            dx = lax.reshape(jnp.sum(dx, axis=axes, keepdims=True, dtype=dx.dtype), shape)
        return dx.astype(dtype)

    def value(self, platform: Platform, *xs: Array) -> Array:
        order = "first" if self.ties == "split" else self.ties
        wide = [to_comparison_dtype(self._wide(x, self.dtype)) for x in xs]
        best = wide[0]
        for x in wide[1:]:
            best = lax.select(_takes(x, best, self.kind, order, self.nan), x, best)
        return from_comparison_dtype(best, self.dtype)

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, BitWords]:
        wide = [to_comparison_dtype(self._wide(x, self.dtype)) for x in xs]
        if self._is_pair:
            a, b = wide
            first = _reaches(a, b, self.kind, self.nan)
            second = _reaches(b, a, self.kind, self.nan)
            one, other, both = (lax.full_like(first, 1 + code, np.uint8) for code in range(3))
            mask = lax.select(first, lax.select(second, both, one), other)
            return from_comparison_dtype(lax.select(first, a, b), self.dtype), (mask,)
        if self.ties == "split":
            best, words = self._tied(wide)
            return from_comparison_dtype(best, self.dtype), words
        best, index = wide[0], lax.full_like(wide[0], 0, index_dtype(len(xs)))
        for i, x in enumerate(wide[1:], 1):
            take = _takes(x, best, self.kind, self.ties, self.nan)
            best, index = (
                lax.select(take, x, best),
                lax.select(take, lax.full_like(index, i), index),
            )
        return from_comparison_dtype(best, self.dtype), (index,)

    def _tied(self, xs: Sequence[Array]) -> tuple[Array, BitWords]:
        """The extremum of xs, and one bit per array, set where it ties, in words of up to `BITS_PER_WORD` bits.

        One pass computes both. A second pass could recompute xs with another rounding and find no tied array.
        """
        best = xs[0]
        sizes = [min(BITS_PER_WORD, len(xs) - first) for first in range(0, len(xs), BITS_PER_WORD)]
        zeros = [lax.full_like(best, 0, index_dtype(1 << size)) for size in sizes]
        words = [lax.full_like(zero, int(not word)) for word, zero in enumerate(zeros)]
        for i, x in enumerate(xs[1:], 1):
            ahead, ties = _takes(x, best, self.kind, "first", self.nan), is_tied_with(x, best)
            words = [lax.select(ahead, zero, word) for word, zero in zip(words, zeros, strict=True)]
            word = words[i // BITS_PER_WORD]
            bit = lax.full_like(word, 1 << (i % BITS_PER_WORD))
            words[i // BITS_PER_WORD] = lax.select(ahead | ties, lax.bitwise_or(word, bit), word)
            best = lax.select(ahead, x, best)
        return best, tuple(words)

    def _won(self, winners: BitWords, which: int) -> Array:
        if self.ties != "split":
            return lax.eq(winners[0], lax.full_like(winners[0], which))
        if self._is_pair:
            return lax.ne(winners[0], lax.full_like(winners[0], 2 - which))
        return is_tap_tied(winners, which)

    def _share(self, total: Array, winners: BitWords) -> Array:
        """Return total divided by the number of tied arrays."""
        if self.ties != "split":
            return total
        if self._is_pair:
            both = lax.eq(winners[0], lax.full_like(winners[0], 3))
            return lax.select(both, total * np.asarray(0.5, total.dtype), total)
        return divide_among_tied_taps(total, winners)

    def linear(self, platform: Platform, winners: BitWords, *tangents: Array | None) -> Array:
        dtype = accumulator_dtype(self.dtype)
        terms = []
        for i, tangent in enumerate(tangents):
            if tangent is None:
                continue
            wide = self._wide(tangent, dtype)
            terms.append(lax.select(self._won(winners, i), wide, lax.full_like(wide, 0)))
        return self._share(functools.reduce(lax.add, terms), winners).astype(self.dtype)

    def transpose(self, platform: Platform, winners: BitWords, dy: Array) -> tuple[Array, ...]:
        part = self._share(dy.astype(accumulator_dtype(dy.dtype)), winners)
        zeros = lax.full_like(part, 0)
        return tuple(
            self._narrow(lax.select(self._won(winners, i), part, zeros), i)
            for i in range(len(self.shapes))
        )


def sharded_alike(xs: Sequence[Array]) -> list[Array]:
    """Broadcast xs to one shape and reshard them to one sharding, if the type of any array has a sharding.

    JAX does so in its own elementwise functions. If arrays disagree along an axis, the first sharded one decides.
    Arrays are broadcast in float32 or wider, so that the transpose adds cotangents in that dtype.
    """
    specs = [(jax.typeof(x).sharding.spec, x) for x in xs]
    meshes = [jax.typeof(x).sharding.mesh for spec, x in specs if any(spec)]
    if not meshes:
        return list(xs)
    shape = jnp.broadcast_shapes(*[x.shape for x in xs])
    merged: list[Any] = [None] * len(shape)
    for spec, x in specs:
        for axis, mesh_axes in enumerate(spec, len(shape) - x.ndim):
            merged[axis] = merged[axis] or (None if mesh_axes in merged else mesh_axes)
    sharding = NamedSharding(meshes[0], PartitionSpec(*merged))

    def alike(x: Array) -> Array:
        if x.shape != shape:
            wide = cast(x, accumulator_dtype(x.dtype))
            x = cast(jnp.broadcast_to(wide, shape), x.dtype)
        return reshard(x, sharding)

    return [alike(x) for x in xs]
