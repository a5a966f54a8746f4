"""Shared by the tests of `accelerate`: pools written with lax, and a check that they were replaced."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def max_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def min_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, jnp.inf, lax.min, window, strides, padding)


def sum_pool(x, window=(2, 2), strides=(2, 2), padding="VALID"):
    return lax.reduce_window(x, 0.0, lax.add, window, strides, padding)


def numbers(*shape, dtype=np.float32):
    """Distinct integers in random order."""
    size = int(np.prod(shape))
    return jnp.asarray(np.random.default_rng(0).permutation(size).reshape(shape) - size // 2, dtype)


X = numbers(4, 4)


def program(fn, *args):
    return str(jax.make_jaxpr(fn)(*args))


def has_lax_reduction(program):
    """Return True if a program has a windowed reduction of lax, or a derivative of it."""
    return "reduce_window" in str(program) or "select_and" in str(program)


def is_replaced(fn, *args):
    """Return True if the program of `fn` has no windowed reduction of lax left."""
    return not has_lax_reduction(program(fn, *args))
