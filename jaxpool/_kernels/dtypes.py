"""Dtypes used in computations: accumulators, index dtypes, and identities of maximum and minimum."""

from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

DType = Any
Kind = Literal["max", "min"]


def is_float(dtype: DType) -> bool:
    """True for floating-point dtypes, including the 8-bit floats."""
    return jnp.issubdtype(dtype, jnp.floating)


def is_16_bit_float(dtype: DType) -> bool:
    """True for 16-bit floating-point dtypes."""
    return is_float(dtype) and jnp.dtype(dtype).itemsize == 2


def bitcast_half_to_uint16(x: Array) -> Array:
    """Bitcast 16-bit floats to uint16, because XLA for CPU would move them as float32; other arrays are unchanged."""
    return lax.bitcast_convert_type(x, np.uint16) if is_16_bit_float(x.dtype) else x


def bitcast_uint16_to_half(x: Array, dtype: DType) -> Array:
    """Invert `bitcast_half_to_uint16` for arrays of `dtype`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def accumulator_dtype(dtype: DType) -> DType:
    """Dtype in which sums of `dtype` are accumulated: float32 for 8- and 16-bit floats, otherwise `dtype`."""
    is_low_precision = is_float(dtype) and jnp.dtype(dtype).itemsize < 4
    return jnp.dtype(jnp.float32) if is_low_precision else jnp.dtype(dtype)


def mean_dtype(dtype: DType) -> DType:
    """Dtype of a mean: `dtype` for floats, float64 for 64-bit integers, otherwise float32, as in `jnp.mean`."""
    if is_float(dtype):
        return jnp.dtype(dtype)
    return jnp.dtype(np.float64 if jnp.dtype(dtype) in (np.int64, np.uint64) else np.float32)


def as_float(x: Array) -> Array:
    """Convert integers and bools to the dtype of their mean; return floats unchanged."""
    return x if is_float(x.dtype) else x.astype(mean_dtype(x.dtype))


def cast(x: Array, dtype: DType) -> Array:
    """Cast x to `dtype`. If x has this dtype already, x is returned unchanged, including a weak type."""
    return x if x.dtype == dtype else x.astype(dtype)


def widen_to_8_bits(x: Array) -> Array:
    """Widen 2-bit and 4-bit integers to 8 bits, because XLA lacks some operations on narrower integers."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    byte_dtype = np.uint8 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else np.int8
    return x.astype(byte_dtype) if jnp.iinfo(x.dtype).bits < jnp.iinfo(byte_dtype).bits else x


def index_dtype(num_values: int) -> DType:
    """Narrowest unsigned integer dtype that has at least `num_values` values."""
    dtypes = (np.uint8, np.uint16, np.uint32)
    return jnp.dtype(next(dtype for dtype in dtypes if num_values <= np.iinfo(dtype).max + 1))


def reduction_identity(dtype: DType, kind: Kind) -> Any:
    """Identity of a maximum or minimum, used as padding: an infinity, or a bound of a dtype without infinities."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(kind == "min")
    bound = "min" if kind == "max" else "max"
    if not is_float(dtype):
        return np.asarray(getattr(jnp.iinfo(dtype), bound), dtype)
    with np.errstate(all="ignore"):
        value = np.asarray(-np.inf if kind == "max" else np.inf).astype(dtype)
    is_infinite = np.isinf(value.astype(np.float32))  # several float8 dtypes have no infinity
    return value if is_infinite else np.asarray(getattr(jnp.finfo(dtype), bound), dtype)
