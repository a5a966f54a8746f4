"""The program of a function and its derivative."""

import jax


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
