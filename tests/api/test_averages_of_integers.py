"""Averages of integers have the type that `jnp.mean` gives, and their numbers are not rounded before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools
from tests.support.compilation import HASTY

RECORDS = pools()
X = (
    2**24 + np.arange(2 * 6 * 6 * 2).reshape(2, 6, 6, 2) % 5
)  # of which float32 holds every other number


def averages(name):
    return RECORDS[name].averages(RECORDS[name].given(X))


AVERAGES = [name for name in RECORDS if averages(name)]


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
def test_the_type_is_that_of_a_mean(name, dtype):
    f, x = RECORDS[name].of(), (X % 5).astype(dtype)
    for wide in (False, True):
        with jax.enable_x64(wide):
            want = jax.eval_shape(jnp.mean, jnp.asarray(x)).dtype
            assert jax.eval_shape(f, jnp.asarray(x)).dtype == want


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.usefixtures("x64")
def test_integers_beyond_float32_are_not_rounded(name):
    """Integers give what the same numbers give as float64."""
    f = RECORDS[name].of()
    run = jax.jit(lambda x: (f(x), f(x.astype(np.float64))), compiler_options=HASTY)
    got, want = run(X.astype(np.int64))
    np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("x64")
def test_the_mean_of_one_number_is_that_number():
    x = np.full((1, 2, 2, 1), 16777217)
    means = (
        jaxpool.avg_pool(x, (2, 2)),
        jaxpool.adaptive_avg_pool(x, (1, 1)),
        jaxpool.global_avg_pool(x),
        jaxpool.blur_pool(x, (2, 2)),
        jaxpool.segment_mean(x.ravel(), np.zeros(4, np.int32), 1),
    )
    for mean in means:
        assert mean.ravel()[0] == 16777217
