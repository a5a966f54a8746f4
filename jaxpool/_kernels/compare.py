"""Comparison of elements: NaN wins over every number, NaNs tie with each other, and -0 ties with +0."""

import functools
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import DType, Kind, accumulator, cast, identity_of, is_float

Ties = Literal["first", "last", "split"]
Order = Literal["first", "last", "last_nan"]  # "last_nan": the first of equal numbers, the last NaN
Term = tuple[Array, ...]  # (decoded value, value) or (decoded value, value, flat tap)


def decode(x: Array) -> Array:
    """Convert x to the dtype of comparisons: narrow floats to float32, bool to uint8. `encode` is the exact inverse."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.bfloat16:
        # The bits of a bfloat16 are the upper half of a float32. XLA vectorises the shift but not the cast.
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << np.uint32(16)
        return lax.bitcast_convert_type(bits, jnp.float32)
    if x.dtype == jnp.float8_e8m0fnu:
        # The least value is a subnormal float32, which XLA may flush to 0. The bits have the same order.
        bits = lax.bitcast_convert_type(x, jnp.uint8)
        return jnp.where(bits == np.uint8(255), np.float32(np.nan), bits.astype(jnp.float32))
    return cast(x, accumulator(x.dtype))


def encode(y: Array, dtype: DType) -> Array:
    """Invert `decode` for values that `dtype` represents exactly."""
    if dtype == jnp.bfloat16:
        bits = (lax.bitcast_convert_type(y, jnp.uint32) >> np.uint32(16)).astype(jnp.uint16)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    if dtype == jnp.float8_e8m0fnu:
        bits = jnp.where(lax.ne(y, y), np.float32(255), y).astype(jnp.uint8)
        return lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
    return cast(y, dtype)


def decoded_identity_of(dtype: DType, kind: Kind) -> np.ndarray:
    """Decoded identity of a maximum or minimum in `dtype`, as a constant."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:  # a constant has no sharding
        return np.asarray(decode(jnp.asarray(identity_of(dtype, kind))))


def replaces(challenger: Array, best: Array, kind: Kind, ties: Order) -> Array:
    """Mask of elements of `challenger` that replace `best`, which comes before it."""
    loses, loses_or_ties = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)
    if not is_float(best.dtype):
        return lax.bitwise_not((loses if ties == "last" else loses_or_ties)(challenger, best))
    if ties == "last_nan":
        beats = lax.gt if kind == "max" else lax.lt
        return lax.bitwise_or(beats(challenger, best), lax.ne(challenger, challenger))
    if ties == "first":
        number = lax.eq(best, best)
        return lax.bitwise_and(lax.bitwise_not(loses_or_ties(challenger, best)), number)
    lost_nan = lax.bitwise_and(lax.ne(best, best), lax.eq(challenger, challenger))
    return lax.bitwise_not(lax.bitwise_or(loses(challenger, best), lost_nan))


def best(
    terms: Sequence[Term], kind: Kind, ties: Order, nan: np.ndarray | None = None
) -> tuple[Array, ...]:
    """Value of the winning term, followed by its flat tap if the terms have taps.

    Without `nan`, `replaces` takes two comparisons per term. With `nan`, one chain compares numbers and a second chain
    looks for NaN, with one comparison per term each. If there is a NaN, the value is `nan` and its tap is returned.
    """
    beats, wins_or_ties = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    better = wins_or_ties if ties == "last" else beats

    def joined(best: Term, term: Term) -> Term:
        keys = term[0], best[0]
        takes = replaces(*keys, kind, ties) if nan is None else better(*keys)
        return tuple(lax.select(takes, t, b) for t, b in zip(term, best, strict=True))

    _, value, *tap = functools.reduce(joined, terms)
    if nan is not None:
        nans = [lax.ne(term[0], term[0]) for term in terms]
        value = lax.select(functools.reduce(lax.bitwise_or, nans), lax.full_like(value, nan), value)
        in_order = [*zip(nans, terms, strict=True)]
        # Later selects override earlier selects, so the winning NaN is selected last.
        for is_nan, (*_, at) in reversed(in_order) if ties == "first" else in_order:
            tap = [lax.select(is_nan, at, best) for best in tap]
    return value, *tap


def ties_with(a: Array, b: Array) -> Array:
    """Mask of elements of a that tie with b."""
    if not is_float(a.dtype):
        return lax.eq(a, b)
    return lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
