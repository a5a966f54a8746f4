"""Pools with a coefficient, a power or a temperature, against their formulas: value and derivatives."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.later import later
from tests.support.soft_pools import (
    GEOMETRIES,
    PLAIN,
    assert_matches_oracle,
    numbers,
    with_coefficient,
)

pytestmark = pytest.mark.usefixtures("strict")

GEOMETRIES = GEOMETRIES | {"whole": ((6, 7, 3), {"window_shape": (6, 7)})}
POWERS = {  # of `lp_pool`, by geometry
    "overlapping": (1, 2),
    "tiled, a tail": (3.7, 3),
    "dilated, channels first": (0.5, 2),
    "long": (np.inf, 1),
    "whole": (3, np.inf),
}


def arguments(name, geometry):
    """Yield coefficients and arrays, many of them out of the range of direct sums."""
    shape = GEOMETRIES[geometry][0]
    if name == "lp_pool":
        rng = np.random.default_rng(0)
        for p in POWERS[geometry]:
            yield p, numbers(shape)
            yield p, numbers(shape, 1e200)
            yield p, numbers(shape, 1e-100)
            yield p, rng.integers(-2, 3, shape) * 1.0
            yield p, rng.choice([0.0, 0.0, 0.0, 3.0], shape)
    elif name == "gem_pool":
        for seed, (p, scale) in enumerate([(1, 2), (3.7, 2), (0.5, 1e100), (-1, 2), (60, 1e200)]):
            yield p, np.maximum(numbers(shape, scale, seed), -1.0)  # some elements are below eps
    else:
        shifts = [(1.0, 0), (0.3, 0), (30.0, 0), (0.01, 1e4), (1.0, -1e4)]
        for seed, (temperature, shift) in enumerate(shifts):
            yield temperature, numbers(shape, seed=seed) + shift


@pytest.mark.parametrize("geometry", [g if g != "long" else later(g) for g in GEOMETRIES])
@pytest.mark.parametrize(
    "name", ["logsumexp_pool", "softmax_pool", later("lp_pool"), later("gem_pool")]
)
@pytest.mark.usefixtures("x64")
def test_value_and_derivatives(name, geometry):
    for coefficient, x in arguments(name, geometry):
        assert_matches_oracle(name, GEOMETRIES[geometry][1], x, coefficient)


@pytest.mark.parametrize("name", ["logsumexp_pool", later("softmax_pool"), later("gem_pool")])
@pytest.mark.usefixtures("x64")
def test_coefficient_per_channel_or_per_output(name):
    shape, geometry = PLAIN
    x = np.abs(numbers(shape)) + 0.1
    # SAME padding: x and y have the same shape.
    for coefficient in (np.array([0.5, 2.0]), np.exp(numbers(shape, 0.5, seed=1))):
        assert_matches_oracle(name, geometry, x, coefficient)


@pytest.mark.parametrize(
    "name", ["logsumexp_pool", later("softmax_pool"), later("lp_pool"), later("gem_pool")]
)
def test_coefficient_as_number_or_array(name):
    shape, geometry = PLAIN
    x = np.abs(numbers(shape)).astype(np.float32)
    want = with_coefficient(name, x, 2.0, **geometry)
    arrays = [] if name == "lp_pool" else [np.array(2), jnp.array([2, 2])]
    for coefficient in (2, np.float64(2), np.int8(2), *arrays):
        y = with_coefficient(name, x, coefficient, **geometry)
        np.testing.assert_allclose(y, want, rtol=1e-6)
