"""Inspection of programs: the equations of a jaxpr and of its sub-jaxprs, and compiled text."""

import re

import jax
from jax.extend import core


def equations(jaxpr):
    """Yield every equation of a jaxpr and of its sub-jaxprs."""
    yield from jaxpr.eqns
    for inner in core.subjaxprs(jaxpr):
        yield from equations(inner)


def equations_of(f, *args):
    """Return every equation of the jaxpr of f."""
    return list(equations(jax.make_jaxpr(f)(*args).jaxpr))


def normalized_text(compiled):
    """Return the text of a compiled program without metadata and parameter names, and with numbered operations."""
    body = re.search(r"(?ms)^(%|ENTRY ).*", compiled.as_text())[0]
    body = re.sub(r", metadata=\{[^}]*\}", "", body)
    body = re.sub(r"[\w.-]+: ", "", body)  # names of parameters
    names = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), body)
