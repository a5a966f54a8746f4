"""Pools by `jax.lax.reduce_window`, as other layer libraries implement them, with the argument names of jaxpool."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing.oracle._parts import extremum_identity


def _reduce(x, init, reducer, window_shape, strides, padding, window_dilation, axes):
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


def max_pool(x, window_shape, strides=None, padding="VALID", *, window_dilation=None, axes=None):
    init = extremum_identity(x.dtype, "max")
    return _reduce(x, init, lax.max, window_shape, strides, padding, window_dilation, axes)


def min_pool(x, window_shape, strides=None, padding="VALID", *, window_dilation=None, axes=None):
    init = extremum_identity(x.dtype, "min")
    return _reduce(x, init, lax.min, window_shape, strides, padding, window_dilation, axes)


def sum_pool(x, window_shape, strides=None, padding="VALID", *, window_dilation=None, axes=None):
    zero = 0.0 if jnp.issubdtype(x.dtype, jnp.floating) else 0
    return _reduce(x, zero, lax.add, window_shape, strides, padding, window_dilation, axes)


def avg_pool(
    x,
    window_shape,
    strides=None,
    padding="VALID",
    count_include_pad=True,
    *,
    window_dilation=None,
    axes=None,
):
    total = sum_pool(x, window_shape, strides, padding, window_dilation=window_dilation, axes=axes)
    if count_include_pad:
        return total / jnp.asarray(jnp.prod(jnp.array(window_shape)), x.dtype)
    ones = jnp.ones_like(x)
    return total / sum_pool(
        ones, window_shape, strides, padding, window_dilation=window_dilation, axes=axes
    )


POOLS = {"max": max_pool, "min": min_pool, "avg": avg_pool, "sum": sum_pool}


def value_and_cotangent(pool, x, dy, **kwargs):
    """Return the value of `pool` at `x` and the cotangent of `x` for `dy`."""
    y, pullback = jax.vjp(lambda x: pool(x, **kwargs), x)
    return y, pullback(dy)[0]
