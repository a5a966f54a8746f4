"""Shared by the tests of adaptive pools: compiled calls with their cotangents, and arrays."""

import functools

import jax
import numpy as np

import jaxpool
from jaxpool.testing import draw_values
from tests.support.compilation import FAST_COMPILE

MODES = ("vjp", "jvp")
TIES = ("first", "last", "split")
INF, NAN = np.inf, np.nan


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


@functools.partial(
    jax.jit,
    static_argnames=("output_shape", "axes", "ties", "autodiff"),
    compiler_options=FAST_COMPILE,
)
def maximum(x, dy, output_shape, axes=None, ties="first", autodiff="vjp"):
    """Return y, indices and, unless dy is None, the cotangent of x."""
    pool = functools.partial(
        jaxpool.adaptive_max_pool_with_argmax,
        output_shape=output_shape,
        axes=axes,
        ties=ties,
        autodiff=autodiff,
    )
    if dy is None:
        return *pool(x), None
    y, pullback, indices = jax.vjp(pool, x, has_aux=True)
    return y, indices, pullback(dy)[0]


@functools.partial(
    jax.jit, static_argnames=("output_shape", "axes", "autodiff"), compiler_options=FAST_COMPILE
)
def average(x, dy, output_shape, axes=None, autodiff="vjp"):
    """Return y and, unless dy is None, the cotangent of x."""
    pool = functools.partial(
        jaxpool.adaptive_avg_pool, output_shape=output_shape, axes=axes, autodiff=autodiff
    )
    if dy is None:
        return pool(x), None
    y, pullback = jax.vjp(pool, x)
    return y, pullback(dy)[0]


def draw_arrays(shape, kinds=("ties", "special", "lowest"), dtype=np.float32):
    rng = np.random.default_rng(len(shape) + sum(shape))
    return [draw_values(rng, shape, dtype, kind) for kind in kinds]


def small_integers(shape, dtype=np.float32):
    """Cotangents whose sums are exact."""
    return draw_values(np.random.default_rng(3), shape, dtype, "ties")
