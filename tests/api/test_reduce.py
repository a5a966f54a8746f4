"""`max` and `min`: initial values. `test_calls_against_oracle.py` has axes and masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

nan = np.nan


def test_scalars():
    assert jax.grad(jaxpool.max)(3.0) == 1


# Initial values


def test_gradient_of_initial():
    def f(x, initial, **options):
        return jaxpool.max(x, initial=initial, **options)

    x = np.float32([1, 3, 3])
    for initial, want in [(3.0, ([0, 0.5, 0.5], 0)), (4.0, ([0, 0, 0], 1)), (nan, ([0, 0, 0], 1))]:
        dx, d_initial = jax.grad(f, (0, 1))(x, np.float32(initial))
        np.testing.assert_array_equal(dx, want[0])
        assert d_initial == want[1]
        tangent = jax.jvp(functools.partial(f, autodiff="jvp"), (x, initial), (x, 7.0))[1]
        assert tangent == (7 if want[1] else 3)
    nans = np.float32([nan, 1])
    np.testing.assert_array_equal(jax.grad(f)(nans, nan), [1, 0])
    assert jaxpool.max(np.arange(3), initial=np.int8(5)).dtype == jnp.arange(3).dtype


def test_fully_masked_float8_e8m0fnu_gives_initial():
    x = jnp.full((2,), 4, jnp.float8_e8m0fnu)
    y = jaxpool.min(x, where=jnp.zeros((2,), bool), initial=2.0)
    assert (y.dtype, float(y)) == (x.dtype, 2.0)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float8_e5m2, np.float32])
def test_initial_int_beyond_64_bits(dtype):
    """ml_dtypes does not convert such ints to its floats."""
    y = jaxpool.max(jnp.zeros(2, dtype), initial=2**15 if dtype == jnp.float8_e5m2 else 2**63)
    assert float(y) in (2.0**15, 2.0**63)
    assert jaxpool.max(jnp.zeros(2, dtype), initial=2**64) == jnp.asarray(2.0**64, dtype)
