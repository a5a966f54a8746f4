"""Shared by the tests of max pools with indices and of unpooling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

FLOATS = [np.float32, np.float16, jnp.bfloat16, jnp.float8_e3m4, jnp.float8_e4m3]
FLOATS += [jnp.float8_e4m3b11fnuz, jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2]
FLOATS += [jnp.float8_e5m2fnuz]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
QUICK_DTYPES = (np.float32, jnp.bfloat16, jnp.float8_e4m3fn, np.bool_, np.int8, np.uint32)
every_dtype = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(t, marks=() if t in QUICK_DTYPES else pytest.mark.slow)
        for t in FLOATS + INTEGERS
    ],
    ids=lambda dtype: np.dtype(dtype).name,
)


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


@functools.partial(jax.jit, static_argnames=("options",))
def pooled(x, dy, options):
    """Return y, indices and, unless dy is None, the cotangent of x."""
    pool = functools.partial(jaxpool.max_pool_with_argmax, **dict(options))
    if dy is None:
        return *pool(x), None
    y, pullback, indices = jax.vjp(pool, x, has_aux=True)
    return y, indices, pullback(dy)[0]


def hashable_options(**options):
    return tuple(sorted(options.items()))
