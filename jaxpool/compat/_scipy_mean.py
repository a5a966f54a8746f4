"""The mean of integers, truncated as in `scipy.ndimage`."""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._ops.apply import applied
from jaxpool._ops.sum_pool import SumPool


def check_width(width: int, dtype: np.dtype) -> None:
    """Raise if `width` is more integers of `dtype` than `whole_mean` can add."""
    largest = math.isqrt(int(jnp.iinfo(_wide(dtype)).max))
    if width > largest and not _fits(width, dtype):
        rule = f"at most {largest} along an axis of {dtype}"
        raise ArgumentError("size", rule, width, "Convert input to float32 first.")


def whole_mean(op: SumPool, x: Array) -> Array:
    """The mean of the integers of each window of `op`, truncated towards 0, as int32 or wider.

    If the sum could overflow, each integer is divided by the number of elements. The sum of the quotients cannot
    overflow, and `check_width` bounds the sum of the remainders.
    """
    width, wide = op.window.size, x.astype(_wide(x.dtype))
    count = np.asarray(width, wide.dtype)
    if _fits(width, x.dtype):
        total = applied(op, wide)
        return lax.div(total, lax.full_like(total, count))
    quotients = jnp.floor_divide(wide, count)
    remainders = applied(op, wide - quotients * count)
    correction = lax.div(remainders, lax.full_like(remainders, count))
    mean = applied(op, quotients) + correction  # the floor of the mean
    rounded_down = (mean < 0) & (remainders != correction * count)
    return mean + rounded_down.astype(mean.dtype)


def _wide(dtype: np.dtype) -> np.dtype:
    """The accumulator dtype for integers of `dtype`."""
    return np.dtype(np.int32) if dtype.itemsize < 4 else dtype


def _fits(width: int, dtype: np.dtype) -> bool:
    """Whether int32 can represent the sum of any `width` elements of `dtype`."""
    highest = 1 if dtype == np.bool_ else int(jnp.iinfo(dtype).max)
    return dtype.itemsize < 4 and width * (highest + 1) < 2**31
