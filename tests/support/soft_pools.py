"""What logsumexp_pool and softmax_pool should give, and programs of what they do."""

import functools

import jax
import numpy as np
import pytest

import jaxpool
from tests.support.compilation import HASTY
from tests.support.side_by_side import Gathered

NAMES = ("logsumexp_pool", "softmax_pool")
ONE_QUICK = ("logsumexp_pool", pytest.param("softmax_pool", marks=pytest.mark.slow))  # of two alike
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
HALVES = {"window_shape": (7,), "padding": 3}
PLAIN = GEOMETRIES["overlapping"]


def numbers(shape, scale=2.0, seed=0):
    return np.random.default_rng(seed).standard_normal(shape) * scale


# The formulas: value, and what an element of each window and the temperature get of a cotangent


def formula(name, x, temperature, **geometry):
    """y, the function from dy to dx, and dy / dT."""
    at = Gathered(x.shape, **geometry)
    elements = at.gather(x.astype(np.float64), -np.inf)
    t = np.asarray(temperature, np.float64)
    beside = (np.broadcast_to(t, elements.shape[:-1]) if t.ndim else t)[..., None]
    highest = elements.max(-1, keepdims=True)
    below = np.where(at.real, elements - highest, 0)
    weights = np.where(at.real, np.exp(below / beside), 0)
    total = weights.sum(-1, keepdims=True)
    weights = weights / total
    mean = (weights * below).sum(-1, keepdims=True)
    if name == "softmax_pool":
        y, shares = highest + mean, weights * (1 + (below - mean) / beside)
        slope = -(weights * ((below - mean) / beside) ** 2).sum(-1, keepdims=True)
    else:
        y, shares = highest + beside * np.log(total), weights
        slope = np.log(total) - mean / beside
    return y[..., 0], lambda dy: at.scatter(shares * dy[..., None]), slope[..., 0]


@functools.cache
def program(name, geometry):
    """y, dx and dT from x, T and dy, compiled once for all values."""
    f = functools.partial(getattr(jaxpool, name), **dict(geometry))

    def of(x, t, dy):
        y, pullback = jax.vjp(lambda x, t: f(x, temperature=t), x, t)
        return y, *pullback(dy)

    return jax.jit(of, compiler_options=HASTY)


def run(name, geometry, x, t, dy):
    return jax.device_get(program(name, tuple(geometry.items()))(x, t, dy))
