"""Programs of a pool and its gradient, and the gathers in them."""

import re

import jax


def value_and_vjp(pool):
    def both(x, dy):
        y, vjp = jax.vjp(pool, x)
        return y, vjp(dy)[0]

    return both


def arguments(pool, shape, dtype="float32"):
    x = jax.ShapeDtypeStruct(shape, dtype)
    return x, jax.eval_shape(pool, x)


def count_pool_gathers(pool, shape, dtype="float32", platform="cpu"):
    return count_gathers(value_and_vjp(pool), *arguments(pool, shape, dtype), platform=platform)


def count_gathers(function, *xs, platform="cpu"):
    lowered = jax.jit(function).trace(*xs).lower(lowering_platforms=(platform,))
    return len(re.findall(r"stablehlo\.(?:dynamic_)?gather\b", lowered.as_text()))
