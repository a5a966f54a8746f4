"""How elements are compared: NaN beats every number, NaNs tie with each other, +0 with -0."""

import functools
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.dtypes import DType, Kind, accumulator, cast, is_float, losing

Ties = Literal["first", "last", "split"]
Order = Literal["first", "last", "last_nan"]  # the third: the first of equal numbers, the last NaN
Term = tuple[Array, ...]  # what is compared, a value, and where wanted the flat tap it stands at


def decode(x: Array) -> Array:
    """x in the type in which it is compared: narrow floats as float32, bool as uint8; exact, and `encode` undoes it."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.bfloat16:
        # Its bits are the upper half of a float32's: shifting them vectorises, a cast does not.
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << np.uint32(16)
        return lax.bitcast_convert_type(bits, jnp.float32)
    if x.dtype == jnp.float8_e8m0fnu:
        # Its least value is a subnormal float32, which XLA may flush to 0; its bits are in order.
        bits = lax.bitcast_convert_type(x, jnp.uint8)
        return jnp.where(bits == np.uint8(255), np.float32(np.nan), bits.astype(jnp.float32))
    return cast(x, accumulator(x.dtype))


def encode(y: Array, dtype: DType) -> Array:
    """Back from `decode` for values that `dtype` holds exactly."""
    if dtype == jnp.bfloat16:
        bits = (lax.bitcast_convert_type(y, jnp.uint32) >> np.uint32(16)).astype(jnp.uint16)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    if dtype == jnp.float8_e8m0fnu:
        bits = jnp.where(lax.ne(y, y), np.float32(255), y).astype(jnp.uint8)
        return lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
    return cast(y, dtype)


def decoded_losing(dtype: DType, kind: Kind) -> np.ndarray:
    """The identity of a maximum or a minimum of `dtype`, decoded: a constant of the program."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:  # what is known lies on no mesh
        return np.asarray(decode(jnp.asarray(losing(dtype, kind))))


def wins(challenger: Array, best: Array, kind: Kind, ties: Order) -> Array:
    """Where `challenger` takes the place of `best`, which comes before it."""
    behind, behind_or_level = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)
    if not is_float(best.dtype):
        return lax.bitwise_not((behind if ties == "last" else behind_or_level)(challenger, best))
    if ties == "last_nan":
        ahead = lax.gt if kind == "max" else lax.lt
        return lax.bitwise_or(ahead(challenger, best), lax.ne(challenger, challenger))
    if ties == "first":
        number = lax.eq(best, best)
        return lax.bitwise_and(lax.bitwise_not(behind_or_level(challenger, best)), number)
    lost_nan = lax.bitwise_and(lax.ne(best, best), lax.eq(challenger, challenger))
    return lax.bitwise_not(lax.bitwise_or(behind(challenger, best), lost_nan))


def best(
    terms: Sequence[Term], kind: Kind, ties: Order, nan: np.ndarray | None = None
) -> tuple[Array, ...]:
    """The value of the best term, and where given the flat tap it stands at.

    With `nan`, terms are compared as numbers, and a second chain looks for a NaN: where there is one, the
    value is `nan`, and the tap is that of the first or last. Each chain has one comparison per term,
    where `wins` has two.
    """
    ahead, ahead_or_level = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    better = ahead_or_level if ties == "last" else ahead

    def joined(best: Term, term: Term) -> Term:
        given = term[0], best[0]
        takes = wins(*given, kind, ties) if nan is None else better(*given)
        return tuple(lax.select(takes, t, b) for t, b in zip(term, best, strict=True))

    _, value, *tap = functools.reduce(joined, terms)
    if nan is not None:
        nans = [lax.ne(term[0], term[0]) for term in terms]
        value = lax.select(functools.reduce(lax.bitwise_or, nans), lax.full_like(value, nan), value)
        in_order = [*zip(nans, terms, strict=True)]
        # A later select overrides: the first NaN comes last.
        for is_nan, (*_, at) in reversed(in_order) if ties == "first" else in_order:
            tap = [lax.select(is_nan, at, best) for best in tap]
    return value, *tap


def level(a: Array, b: Array) -> Array:
    """Where a ties with b."""
    if not is_float(a.dtype):
        return lax.eq(a, b)
    return lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
