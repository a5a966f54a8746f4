"""Moves, which convert the sums of `scaled.py` to a larger scale, and functions whose derivatives do not overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

State = tuple[Array, ...]
# (sums, low, high, rate) -> sums: converts sums at scale `low` to scale `high`; linear in the sums.
Move = Callable[[Sequence[Any], Array, Array, Any], State]

# Integer powers up to this exponent are products, so that they are smooth at 0.
POLYNOMIAL = 16


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros with derivative 1, also for infinite x."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def divided(x: Array, by: Any) -> Array:
    """`x / by`. Its derivative divides twice, because the square of `by`, which jax uses, may overflow or underflow."""
    return x / by


@divided.defjvp
def _divided_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    ratio, by = divided(*primals), primals[1]
    return ratio, divided(tangents[0] - ratio * tangents[1], by)


def size(x: Array) -> Array:
    """`|x|`, with derivative 0 at 0."""
    return jnp.where(x == 0, 0, lax.abs(x))


def size_to(x: Array, p: Any) -> Array:
    """`|x|^p`, with derivative 0 at 0 if it has none."""
    if isinstance(p, float) and p == int(p) <= POLYNOMIAL:
        return lax.integer_pow(x if p % 2 == 0 else lax.abs(x), int(p))
    none = lax.abs(x) < jnp.finfo(x.dtype).tiny
    # `jnp.where` would lose the varying mesh axes of an array without elements.
    some = lax.select(none, lax.full_like(x, 1), x)
    return lax.select(none, lax.full_like(x, 0), lax.exp(p * lax.log(lax.abs(some))))


def exponential(*, by_temperature: bool = False) -> Move:
    """The move for scales that are exponents: sums at `low` have the weight `exp(-(high - low) / temperature)`.

    The sums are totals of the terms, of the terms times their height above the scale, and times its square.
    `by_temperature` divides heights by the temperature.
    """

    def move(sums: Sequence[Array], low: Array, high: Array, temperature: Any) -> State:
        info, depth = jnp.finfo(low.dtype), rise(low, high)
        # exp(-limit) is the smallest positive number.
        limit = math.log(2) * (info.nmant - info.minexp)
        far = jnp.greater(lax.stop_gradient(depth / temperature), limit)
        depth = jnp.where(far, 0, depth)
        steps = divided(depth, temperature)
        factor = jnp.where(far, 0, lax.exp(-steps))
        return moved(sums, factor, -steps if by_temperature else -depth)

    return move


def rise(low: Array, high: Array) -> Array:
    """`high - low`, 0 for equal infinities. Its derivative treats `high` as constant."""
    fixed = lax.stop_gradient(low), lax.stop_gradient(high)
    return jnp.where(fixed[0] == fixed[1], 0, fixed[1] - fixed[0]) - departure(low)


def moved(sums: Sequence[Array], factor: Array, height: Array) -> State:
    """Total and moments of terms times `factor`, after adding `height` to the height of every term."""
    total, *moments = sums
    moved = [total]
    if moments:
        moved.append(moments[0] + height * total)
    if len(moments) > 1:
        moved.append(moments[1] + height * (2 * moments[0] + height * total))
    return tuple(factor * each for each in moved)


def ratio(low: Array, high: Array) -> Array:
    """`low / high`; 0 if `high` is 0 or infinite, or `low` is infinite.

    Some compilers multiply by the inverse of `high`, which is subnormal for the largest numbers; `unit` prevents this.
    """
    usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
    unit = jnp.where(high > 2.0**100, 2.0**-4, 1.0).astype(low.dtype)
    return divided(jnp.where(jnp.isinf(low), 0, low) * unit, jnp.where(usual, high * unit, np.inf))


def power(sums: Sequence[Array], low: Array, high: Array, rate: Any) -> State:
    """The move for scales that are non-negative factors: sums at `low` have the weight `(low / high)^rate`."""
    weight = size_to(jnp.where(low == high, 1, ratio(low, high)), rate)
    return tuple(weight * each for each in sums)
