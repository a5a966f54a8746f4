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


def oracle_value_and_vjp(name, x, number, **geometry):
    """Return y, and the function from dy to dx."""
    answer = _answer(name, x, number, geometry)
    return answer.y, lambda dy: answer.exact_cotangents(dy)[0]


def coefficient_derivative(name, x, number, **geometry):
    """Return dy / d(number) as a central difference, with an error of about 1e-8 * y / number."""
    step = np.asarray(number, np.float64) * 1e-5
    above, below = (_answer(name, x, at, geometry).y for at in (number + step, number - step))
    return (above - below) / (2 * step)


def _answer(name, x, number, geometry):
    pool = pools()[name]
    argument = "p" if pool.takes("p") else "temperature"
    return pool.meaning(x=np.asarray(x, np.float64), **{argument: number}, **geometry)


def assert_matches_oracle(name, geometry, x, coefficient, y_rtol=1e-11, dx_tolerance=1e-9):
    """Compare y and dx with the oracle and, in float64, the coefficient's derivative with differences of the oracle."""
    want, pullback = oracle_value_and_vjp(name, x, coefficient, **geometry)
    dy = numbers(want.shape, seed=9).astype(x.dtype)
    given = coefficient if name == "lp_pool" else np.asarray(coefficient, x.dtype)
    y, dx, slope = run(name, geometry, x, given, dy)
    np.testing.assert_allclose(y, want, rtol=y_rtol)
    np.testing.assert_allclose(dx, pullback(dy), rtol=dx_tolerance, atol=dx_tolerance)
    if slope is None:
        return
    assert slope.shape == given.shape
    if x.dtype == np.float32:
        assert np.isfinite(slope).all()
        return
    slopes = coefficient_derivative(name, x, coefficient, **geometry) * dy
    broadcast_axes = tuple(range(dy.ndim - given.ndim))
    atol = 1e-8 * np.abs(want * dy / coefficient).sum()
    np.testing.assert_allclose(slope, slopes.sum(broadcast_axes), rtol=1e-5, atol=atol)
