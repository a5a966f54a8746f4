"""Integer keys in the order of floats, for exact comparisons of subnormal numbers and for comparisons in one step.

XLA for CPU treats subnormal floats as zeros in comparisons: 1e-42 equals 0, and the maximum of both depends on their
order. Folded reductions and scans on CPU therefore compare `to_keys`, where -0 comes before +0. Ranks compare
`tied_keys`, where both zeros have one key. 8-bit floats have the keys of float32. Integers are their own keys.
"""

from typing import Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.compare import decode, encode
from jaxpool._kernels.dtypes import DType, is_float

NaN = Literal["greatest", "least"]
_AS_THEY_ARE = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)


def _order(bits: Array) -> Array:
    """Convert float bits to integers in numeric order, or back: invert all bits but the sign of negative numbers."""
    last = lax.full_like(bits, 8 * bits.dtype.itemsize - 1)
    rest = lax.full_like(bits, np.iinfo(bits.dtype).max)
    return lax.bitwise_xor(bits, lax.bitwise_and(lax.shift_right_arithmetic(bits, last), rest))


def _as_wide(x: Array) -> Array:
    """Decode x, unless it is a float with keys of its own width."""
    return x if x.dtype in _AS_THEY_ARE else decode(x)


def to_keys(x: Array, nan: NaN) -> Array:
    """Integer keys in the order of x. NaN gets the least or greatest key, and -0 comes just before +0."""
    x = _as_wide(x)
    return bits_to_keys(to_bits(x), x.dtype, nan) if is_float(x.dtype) else x


def to_bits(x: Array) -> Array:
    """Bits of floats as signed integers."""
    return lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))


def bits_to_keys(bits: Array, dtype: DType, nan: NaN) -> Array:
    """`to_keys` for floats of `dtype` that are passed as their bits."""
    limits = np.iinfo(bits.dtype)
    infinity = np.asarray(np.inf).astype(dtype).view(bits.dtype)
    size = lax.bitwise_and(bits, lax.full_like(bits, limits.max))
    end = lax.full_like(bits, limits.max if nan == "greatest" else limits.min)
    return lax.select(lax.gt(size, lax.full_like(bits, infinity)), end, _order(bits))


def from_keys(keys: Array, dtype: DType) -> Array:
    """Invert `to_keys`."""
    return _from_bits(_order(keys), dtype) if is_float(dtype) else encode(keys, dtype)


def _from_bits(bits: Array, dtype: DType) -> Array:
    """Floats of `dtype` from bits of `_as_wide`."""
    if dtype in _AS_THEY_ARE:
        return lax.bitcast_convert_type(bits, dtype)
    return encode(lax.bitcast_convert_type(bits, jnp.float32), dtype)


def tied_keys(x: Array) -> Array:
    """Integer keys in the order of x. -0 and +0 share a key, and all NaNs share a key above infinity."""
    x = _as_wide(x)
    if not is_float(x.dtype):
        return x
    order = _tied_order(to_bits(x))
    nan = np.asarray(np.nan, x.dtype).view(order.dtype)
    return lax.select(lax.ne(x, x), lax.full_like(order, abs(int(nan))), order)


def from_tied_keys(keys: Array, dtype: DType) -> Array:
    """Invert `tied_keys`, with +0 for the key of both zeros."""
    return _from_bits(_tied_order(keys), dtype) if is_float(dtype) else encode(keys, dtype)


def _tied_order(bits: Array) -> Array:
    """Convert sign and magnitude to integers in numeric order, or back; -0 becomes +0."""
    lowest = lax.full_like(bits, jnp.iinfo(bits.dtype).min)
    return lax.select(lax.lt(bits, lax.full_like(bits, 0)), lowest - bits, bits)


def end_of_keys(dtype: DType, last: bool) -> np.ndarray:
    """Least or, with `last`, greatest value of a key dtype. `tied_keys` of floats never reach it; integers may."""
    info = jnp.iinfo(dtype)
    return np.asarray(info.max if last else info.min, dtype)


def zeros_level(keys: Array, dtype: DType) -> Array:
    """Map the keys of -0 and +0 to one key, preserving the order."""
    if not is_float(dtype):
        return keys
    last = lax.full_like(keys, 8 * keys.dtype.itemsize - 1)
    return lax.sub(keys, lax.shift_right_arithmetic(keys, last))


def is_negative(x: Array) -> Array:
    """Mask of floats with the sign bit set, including -0."""
    bits = to_bits(_as_wide(x))
    return lax.lt(bits, lax.full_like(bits, 0))


def zeros_signed(y: Array, negative: Array) -> Array:
    """Set zeros of y to -0 where `negative` is True, and to +0 elsewhere.

    Zeros are found by their bits, because XLA for CPU treats subnormal floats as zeros.
    """
    wide = _as_wide(y)
    bits = to_bits(wide)
    limits = np.iinfo(bits.dtype)
    size = lax.bitwise_and(bits, lax.full_like(bits, limits.max))
    zero = lax.select(negative, lax.full_like(bits, limits.min), lax.full_like(bits, 0))
    signed = lax.select(lax.eq(size, lax.full_like(size, 0)), zero, bits)
    return _from_bits(signed, y.dtype)


def key_of(value: np.ndarray, nan: NaN) -> np.ndarray:
    """Key of one number, as a constant."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:
        return np.asarray(to_keys(jnp.asarray(value), nan))
