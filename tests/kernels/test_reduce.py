"""Reductions over whole axes: those of XLA for CPU lose a NaN, by the shape of the array."""

import jax
import numpy as np
import pytest

import jaxpool

SHAPES = [  # found by a search; `jax.numpy.max` loses NaNs over most of them
    ((17, 16, 8, 17), (3,)),
    ((17, 2, 4, 17, 3), (0, 1, 3)),
    ((3, 17, 7, 16, 1), (0, 1, 3, 4)),
    ((2, 16, 16, 16, 1), (0, 2, 4)),
    ((17, 16, 17), (1, 2)),
    ((8, 2, 8, 2, 8, 2), (1, 3, 5)),
    ((5, 3, 4), (1,)),
]


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_no_nan_is_lost(shape, axes, kind):
    rng = np.random.default_rng(0)
    values = np.array([1, 2, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape, p=[0.4, 0.2, 0.1, 0.25, 0.05])
    y = jax.jit(lambda x: getattr(jaxpool, kind)(x, axes))(x)
    np.testing.assert_array_equal(y, getattr(np, kind)(x, axis=axes))
