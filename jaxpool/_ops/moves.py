"""What a sum at one scale amounts to at a larger one, and numbers whose derivatives stay within the type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

State = tuple[Array, ...]
# What sums at the scale `low` amount to at `high`, given (sums, low, high, rate); linear in the sums.
Move = Callable[[Sequence[Any], Array, Array, Any], State]

POLYNOMIAL = 16  # up to here |x|^p of an integer p is multiplied out, so that it is smooth at 0


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros whose derivative is 1, also where x is infinite."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def divided(x: Array, by: Any) -> Array:
    """`x / by`. The derivative divides twice: the square of `by`, as jax has it, may leave the type."""
    return x / by


@divided.defjvp
def _divided_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    ratio, by = divided(*primals), primals[1]
    return ratio, divided(tangents[0] - ratio * tangents[1], by)


def size(x: Array) -> Array:
    """`|x|`, with derivative 0 at 0."""
    return jnp.where(x == 0, 0, lax.abs(x))


def size_to(x: Array, p: Any) -> Array:
    """`|x|^p`; where that has no derivative at 0, 0 stands in for it."""
    if isinstance(p, float) and p == int(p) <= POLYNOMIAL:
        return lax.integer_pow(x if p % 2 == 0 else lax.abs(x), int(p))
    none = lax.abs(x) < jnp.finfo(x.dtype).tiny
    # Not `jnp.where`, which forgets how an array without elements varies over devices.
    some = lax.select(none, lax.full_like(x, 1), x)
    return lax.select(none, lax.full_like(x, 0), lax.exp(p * lax.log(lax.abs(some))))


def exponential(*, by_temperature: bool = False) -> Move:
    """Scales are exponents: a low one weighs `exp(-(high - low) / heat)`.

    Given are the sum of terms, and of terms times the height above the scale to the first and the
    second power; heights are divided by the heat if `by_heat`.
    """

    def move(sums: Sequence[Array], low: Array, high: Array, temperature: Any) -> State:
        info, depth = jnp.finfo(low.dtype), rise(low, high)
        limit = math.log(2) * (info.nmant - info.minexp)  # exp(-limit) is the least number above 0
        far = jnp.greater(lax.stop_gradient(depth / temperature), limit)
        depth = jnp.where(far, 0, depth)
        steps = divided(depth, temperature)
        factor = jnp.where(far, 0, lax.exp(-steps))
        return moved(sums, factor, -steps if by_temperature else -depth)

    return move


def rise(low: Array, high: Array) -> Array:
    """How far `high` is above `low`; equal infinities are level. The derivative is that of the difference."""
    fixed = lax.stop_gradient(low), lax.stop_gradient(high)
    return jnp.where(fixed[0] == fixed[1], 0, fixed[1] - fixed[0]) - departure(low)


def moved(sums: Sequence[Array], factor: Array, height: Array) -> State:
    """The sum of terms, and those of terms times a height to the first and the second power, `height` higher."""
    total, *moments = sums
    moved = [total]
    if moments:
        moved.append(moments[0] + height * total)
    if len(moments) > 1:
        moved.append(moments[1] + height * (2 * moments[0] + height * total))
    return tuple(factor * each for each in moved)


def ratio(low: Array, high: Array) -> Array:
    """`low / high` of windows of usual size; 0 of those whose scale is 0 or infinite, and of what is infinite.

    Some compilers multiply by an inverse, which is no normal number if `high` is among the largest.
    """
    usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
    unit = jnp.where(high > 2.0**100, 2.0**-4, 1.0).astype(low.dtype)
    return divided(jnp.where(jnp.isinf(low), 0, low) * unit, jnp.where(usual, high * unit, np.inf))


def power(sums: Sequence[Array], low: Array, high: Array, rate: Any) -> State:
    """Scales are factors, not negative: a low one weighs `(low / high)^rate`."""
    weight = size_to(jnp.where(low == high, 1, ratio(low, high)), rate)
    return tuple(weight * each for each in sums)
