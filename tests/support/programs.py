"""Programs of a pool and its derivative, the equations of a jaxpr, and the gathers of a lowered program."""

import re

import jax
from jax.extend import core


def value_and_vjp(f):
    """Return a function from x and dy to y and dx."""

    def both(x, dy):
        y, pullback = jax.vjp(f, x)
        return y, pullback(dy)[0]

    return both


def arguments(f, shape, dtype="float32"):
    """Return the types of x and dy."""
    x = jax.ShapeDtypeStruct(shape, dtype)
    return x, jax.eval_shape(f, x)


def equations(jaxpr):
    """Yield every equation of a jaxpr and of its sub-jaxprs."""
    yield from jaxpr.eqns
    for inner in core.subjaxprs(jaxpr):
        yield from equations(inner)


def equations_of(f, *args):
    """Return every equation of the jaxpr of f."""
    return list(equations(jax.make_jaxpr(f)(*args).jaxpr))


def count_pool_gathers(pool, shape, dtype="float32", platform="cpu"):
    return count_gathers(value_and_vjp(pool), *arguments(pool, shape, dtype), platform=platform)


def count_gathers(function, *xs, platform="cpu"):
    lowered = jax.jit(function).trace(*xs).lower(lowering_platforms=(platform,))
    return len(re.findall(r"stablehlo\.(?:dynamic_)?gather\b", lowered.as_text()))
