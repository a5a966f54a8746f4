"""The mean of integers as `scipy.ndimage` cuts it off."""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._ops.apply import applied
from jaxpool._ops.sum_pool import SumPool


def check_width(width: int, dtype: np.dtype) -> None:
    """Raises for a mean of more integers of `dtype` than `whole_mean` can add up."""
    largest = math.isqrt(int(jnp.iinfo(_wide(dtype)).max))
    if width > largest and not _fits(width, dtype):
        rule = f"at most {largest} along an axis of {dtype}"
        raise ArgumentError("size", rule, width, "Convert input to float32 first.")


def whole_mean(op: SumPool, x: Array) -> Array:
    """The mean of the integers of each window of `op`, cut off towards 0, as int32 or wider.

    Where their sum could wrap it is the sum of their quotients by their number, which any type holds,
    and that of the remainders, which `check_width` bounds.
    """
    width, wide = op.window.size, x.astype(_wide(x.dtype))
    many = np.asarray(width, wide.dtype)
    if _fits(width, x.dtype):
        total = applied(op, wide)
        return lax.div(total, lax.full_like(total, many))
    whole = jnp.floor_divide(wide, many)
    rest = applied(op, wide - whole * many)
    more = lax.div(rest, lax.full_like(rest, many))
    mean = applied(op, whole) + more  # rounded down
    cut = (mean < 0) & (rest != more * many)
    return mean + cut.astype(mean.dtype)


def _wide(dtype: np.dtype) -> np.dtype:
    """The type in which integers of `dtype` are added."""
    return np.dtype(np.int32) if dtype.itemsize < 4 else dtype


def _fits(width: int, dtype: np.dtype) -> bool:
    """Whether an int32 holds the sum of any `width` elements."""
    highest = 1 if dtype == np.bool_ else int(jnp.iinfo(dtype).max)
    return dtype.itemsize < 4 and width * (highest + 1) < 2**31
