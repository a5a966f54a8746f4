"""Types to compute in: accumulators, identities of a maximum and a minimum, index types."""

from __future__ import annotations

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


def cast(x: Array, dtype: DType) -> Array:
    """x in `dtype`; as it is, weak types included, where that is its own."""
    return x if x.dtype == dtype else x.astype(dtype)


def index_dtype(count: int) -> DType:
    """The narrowest unsigned type that holds `count` different values."""
    kinds = (np.uint8, np.uint16, np.uint32)
    return jnp.dtype(next(kind for kind in kinds if count <= np.iinfo(kind).max + 1))


def least(dtype: DType) -> Any:
    """The smallest value of `dtype`: what a maximum is padded with, and never selects."""
    return _bound(dtype, "min")


def greatest(dtype: DType) -> Any:
    """The largest value of `dtype`: what a minimum is padded with."""
    return _bound(dtype, "max")


def losing(dtype: DType, kind: Kind) -> Any:
    """What a maximum or a minimum is padded with: its identity."""
    return least(dtype) if kind == "max" else greatest(dtype)


def _bound(dtype: DType, which: Kind) -> Any:
    """The infinity of a floating type, or its finite bound where it has none (several of the float8 types)."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(which == "max")
    if not is_float(dtype):
        return np.asarray(getattr(jnp.iinfo(dtype), which), dtype)
    with np.errstate(all="ignore"):
        value = np.asarray(np.inf if which == "max" else -np.inf).astype(dtype)
    infinite = np.isinf(value.astype(np.float32))
    return value if infinite else np.asarray(getattr(jnp.finfo(dtype), which), dtype)
