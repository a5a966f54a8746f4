"""Integer keys in the order of floats: one integer comparison of keys is exact for NaN and for subnormal numbers.

XLA for CPU treats subnormal floats as zeros in comparisons: 1e-42 equals 0, and max(0, 1e-42) depends on the order of
the operands. Reductions in chunks and scans on CPU therefore compare `to_sort_keys`, where -0 comes before +0. Rank
pools compare `zero_tied_sort_keys`, where both zeros have one key. 8-bit floats have the keys of float32. The key of
an integer is the integer itself.
"""

import functools
from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import DType

NaNPosition = Literal["greatest", "least"]
_BITCAST_DTYPES = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)


def _flip_bits_of_negatives(bits: Array) -> Array:
    """Convert float bits to integers in numeric order, or back: invert all bits except the sign of negative numbers."""
    shift = dtypes.scalar_like(bits, 8 * bits.dtype.itemsize - 1)
    mask = dtypes.scalar_like(bits, np.iinfo(bits.dtype).max)
    return lax.bitwise_xor(bits, lax.bitwise_and(lax.shift_right_arithmetic(bits, shift), mask))


def _widen_8_bit_floats(x: Array) -> Array:
    """Convert x to the comparison dtype, unless x is a 16-, 32- or 64-bit float, whose keys have the width of x."""
    return x if x.dtype in _BITCAST_DTYPES else dtypes.to_comparison_dtype(x)


def float_bits(x: Array) -> Array:
    """Bits of the floats x as signed integers of the same width."""
    return lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))


@functools.partial(jax.jit, static_argnums=(1, 2))
def to_sort_keys(x: Array, nan_position: NaNPosition, float_dtype: DType | None = None) -> Array:
    """Integer keys in the order of x. NaN gets the least or the greatest key, and -0 comes directly before +0.

    x may also hold the `float_bits` of floats of `float_dtype`.
    """
    if float_dtype is None or dtypes.is_float(x.dtype):
        x = _widen_8_bit_floats(x)
        if not dtypes.is_float(x.dtype):
            return x
        x, float_dtype = float_bits(x), x.dtype
    info = np.iinfo(x.dtype)
    infinity = np.asarray(np.inf).astype(float_dtype).view(x.dtype)
    magnitude = lax.bitwise_and(x, dtypes.scalar_like(x, info.max))
    nan_key = dtypes.full_like(x, info.max if nan_position == "greatest" else info.min)
    is_nan = lax.gt(magnitude, dtypes.scalar_like(x, infinity))
    return lax.select(is_nan, nan_key, _flip_bits_of_negatives(x))


def from_sort_keys(sort_keys: Array, dtype: DType) -> Array:
    """Invert `to_sort_keys`."""
    if not dtypes.is_float(dtype):
        return dtypes.from_comparison_dtype(sort_keys, dtype)
    return _floats_from_bits(_flip_bits_of_negatives(sort_keys), dtype)


def _floats_from_bits(bits: Array, dtype: DType) -> Array:
    """Convert the bits of floats that `_widen_8_bit_floats` returned back to floats of `dtype`."""
    if dtype in _BITCAST_DTYPES:
        return lax.bitcast_convert_type(bits, dtype)
    return dtypes.from_comparison_dtype(lax.bitcast_convert_type(bits, jnp.float32), dtype)


def zero_tied_sort_keys(x: Array) -> Array:
    """Integer keys in the order of x. -0 and +0 share a key, and all NaNs share a key above infinity."""
    x = _widen_8_bit_floats(x)
    if not dtypes.is_float(x.dtype):
        return x
    sort_keys = _convert_sign_magnitude(float_bits(x))
    nan = np.asarray(np.nan, x.dtype).view(sort_keys.dtype)
    return dtypes.where(lax.ne(x, x), abs(int(nan)), sort_keys)


def from_zero_tied_sort_keys(sort_keys: Array, dtype: DType) -> Array:
    """Invert `zero_tied_sort_keys`, with +0 for the key of both zeros."""
    if not dtypes.is_float(dtype):
        return dtypes.from_comparison_dtype(sort_keys, dtype)
    return _floats_from_bits(_convert_sign_magnitude(sort_keys), dtype)


def _convert_sign_magnitude(bits: Array) -> Array:
    """Convert sign-magnitude bits to integers in numeric order, or back; -0 becomes +0."""
    lowest = dtypes.scalar_like(bits, jnp.iinfo(bits.dtype).min)
    return lax.select(lax.lt(bits, dtypes.scalar_like(bits, 0)), lax.sub(lowest, bits), bits)


def min_or_max_key(dtype: DType, is_max: bool) -> np.ndarray:
    """Least value of a key dtype, or the greatest with `is_max`. Keys of floats never have this value; integers may."""
    info = jnp.iinfo(dtype)
    return np.asarray(info.max if is_max else info.min, dtype)


def tie_zero_keys(sort_keys: Array, dtype: DType) -> Array:
    """Map the sort keys of -0 and +0 to one key, and preserve the order of all other keys."""
    if not dtypes.is_float(dtype):
        return sort_keys
    shift = dtypes.scalar_like(sort_keys, 8 * sort_keys.dtype.itemsize - 1)
    return lax.sub(sort_keys, lax.shift_right_arithmetic(sort_keys, shift))


def constant_sort_key(value: np.ndarray) -> np.ndarray:
    """`to_sort_keys` of a NumPy constant other than NaN, by NumPy."""
    value = value if value.dtype in _BITCAST_DTYPES else dtypes.constant_in_comparison_dtype(value)
    if not dtypes.is_float(value.dtype):
        return value
    bits = value.view(f"int{8 * value.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
