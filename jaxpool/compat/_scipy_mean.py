"""The mean of integers, truncated as in `scipy.ndimage`."""

from __future__ import annotations

import math

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._ops.apply import apply_op
from jaxpool._ops.sum_pool import SumPool


def check_window_size(window_size: int, dtype: np.dtype) -> None:
    """Raise if `window_size` is more integers of `dtype` than `integer_mean` can add."""
    max_size = math.isqrt(int(jnp.iinfo(_accumulator_dtype(dtype)).max))
    if window_size > max_size and not _sum_fits_int32(window_size, dtype):
        rule = f"at most {max_size} along an axis of {dtype}"
        raise ArgumentError("size", rule, window_size, "Convert input to float32 first.")


def integer_mean(op: SumPool, x: Array) -> Array:
    """The mean of the integers of each window of `op`, truncated towards 0, as int32 or wider.

    If the sum could overflow, each integer is divided by the number of elements. The sum of the quotients cannot
    overflow, and `check_window_size` bounds the sum of the remainders.
    """
    num_elements, wide_x = op.window.size, x.astype(_accumulator_dtype(x.dtype))
    count = np.asarray(num_elements, wide_x.dtype)
    if _sum_fits_int32(num_elements, x.dtype):
        total = apply_op(op, wide_x)
        return lax.div(total, lax.full_like(total, count))
    quotients = jnp.floor_divide(wide_x, count)
    remainders = apply_op(op, wide_x - quotients * count)
    correction = lax.div(remainders, lax.full_like(remainders, count))
    mean = apply_op(op, quotients) + correction  # the floor of the mean
    rounded_down = (mean < 0) & (remainders != correction * count)
    return mean + rounded_down.astype(mean.dtype)


def _accumulator_dtype(dtype: np.dtype) -> np.dtype:
    """The accumulator dtype for integers of `dtype`."""
    return np.dtype(np.int32) if dtype.itemsize < 4 else dtype


def _sum_fits_int32(num_elements: int, dtype: np.dtype) -> bool:
    """Whether int32 can represent the sum of any `num_elements` elements of `dtype`."""
    max_value = 1 if dtype == np.bool_ else int(jnp.iinfo(dtype).max)
    return dtype.itemsize < 4 and num_elements * (max_value + 1) < 2**31
