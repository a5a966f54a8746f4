"""Range status of windows, and arithmetic with derivatives that neither overflow nor underflow, for soft pools."""

import math
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from jaxpool._kernels.dtypes import DType, full_like, is_inf, scalar_like, where

Parameter = Array | float  # a temperature or a power

# Range status of a window: in range; only zeros, which some pools handle separately; out of range.
IN_RANGE, ALL_ZERO, OUT_OF_RANGE = 2, 1, 0


@custom_vmap
def min_status(statuses: Array) -> Array:
    """The minimum range status (IN_RANGE, ALL_ZERO or OUT_OF_RANGE) of all windows and all examples of a `vmap`."""
    return jnp.min(statuses, initial=IN_RANGE)


min_status.def_vmap(lambda axis_size, in_batched, statuses: (min_status(statuses), False))


@jax.custom_jvp
def zeros_with_tangent(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros with derivative 1, also for infinite x."""
    zeros = full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@zeros_with_tangent.defjvp
def _zeros_with_tangent_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return zeros_with_tangent(*primals), tangents[0]


@jax.custom_jvp
def divide(x: Array, divisor: ArrayLike) -> Array:
    """`x / divisor`. The derivative divides twice, because the square of `divisor` may overflow or underflow."""
    return x / divisor


@divide.defjvp
def _divide_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    ratio, divisor = divide(*primals), primals[1]
    return ratio, divide(tangents[0] - ratio * tangents[1], divisor)


def ratio(x: Array, divisor: Array) -> Array:
    """`x / divisor`; 0 if `divisor` is 0 or infinite, or x is infinite."""
    is_valid = lax.bitwise_not((divisor == 0) | is_inf(divisor))
    # Some compilers multiply by the inverse of the divisor, which is subnormal for the largest numbers.
    unit = where(divisor > 2.0**100, full_like(divisor, 2.0**-4), 1)
    return divide(where(is_inf(x), 0, x) * unit, where(is_valid, divisor * unit, np.inf))


def clip_value(value: Parameter, dtype: DType, largest: float = 2.0**-32) -> Any:
    """`value` in `dtype`. A Python number is clipped to magnitudes whose inverses are normal.

    The bounds are 2^32 times the smallest normal number of `dtype`, and `largest` times its largest number.
    """
    if isinstance(value, jax.Array):
        return value.astype(dtype)
    info = jnp.finfo(dtype)
    size = min(max(abs(value), float(info.tiny) * 2**32), float(info.max) * largest)
    return math.copysign(size, value)


def range_status(in_range: Array, all_zero: Array | None = None) -> Array:
    """The range status of each window: IN_RANGE, ALL_ZERO or OUT_OF_RANGE."""
    status = full_like(in_range, OUT_OF_RANGE, np.int8)
    if all_zero is not None:
        status = where(all_zero, ALL_ZERO, status)
    return where(in_range, IN_RANGE, status)


def is_within(x: Array, low: float, high: float) -> Array:
    """True where `low <= x <= high`."""
    return lax.bitwise_and(lax.ge(x, scalar_like(x, low)), lax.le(x, scalar_like(x, high)))


def log2_within(x: Array, max_log2: float) -> Array:
    """True where |x| is between `2**-max_log2` and `2**max_log2`."""
    return is_within(lax.abs(lax.stop_gradient(x)), 2.0**-max_log2, 2.0**max_log2)


def is_medium(x: Array, max_log2: float = 60) -> Array:
    """True where x is 0 or of moderate size, so that its products neither overflow nor underflow."""
    return log2_within(x, max_log2) | (lax.stop_gradient(x) == 0)


def scale_dy(
    dy: Array, slope: Array, window_in_range: Array, all_zero: Array | None = None
) -> tuple[Array, Array]:
    """`dy * slope` in the windows where `window_in_range` is True, else 0, and the range status of the product."""
    product = where(window_in_range, dy * slope, 0)
    in_range = window_in_range & (log2_within(product, 100) | lax.eq(dy, scalar_like(dy, 0)))
    return product, range_status(in_range, all_zero)
