"""Programs, read: the equations of a jaxpr and of what is inside; what a compiler makes of one."""

import re

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


def written(compiled):
    """The text of a compiled program without names, identifiers, and whence each operation came."""
    body = re.search(r"(?ms)^(%|ENTRY ).*", compiled.as_text())[0]
    body = re.sub(r", metadata=\{[^}]*\}", "", body)
    body = re.sub(r"[\w.-]+: ", "", body)  # of parameters
    names = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), body)
