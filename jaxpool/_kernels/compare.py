"""Comparison of elements: NaN wins over every number, NaNs tie with each other, and -0 ties with +0."""

import functools
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    accumulator_dtype,
    cast,
    is_float,
    reduction_identity,
)

Ties = Literal["first", "last", "split"]
TieOrder = Literal[
    "first", "last", "last_nan"
]  # "last_nan": the first of tied numbers wins, but the last NaN wins
Candidate = tuple[Array, ...]  # (value in the comparison dtype, value), optionally with a flat tap


def to_comparison_dtype(x: Array) -> Array:
    """Convert narrow floats to float32 and bool to uint8, exactly. `from_comparison_dtype` is the inverse."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.bfloat16:
        # The bits of a bfloat16 are the upper half of a float32. XLA vectorises the shift but not the cast.
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << np.uint32(16)
        return lax.bitcast_convert_type(bits, jnp.float32)
    if x.dtype == jnp.float8_e8m0fnu:
        # XLA may flush the least float8_e8m0fnu to 0, as it is subnormal in float32. Its bits sort like its values.
        bits = lax.bitcast_convert_type(x, jnp.uint8)
        return jnp.where(bits == np.uint8(255), np.float32(np.nan), bits.astype(jnp.float32))
    return cast(x, accumulator_dtype(x.dtype))


def from_comparison_dtype(y: Array, dtype: DType) -> Array:
    """Invert `to_comparison_dtype` for values that `dtype` represents exactly."""
    if dtype == jnp.bfloat16:
        bits = (lax.bitcast_convert_type(y, jnp.uint32) >> np.uint32(16)).astype(jnp.uint16)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    if dtype == jnp.float8_e8m0fnu:
        bits = jnp.where(lax.ne(y, y), np.float32(255), y).astype(jnp.uint8)
        return lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
    return cast(y, dtype)


def comparison_dtype_identity(dtype: DType, kind: Kind) -> np.ndarray:
    """Identity of a maximum or minimum of `dtype`, as a NumPy constant in the comparison dtype."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:  # a constant has no sharding
        return np.asarray(to_comparison_dtype(jnp.asarray(reduction_identity(dtype, kind))))


def challenger_wins(challenger: Array, current_best: Array, kind: Kind, ties: TieOrder) -> Array:
    """Mask of elements of `challenger` that win over `current_best`, whose elements come earlier in the window."""
    loses, loses_or_ties = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)
    if not is_float(current_best.dtype):
        return lax.bitwise_not(
            (loses if ties == "last" else loses_or_ties)(challenger, current_best)
        )
    if ties == "last_nan":
        beats = lax.gt if kind == "max" else lax.lt
        return lax.bitwise_or(beats(challenger, current_best), lax.ne(challenger, challenger))
    if ties == "first":
        is_number = lax.eq(current_best, current_best)
        return lax.bitwise_and(lax.bitwise_not(loses_or_ties(challenger, current_best)), is_number)
    keeps_nan = lax.bitwise_and(lax.ne(current_best, current_best), lax.eq(challenger, challenger))
    return lax.bitwise_not(lax.bitwise_or(loses(challenger, current_best), keeps_nan))


def select_best_candidate(
    candidates: Sequence[Candidate], kind: Kind, ties: TieOrder, nan_value: np.ndarray | None = None
) -> tuple[Array, ...]:
    """Value of the winning candidate, followed by its flat tap if the candidates have taps.

    Without `nan_value`, `challenger_wins` takes two comparisons per candidate. With `nan_value`, one chain of selects
    compares numbers and another chain looks for NaN, with one comparison per candidate each. If a candidate is NaN, the
    value is `nan_value`, and the tap is the tap of the NaN.
    """
    beats, wins_or_ties = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    compare = wins_or_ties if ties == "last" else beats

    def better_candidate(current_best: Candidate, challenger: Candidate) -> Candidate:
        keys = challenger[0], current_best[0]
        wins = challenger_wins(*keys, kind, ties) if nan_value is None else compare(*keys)
        return tuple(lax.select(wins, t, b) for t, b in zip(challenger, current_best, strict=True))

    _, value, *tap = functools.reduce(better_candidate, candidates)
    if nan_value is not None:
        nan_masks = [lax.ne(candidate[0], candidate[0]) for candidate in candidates]
        value = lax.select(
            functools.reduce(lax.bitwise_or, nan_masks), lax.full_like(value, nan_value), value
        )
        pairs = [*zip(nan_masks, candidates, strict=True)]
        # Later selects override earlier selects, so the winning NaN is selected last.
        for is_nan, (*_, nan_tap) in reversed(pairs) if ties == "first" else pairs:
            tap = [lax.select(is_nan, nan_tap, best) for best in tap]
    return value, *tap


def is_tied_with(a: Array, b: Array) -> Array:
    """Mask of elements of a that tie with the element of b at the same index."""
    if not is_float(a.dtype):
        return lax.eq(a, b)
    return lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
