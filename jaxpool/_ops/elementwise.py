"""Elementwise maximum or minimum of several arrays, which may be sharded in different ways."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    Ties,
    accumulator_dtype,
    cast,
    challenger_wins,
    from_comparison_dtype,
    full_like,
    index_dtype,
    is_16_bit_float,
    is_float,
    is_tied_with,
    scalar_like,
    to_comparison_dtype,
    where,
)
from jaxpool._kernels.slices import reshard_on_mesh_of, where_or_zero
from jaxpool._kernels.split_ties import BITS_PER_WORD, BitWords, divide_among_tied_taps, is_tap_tied
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.op import Op
from jaxpool._plan.problem import Platform

Shape = tuple[int, ...]
NaNOrder = Literal["wins", "loses"]  # whether NaN wins against a number; two NaNs tie


def _beats(
    challenger: Array, best: Array, kind: Kind, ties: Literal["first", "last"], nan_order: NaNOrder
) -> Array:
    """True where `challenger` replaces `best`, the extremum of the arrays before `challenger`."""
    challenger, best = map(to_comparison_dtype, (challenger, best))
    if nan_order == "wins" or not is_float(best.dtype):
        return challenger_wins(challenger, best, kind, ties)
    better, better_or_equal = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    is_nan = lax.ne(best, best)
    if ties == "first":
        replaces_nan = lax.bitwise_and(is_nan, lax.eq(challenger, challenger))
        return lax.bitwise_or(better(challenger, best), replaces_nan)
    return lax.bitwise_or(better_or_equal(challenger, best), is_nan)


def _wins_or_ties(x: Array, other: Array, kind: Kind, nan_order: NaNOrder) -> Array:
    """True where x is the extremum of x and `other`, also if both tie."""
    x, other = map(to_comparison_dtype, (x, other))
    wins_or_ties = (lax.ge if kind == "max" else lax.le)(x, other)
    if not is_float(x.dtype):
        return wins_or_ties
    nan_winner = x if nan_order == "wins" else other
    return lax.bitwise_or(wins_or_ties, lax.ne(nan_winner, nan_winner))


@dataclasses.dataclass(frozen=True)
class Extremum(Op):
    """Elementwise maximum or minimum of arrays of `shapes`. Residual: the index of the selected array, or tie bits."""

    kind: Kind
    ties: Ties
    shapes: tuple[Shape, ...]
    dtypes: tuple[DType, ...]
    nan_order: NaNOrder = "wins"

    @property
    def num_inputs(self) -> int:
        return len(self.shapes)

    @property
    def materialises_inputs(self) -> bool:
        """True if the tie bits need several words, which XLA may compute in separate loops over the inputs."""
        return self.ties == "split" and len(self.shapes) > BITS_PER_WORD

    @property
    def shape(self) -> Shape:
        return jnp.broadcast_shapes(*self.shapes)

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*self.dtypes)

    @property
    def _is_pair(self) -> bool:
        """True for two arrays with ties "split": fewer comparisons suffice, as one array always wins or ties."""
        return self.ties == "split" and len(self.shapes) == 2

    def _cast_and_broadcast(self, x: Array, dtype: DType) -> Array:
        """Cast x to `dtype` and broadcast it to the shape of the result."""
        x, shape = cast(x, dtype), self.shape
        axes = range(len(shape) - x.ndim, len(shape))
        return lax.broadcast_in_dim(x, shape, axes) if x.shape != shape else x

    def _sum_broadcast_axes(self, dx: Array, input_index: int) -> Array:
        """The transpose of `_cast_and_broadcast`: sum `dx` over the broadcast axes."""
        shape, dtype = self.shapes[input_index], self.dtypes[input_index]
        num_lead = dx.ndim - len(shape)
        padded_shape = (None,) * num_lead + shape
        axes = [axis for axis, size in enumerate(padded_shape) if size != dx.shape[axis]]
        if axes:
            dx = lax.reshape(jnp.sum(dx, axis=axes, keepdims=True, dtype=dx.dtype), shape)
        return dx.astype(dtype)

    def _comparable(self, xs: Sequence[Array]) -> list[Array]:
        """xs in one shape and in the dtype of comparisons. 16-bit floats keep their dtype until they are compared."""
        arrays = [self._cast_and_broadcast(x, self.dtype) for x in xs]
        return arrays if is_16_bit_float(self.dtype) else [*map(to_comparison_dtype, arrays)]

    def _from_comparable(self, y: Array) -> Array:
        return y if is_16_bit_float(self.dtype) else from_comparison_dtype(y, self.dtype)

    def value(self, platform: Platform, *xs: Array) -> Array:
        order = "first" if self.ties == "split" else self.ties
        best, *others = self._comparable(xs)
        for x in others:
            best = lax.select(_beats(x, best, self.kind, order, self.nan_order), x, best)
        return self._from_comparable(best)

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, BitWords]:
        best, residual = self._extremum_and_residual(self._comparable(xs))
        return self._from_comparable(best), residual

    def _extremum_and_residual(self, xs: Sequence[Array]) -> tuple[Array, BitWords]:
        if self._is_pair:
            a, b = xs
            a_wins = _wins_or_ties(a, b, self.kind, self.nan_order)
            b_wins = _wins_or_ties(b, a, self.kind, self.nan_order)
            only_a, only_b, both = (full_like(a_wins, 1 + code, np.uint8) for code in range(3))
            winner_code = lax.select(a_wins, lax.select(b_wins, both, only_a), only_b)
            return lax.select(a_wins, a, b), (winner_code,)
        if self.ties == "split":
            return self._extremum_and_bits(xs)
        best, index = xs[0], full_like(xs[0], 0, index_dtype(len(xs)))
        for i, x in enumerate(xs[1:], 1):
            wins = _beats(x, best, self.kind, self.ties, self.nan_order)
            best = lax.select(wins, x, best)
            index = where(wins, i, index)
        return best, (index,)

    def _extremum_and_bits(self, xs: Sequence[Array]) -> tuple[Array, BitWords]:
        """The extremum of xs, and one bit per array, set where the array ties, in words of up to `BITS_PER_WORD` bits.

        One loop computes both results. A second loop could recompute xs with other rounding and find no tied array.
        """
        best = xs[0]
        sizes = [min(BITS_PER_WORD, len(xs) - first) for first in range(0, len(xs), BITS_PER_WORD)]
        zeros = [full_like(best, 0, index_dtype(1 << size)) for size in sizes]
        words = [full_like(zero, int(not word)) for word, zero in enumerate(zeros)]
        for i, x in enumerate(xs[1:], 1):
            wins = _beats(x, best, self.kind, "first", self.nan_order)
            ties = is_tied_with(to_comparison_dtype(x), to_comparison_dtype(best))
            words = [lax.select(wins, zero, word) for word, zero in zip(words, zeros, strict=True)]
            word = words[i // BITS_PER_WORD]
            bit = scalar_like(word, 1 << (i % BITS_PER_WORD))
            words[i // BITS_PER_WORD] = lax.select(wins | ties, lax.bitwise_or(word, bit), word)
            best = lax.select(wins, x, best)
        return best, tuple(words)

    def _wins(self, winners: BitWords, input_index: int) -> Array:
        if self.ties != "split":
            return lax.eq(winners[0], scalar_like(winners[0], input_index))
        if self._is_pair:
            return lax.ne(winners[0], scalar_like(winners[0], 2 - input_index))
        return is_tap_tied(winners, input_index)

    def _split_tied(self, total: Array, winners: BitWords) -> Array:
        """Return `total`, divided by the number of tied arrays if ties are split."""
        if self.ties != "split":
            return total
        if self._is_pair:
            is_tie = lax.eq(winners[0], scalar_like(winners[0], 3))
            return lax.select(is_tie, total * np.asarray(0.5, total.dtype), total)
        return divide_among_tied_taps(total, winners)

    def linear(self, platform: Platform, winners: BitWords, *tangents: Array | None) -> Array:
        dtype = accumulator_dtype(self.dtype)
        terms = []
        for i, tangent in enumerate(tangents):
            if tangent is not None:
                wide_dot = self._cast_and_broadcast(tangent, dtype)
                terms.append(where_or_zero(self._wins(winners, i), wide_dot))
        return self._split_tied(functools.reduce(lax.add, terms), winners).astype(self.dtype)

    def transpose(self, platform: Platform, winners: BitWords, dy: Array) -> tuple[Array, ...]:
        share = self._split_tied(dy.astype(accumulator_dtype(dy.dtype)), winners)
        zeros = full_like(share, 0)
        return tuple(
            self._sum_broadcast_axes(lax.select(self._wins(winners, i), share, zeros), i)
            for i in range(len(self.shapes))
        )


def _match_shardings(xs: Sequence[Array]) -> list[Array]:
    """Broadcast xs to one shape and reshard them to one sharding, if the type of any array has a sharding.

    JAX's elementwise functions do the same. If shardings differ along an axis, the first array sharded there decides.
    If shapes differ, 8- and 16-bit floats become float32: cotangents of a broadcast array are then added in float32.
    """
    specs = [jax.typeof(x).sharding.spec for x in xs]
    sharded_xs = [x for x, spec in zip(xs, specs, strict=True) if any(spec)]
    if not sharded_xs:
        return list(xs)
    shape = jnp.broadcast_shapes(*[x.shape for x in xs])
    out_spec: list[Any] = [None] * len(shape)
    for spec in specs:
        for axis, mesh_axes in enumerate(spec, len(shape) - len(spec)):
            is_new = set(jax.tree.leaves(mesh_axes)).isdisjoint(jax.tree.leaves(out_spec))
            out_spec[axis] = out_spec[axis] or (mesh_axes if is_new else None)
    has_broadcast = any(x.shape != shape for x in xs)

    def match_sharding(x: Array) -> Array:
        if x.shape != shape:
            x = jnp.broadcast_to(cast(x, accumulator_dtype(x.dtype)), shape)
        if jax.typeof(x).sharding.spec != PartitionSpec(*out_spec):  # an eager reshard copies x
            x = reshard_on_mesh_of(sharded_xs[0], x, PartitionSpec(*out_spec))
        return cast(x, accumulator_dtype(x.dtype)) if has_broadcast else x

    return list(map(match_sharding, xs))


def apply_extremum(
    kind: Kind,
    ties: Ties,
    xs: Sequence[Array],
    nan_order: NaNOrder = "wins",
    autodiff: Autodiff = "vjp",
) -> Array:
    """The elementwise maximum or minimum of arrays that broadcast, and may be sharded in different ways."""
    arrays = _match_shardings(xs)
    shapes, dtypes = tuple(x.shape for x in arrays), tuple(x.dtype for x in arrays)
    op = Extremum(kind, ties, shapes, dtypes, nan_order)
    return cast(apply(op, *arrays, autodiff=autodiff), jnp.result_type(*xs))
