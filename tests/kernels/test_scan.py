"""Running maxima and minima, and sums and copies along their runs, are equal for every number of ways per pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.scan import (
    Scan,
    copy_along_runs,
    running_max_or_min,
    running_select_with_index,
    sum_over_runs,
)
from jaxpool._plan.scan import ScanPlan
from tests.support import forms
from tests.support.later import first_values

PLANS = [
    *(ScanPlan(ways, "barrier") for ways in (2, 3, 16)),
    *(ScanPlan(ways, "barrier", min_block_size=reach) for ways, reach in ((2, 2), (2, 4), (3, 3))),
]
SLOW = [pytest.param(size, marks=pytest.mark.slow) for size in (16, 40)]


@pytest.mark.parametrize("size", [1, 2, 7, 17, *SLOW])
@pytest.mark.parametrize("dtype", first_values(1, ["float32", "bfloat16", "int8"]))
def test_results_are_independent_of_num_ways(size, dtype):
    rng = np.random.default_rng(size)
    x = rng.integers(-3, 4, (3, size, 2)).astype(jnp.dtype(dtype))
    if dtype != "int8":
        x = np.where(rng.random(x.shape) < 0.02, np.asarray(np.nan, x.dtype), x)
    dy = forms.draw_integers(rng, x.shape, jnp.dtype(np.float32), False)

    def run(x, dy):
        for plan in PLANS:
            for kind, ties, reverse in (("max", "first", False), ("min", "last", True)):
                scan = Scan(1, reverse, plan)
                y, index = running_select_with_index(x, kind, ties, scan)
                yield (
                    *(y, index, running_max_or_min(x, kind, scan)),
                    *(f(dy, index, scan) for f in (copy_along_runs, sum_over_runs)),
                )

    first, last, *others = jax.device_get(jax.jit(lambda x, dy: list(run(x, dy)))(x, dy))
    running_maximum = np.maximum.accumulate(np.asarray(x, np.float32), 1)
    np.testing.assert_array_equal(np.asarray(first[0], np.float32), running_maximum)
    np.testing.assert_array_equal(first[4].sum(1), dy.sum(1))
    for which, got in enumerate(others):
        forms.assert_same_bits(got, (first, last)[which % 2], f"{which} {size} {dtype}")
