"""Oracle results of pools with a coefficient (a power, a temperature): value, cotangent, derivative by it."""

import numpy as np

from jaxpool.testing import pools

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
