"""Dtypes of few bits give correct values, and complex numbers raise our TypeError."""

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import numpy as jnp

import jaxpool
from jaxpool.testing import pools

SLOW_DTYPES = ["int2", "uint2", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3"]
SLOW_DTYPES += ["float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"]
SLOW_DTYPES += ["float8_e5m2fnuz", "float8_e8m0fnu", "complex64"]
MIN_VALUES, NUM_VALUES = {"int2": -2, "int4": -8}, {"int2": 2, "uint2": 4, "int4": 8, "uint4": 16}


def random_integers(dtype, shape):
    """Random integers that a dtype holds, from 0 to 3 for floats."""
    rng = np.random.default_rng(0)
    values = rng.integers(MIN_VALUES.get(dtype, 0), NUM_VALUES.get(dtype, 4), shape)
    return values.astype(np.int8).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize(
    "dtype", ["int4", *[pytest.param(each, marks=pytest.mark.slow) for each in SLOW_DTYPES]]
)
@pytest.mark.parametrize("name", pools())
def test_values_match_the_oracle_or_complex_raises(name, dtype):
    pool, x = pools()[name], random_integers(dtype, (2, 4, 6, 4))
    arguments = pool.given(x)
    if dtype == "complex64":
        with pytest.raises(TypeError, match=f"jaxpool.{name}: "):
            pool.run(arguments)
        return
    result = jax.tree.leaves(pool.run(arguments))[0]
    wanted = pool.run(arguments, pool.meaning).y
    assert result.dtype == wanted.dtype
    got, want = (np.asarray(each).astype(np.float64) for each in (result, wanted))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    if jnp.issubdtype(dtype, jnp.floating) and not pool.marks:
        operands = {name: jax.tree.map(jnp.asarray, arguments[name]) for name in pool.operands}
        y, pullback = jax.vjp(
            lambda floats: jax.tree.leaves(pool.run({**arguments, **floats}))[0], operands
        )
        jax.block_until_ready(pullback(jnp.ones_like(y)))


@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4"])
def test_k_max_pool_of_2_and_4_bit_integers(dtype):
    x = random_integers(dtype, (3, 40))
    y = jaxpool.k_max_pool(jnp.asarray(x), 5, axis=1)
    wanted = jaxpool.k_max_pool(jnp.asarray(x.astype(np.int8)), 5, axis=1)
    assert y.dtype == dtype
    assert np.array_equal(np.asarray(y).astype(np.int8), wanted)
