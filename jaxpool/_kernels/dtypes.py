"""Types to compute in: accumulators, identities of a maximum and a minimum, index types."""

from typing import Any, Literal

import numpy as np
from jax import Array
from jax import numpy as jnp

DType = Any
Kind = Literal["max", "min"]


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is a floating type, the 8-bit ones included."""
    return jnp.issubdtype(dtype, jnp.floating)


def accumulator(dtype: DType) -> DType:
    """The type in which sums of `dtype` are accumulated: float32 for 8- and 16-bit floats, else its own."""
    low_precision = is_float(dtype) and jnp.dtype(dtype).itemsize < 4
    return jnp.dtype(jnp.float32) if low_precision else jnp.dtype(dtype)


def float_dtype(dtype: DType) -> DType:
    """The type of a mean of `dtype`, as in `jnp.mean`: a float's own, float64 for 64-bit integers, else float32."""
    if is_float(dtype):
        return jnp.dtype(dtype)
    return jnp.dtype(np.float64 if jnp.dtype(dtype) in (np.int64, np.uint64) else np.float32)


def as_float(x: Array) -> Array:
    """x if it holds floats; integers and bools in the type of their mean."""
    return x if is_float(x.dtype) else x.astype(float_dtype(x.dtype))


def cast(x: Array, dtype: DType) -> Array:
    """x in `dtype`; as it is, weak types included, where that is its own."""
    return x if x.dtype == dtype else x.astype(dtype)


def in_bytes(x: Array) -> Array:
    """x, integers of 2 and 4 bits as those of 8: XLA has not every operation for them."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    byte = np.uint8 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else np.int8
    return x.astype(byte) if jnp.iinfo(x.dtype).bits < jnp.iinfo(byte).bits else x


def index_dtype(count: int) -> DType:
    """The narrowest unsigned type that holds `count` different values."""
    kinds = (np.uint8, np.uint16, np.uint32)
    return jnp.dtype(next(kind for kind in kinds if count <= np.iinfo(kind).max + 1))


def losing(dtype: DType, kind: Kind) -> Any:
    """What a maximum or a minimum is padded with, its identity: an infinity, or the bound of a type that has none."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(kind == "min")
    bound = "min" if kind == "max" else "max"
    if not is_float(dtype):
        return np.asarray(getattr(jnp.iinfo(dtype), bound), dtype)
    with np.errstate(all="ignore"):
        value = np.asarray(-np.inf if kind == "max" else np.inf).astype(dtype)
    infinite = np.isinf(value.astype(np.float32))  # several of the float8 types have no infinity
    return value if infinite else np.asarray(getattr(jnp.finfo(dtype), bound), dtype)
