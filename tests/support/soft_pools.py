"""Shared by the tests of pools with a coefficient, a power p or a temperature: calls, and results of the oracle."""

import functools

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools
from tests.support.compilation import FAST_COMPILE

NAMES = ("logsumexp_pool", "softmax_pool")
# The two share their kernels
ONE_QUICK = ("logsumexp_pool", pytest.param("softmax_pool", marks=pytest.mark.slow))
HALVES = {"window_shape": (7,), "padding": 3}
GEOMETRIES = {
    "overlapping": ((2, 4, 5, 2), {"window_shape": (3, 2), "padding": "SAME"}),
    "tiled, a tail": ((5, 5, 2), {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
    "dilated, channels first": (
        (2, 2, 9),
        {
            "window_shape": (3,),
            "strides": (2,),
            "padding": ((2, 1),),
            "window_dilation": (2,),
            "axes": (-1,),
        },
    ),
    "long": ((20, 2), {"window_shape": (13,), "padding": "SAME_LOWER"}),
}
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


def assert_matches_oracle(name, geometry, x, coefficient, y_rtol=1e-11, dx_tolerance=1e-9):
    """Compare y and dx with the oracle and, in float64, the coefficient's derivative with differences of the oracle."""
    argument = "temperature" if name in NAMES else "p"

    def answer(number):
        wide = np.asarray(x, np.float64)
        return pools()[name].meaning(x=wide, **{argument: number}, **geometry)

    want = answer(coefficient)
    dy = numbers(want.y.shape, seed=9).astype(x.dtype)
    given = coefficient if name == "lp_pool" else np.asarray(coefficient, x.dtype)
    y, dx, slope = run(name, geometry, x, given, dy)
    np.testing.assert_allclose(y, want.y, rtol=y_rtol)
    (want_dx,) = want.exact_cotangents(dy)
    np.testing.assert_allclose(dx, want_dx, rtol=dx_tolerance, atol=dx_tolerance)
    if slope is None:
        return
    assert slope.shape == given.shape
    if x.dtype == np.float32:
        assert np.isfinite(slope).all()
        return
    # The error of the central difference is about 1e-8 * y / coefficient.
    step = np.asarray(coefficient, np.float64) * 1e-5
    slopes = (answer(coefficient + step).y - answer(coefficient - step).y) / (2 * step) * dy
    broadcast_axes = tuple(range(dy.ndim - given.ndim))
    atol = 1e-8 * np.abs(want.y * dy / coefficient).sum()
    np.testing.assert_allclose(slope, slopes.sum(broadcast_axes), rtol=1e-5, atol=atol)
