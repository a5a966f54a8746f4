"""Averages of integers have the dtype of `jnp.mean`, and integers are not rounded before the division."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.testing import pools
from tests.support.compilation import FAST_COMPILE

RECORDS = pools()
# float32 holds only every other integer in this range.
X = 2**24 + np.arange(2 * 6 * 6 * 2).reshape(2, 6, 6, 2) % 5


def is_average(name):
    return RECORDS[name].averages(RECORDS[name].given(X))


AVERAGE_NAMES = [name for name in RECORDS if is_average(name)]


@pytest.mark.parametrize("name", AVERAGE_NAMES)
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
def test_dtype_matches_jnp_mean(name, dtype):
    f, x = RECORDS[name].of(), (X % 5).astype(dtype)
    for wide in (False, True):
        with jax.enable_x64(wide):
            want = jax.eval_shape(jnp.mean, jnp.asarray(x)).dtype
            assert jax.eval_shape(f, jnp.asarray(x)).dtype == want


@pytest.mark.parametrize("name", AVERAGE_NAMES)
@pytest.mark.usefixtures("x64")
def test_integers_not_rounded_to_float32_before_division(name):
    f = RECORDS[name].of()
    run = jax.jit(lambda x: (f(x), f(x.astype(np.float64))), compiler_options=FAST_COMPILE)
    got, want = run(X.astype(np.int64))
    np.testing.assert_array_equal(got, want)
