"""Programs, read: the equations of a jaxpr and of what is inside."""

import jax
from jax.extend import core


def equations(jaxpr):
    """Every equation of a jaxpr, those of the jaxprs in its equations too."""
    yield from jaxpr.eqns
    for inner in core.subjaxprs(jaxpr):
        yield from equations(inner)


def equations_of(f, *args):
    """Every equation of the program of f."""
    return list(equations(jax.make_jaxpr(f)(*args).jaxpr))
