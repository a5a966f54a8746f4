"""16-bit floats compared as 16-bit integers in the same order: twice as many to a vector, and no test for NaN."""

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels.compare import Keys, Order
from jaxpool._kernels.dtypes import DType, Kind

_MAGNITUDE = np.int16(2**15 - 1)  # all bits but the sign; as a float, a NaN
_NAN_KEY = {"max": np.int16(2**15 - 1), "min": np.int16(-(2**15))}


def integer_keys(dtype: DType, kind: Kind, ties: Order) -> Keys:
    """The keys of bfloat16 and float16. Every NaN comes back as the same one, and wins."""
    nan = _NAN_KEY[kind]
    infinity = np.asarray(np.inf, dtype).view(np.int16)

    def to(x: Array) -> Array:
        bits = lax.bitcast_convert_type(x, jnp.int16)
        order = jnp.where(bits < 0, bits ^ _MAGNITUDE, bits)
        return jnp.where((bits & _MAGNITUDE) > infinity, nan, order)

    def back(key: Array) -> Array:
        bits = jnp.where(key < 0, key ^ _MAGNITUDE, key)
        return lax.bitcast_convert_type(jnp.where(key == nan, _MAGNITUDE, bits), dtype)

    def as_if_positive(key: Array) -> Array:
        """The key of -0, which is -1, as that of +0."""
        return jnp.where(key == np.int16(-1), np.int16(0), key)

    behind, behind_or_level = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)

    def takes(challenger: Array, best: Array) -> Array:
        # Zeros tie, but the key of +0 is above that of -0. Of a maximum with the first of ties, +0 after -0
        # would win, and with the last -0 after +0 would lose: there -0 is read as +0, on one side alone.
        if (kind == "max") == (ties != "last"):
            best = as_if_positive(best)
        else:
            challenger = as_if_positive(challenger)
        lost = (behind if ties == "last" else behind_or_level)(challenger, best)
        if ties == "last_nan":
            lost = lax.bitwise_and(lost, lax.ne(challenger, lax.full_like(challenger, nan)))
        return lax.bitwise_not(lost)

    return Keys(to, back, takes)
