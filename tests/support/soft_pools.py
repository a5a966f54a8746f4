"""Shared by the tests of pools with a coefficient: a power p or a temperature."""

import functools

import jax
import numpy as np
import pytest

import jaxpool
from tests.support.by_loops import GEOMETRIES
from tests.support.compilation import FAST_COMPILE

NAMES = ("logsumexp_pool", "softmax_pool")
# The two share their kernels
ONE_QUICK = ("logsumexp_pool", pytest.param("softmax_pool", marks=pytest.mark.slow))
HALVES = {"window_shape": (7,), "padding": 3}
PLAIN = GEOMETRIES["overlapping"]


def numbers(shape, scale=2.0, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * scale


def with_coefficient(name, x, coefficient, **geometry):
    argument = "temperature" if name in NAMES else "p"
    return getattr(jaxpool, name)(x, **{argument: coefficient}, **geometry)


@functools.cache
def program(name, geometry, p):
    """Return a compiled function from x, the coefficient and dy to y, dx and the coefficient's derivative."""
    f = functools.partial(with_coefficient, name, **dict(geometry))

    def of_lp(x, _, dy):
        y, pullback = jax.vjp(lambda x: f(x, p), x)
        return y, *pullback(dy), None

    def of(x, coefficient, dy):
        y, pullback = jax.vjp(f, x, coefficient)
        return y, *pullback(dy)

    return jax.jit(of_lp if name == "lp_pool" else of, compiler_options=FAST_COMPILE)


def run(name, geometry, x, coefficient, dy):
    """Return y, dx and the coefficient's derivative, or None for the static power of `lp_pool`."""
    p = coefficient if name == "lp_pool" else None
    return jax.device_get(program(name, tuple(geometry.items()), p)(x, coefficient, dy))
