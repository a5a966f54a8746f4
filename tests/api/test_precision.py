"""Averages of integers are exact, and means of 16-bit floats are added in float32.

`test_calls_against_oracle.py` has sums and cotangents of 8-bit floats.
"""

import jax
import numpy as np
import pytest

from jaxpool.testing import pools
from tests.support.compilation import FAST_COMPILE

# Averages of integers have the dtype of `jnp.mean`, and integers are not rounded before the division

RECORDS = pools()
# float32 holds only every other integer in this range.
INTEGERS = 2**24 + np.arange(2 * 6 * 6 * 2).reshape(2, 6, 6, 2) % 5


def is_average(name):
    return RECORDS[name].averages(RECORDS[name].given(INTEGERS))


AVERAGE_NAMES = [name for name in RECORDS if is_average(name)]


@pytest.mark.parametrize("name", AVERAGE_NAMES)
@pytest.mark.usefixtures("x64")
def test_integers_not_rounded_to_float32_before_division(name):
    f = RECORDS[name].of()
    run = jax.jit(lambda x: (f(x), f(x.astype(np.float64))), compiler_options=FAST_COMPILE)
    got, want = run(INTEGERS.astype(np.int64))
    np.testing.assert_array_equal(got, want)
