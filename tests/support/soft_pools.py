"""Shared by the tests of logsumexp_pool and softmax_pool."""

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


@functools.cache
def program(name, geometry):
    """Return a compiled function from x, T and dy to y, dx and dT."""
    f = functools.partial(getattr(jaxpool, name), **dict(geometry))

    def of(x, t, dy):
        y, pullback = jax.vjp(lambda x, t: f(x, temperature=t), x, t)
        return y, *pullback(dy)

    return jax.jit(of, compiler_options=FAST_COMPILE)


def run(name, geometry, x, t, dy):
    return jax.device_get(program(name, tuple(geometry.items()))(x, t, dy))
