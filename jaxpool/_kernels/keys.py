"""Floats as integers of the same order, which XLA for CPU compares right: it takes subnormal floats for zeros.

Comparing floats, it finds 1e-42 and 0 equal, and a maximum of the two is either, by their order.
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
    """Bits of floats as integers in their order, and back: those of negative numbers but the sign are turned."""
    last = lax.full_like(bits, 8 * bits.dtype.itemsize - 1)
    rest = lax.full_like(bits, np.iinfo(bits.dtype).max)
    return lax.bitwise_xor(bits, lax.bitwise_and(lax.shift_right_arithmetic(bits, last), rest))


def to_keys(x: Array, nan: NaN) -> Array:
    """Integers in the order of x, the least or greatest of their type for NaN; -0 comes just before +0.

    What is no float is as `decode` gives it, and 8-bit floats are keyed as float32.
    """
    if x.dtype not in _AS_THEY_ARE:
        x = decode(x)
    return bits_to_keys(to_bits(x), x.dtype, nan) if is_float(x.dtype) else x


def to_bits(x: Array) -> Array:
    """Floats as the integers that have their bits."""
    return lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))


def bits_to_keys(bits: Array, dtype: DType, nan: NaN) -> Array:
    """`to_keys` of the floats that have these bits."""
    limits = np.iinfo(bits.dtype)
    infinity = np.asarray(np.inf).astype(dtype).view(bits.dtype)
    size = lax.bitwise_and(bits, lax.full_like(bits, limits.max))
    end = lax.full_like(bits, limits.max if nan == "greatest" else limits.min)
    return lax.select(lax.gt(size, lax.full_like(bits, infinity)), end, _order(bits))


def from_keys(keys: Array, dtype: DType) -> Array:
    """The values of `dtype` whose keys these are."""
    if not is_float(dtype):
        return encode(keys, dtype)
    known = dtype in _AS_THEY_ARE
    x = lax.bitcast_convert_type(_order(keys), dtype if known else jnp.float32)
    return x if known else encode(x, dtype)


def zeros_level(keys: Array, dtype: DType) -> Array:
    """Keys of which -0 and +0 are the same, in the same order."""
    if not is_float(dtype):
        return keys
    last = lax.full_like(keys, 8 * keys.dtype.itemsize - 1)
    return lax.sub(keys, lax.shift_right_arithmetic(keys, last))


def is_negative(x: Array) -> Array:
    """Where floats have their sign bit set: of -0 too."""
    bits = to_bits(x if x.dtype in _AS_THEY_ARE else decode(x))
    return lax.lt(bits, lax.full_like(bits, 0))


def zeros_signed(y: Array, negative: Array) -> Array:
    """y with -0 for each zero that is `negative`, and +0 for all other zeros.

    Zeros are told by their bits: XLA for CPU takes subnormal floats for zeros.
    """
    wide = y if y.dtype in _AS_THEY_ARE else decode(y)
    bits = to_bits(wide)
    limits = np.iinfo(bits.dtype)
    size = lax.bitwise_and(bits, lax.full_like(bits, limits.max))
    zero = lax.select(negative, lax.full_like(bits, limits.min), lax.full_like(bits, 0))
    signed = lax.select(lax.eq(size, lax.full_like(size, 0)), zero, bits)
    signed = lax.bitcast_convert_type(signed, wide.dtype)
    return signed if y.dtype == wide.dtype else encode(signed, y.dtype)


def key_of(value: np.ndarray, nan: NaN) -> np.ndarray:
    """The key of one number: a constant of the program."""
    no_mesh = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:
        return np.asarray(to_keys(jnp.asarray(value), nan))
