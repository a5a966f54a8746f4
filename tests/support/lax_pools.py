"""Pools by `jax.lax.reduce_window`, as other layer libraries implement them, with the argument names of jaxpool."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing.oracle._parts import extremum_identity


def _reduce(
    x,
    init,
    reducer,
    window_shape,
    strides=None,
    padding="VALID",
    *,
    window_dilation=None,
    axes=None,
):
    rank = len(window_shape)
    # Moving the axes to the end in their order makes lax's row-major order of ties that of jaxpool.
    if axes is not None:
        end = tuple(range(-rank, 0))
        x = jnp.moveaxis(x, axes, end)
    after = 1 if axes is None else 0

    def spread(values, fill):
        return (fill,) * (x.ndim - rank - after) + tuple(values) + (fill,) * after

    y = lax.reduce_window(
        x,
        np.asarray(init, x.dtype),
        reducer,
        spread(window_shape, 1),
        spread((1,) * rank if strides is None else strides, 1),
        padding if isinstance(padding, str) else spread(padding, (0, 0)),
        window_dilation=spread((1,) * rank if window_dilation is None else window_dilation, 1),
    )
    return y if axes is None else jnp.moveaxis(y, end, axes)


def max_pool(x, *args, **geometry):
    return _reduce(x, extremum_identity(x.dtype, "max"), lax.max, *args, **geometry)


def min_pool(x, *args, **geometry):
    return _reduce(x, extremum_identity(x.dtype, "min"), lax.min, *args, **geometry)


def sum_pool(x, *args, **geometry):
    zero = 0.0 if jnp.issubdtype(x.dtype, jnp.floating) else 0
    return _reduce(x, zero, lax.add, *args, **geometry)


def avg_pool(x, window_shape, *args, count_include_pad=True, **geometry):
    total = sum_pool(x, window_shape, *args, **geometry)
    if count_include_pad:
        return total / jnp.asarray(jnp.prod(jnp.array(window_shape)), x.dtype)
    return total / sum_pool(jnp.ones_like(x), window_shape, *args, **geometry)


POOLS = {"max": max_pool, "min": min_pool, "avg": avg_pool, "sum": sum_pool}
