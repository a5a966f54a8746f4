"""Shared by the tests of random pools and of unpooling: keys, and a column of numbers."""

import jax
import numpy as np

KEY = jax.random.key(0, impl="rbg")  # compiles fastest
THREEFRY = jax.random.key(0)


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]
