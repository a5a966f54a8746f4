"""Shared by the tests of random pools: keys and dtypes."""

import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0, impl="rbg")  # compiles fastest
THREEFRY = jax.random.key(0)
FLOATS = [np.float16, jnp.bfloat16, jnp.float8_e3m4, jnp.float8_e4m3, jnp.float8_e4m3b11fnuz]
FLOATS += [jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2, jnp.float8_e5m2fnuz]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]
