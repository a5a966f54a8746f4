"""Arrays that XLA computes once and stores, however many operations read them.

XLA fuses a cheap producer into each of its consumers and computes it again there. That is slow where the producer
is a chain of selects (10 to 40 times), and wrong where two computations of one array are compared: they may be
rounded differently. An optimization barrier keeps producer and consumer apart, but XLA for CPU drops barriers before
it fuses. On CPU the producer is a call that XLA is told not to inline.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from jaxpool._arguments.arrays import vary_together, varying
from jaxpool._plan.problem import Barrier

# Whether jax inlines every call of the program that is being lowered: it does so in a program that is exported for
# several platforms or with symbolic sizes. A user context of jax is part of the keys under which it caches programs.
inlines_calls = jax.make_user_context(False)


def materialise(by: Barrier, kernel: Callable[..., Any], *args: Array) -> Any:
    """`kernel(*args)`, with each result computed once and stored. On CPU each argument is stored too."""
    if by == "barrier":
        return lax.optimization_barrier(kernel(*args))
    if inlines_calls.value:
        return _in_branch(kernel, *args)

    def body(*args: Array) -> Any:
        with set_xla_metadata(inlineable=None):  # calls inside of the kernel are inlined as usual
            return kernel(*args)

    with set_xla_metadata(inlineable="false"):
        return jax.jit(body)(*args)


def store_arguments(by: Barrier, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel with each argument computed once and stored, however many passes read it.

    XLA rounds an argument that it computes again for a second pass as it sees fit: it keeps intermediate 16-bit floats
    as float32, and contracts products and sums. Then a maximum that one pass finds equals no element that the next pass
    reads.
    """
    if by == "barrier":
        return lambda *args: kernel(*lax.optimization_barrier(args))
    return functools.partial(materialise, by, kernel)


def _in_branch(kernel: Callable[..., Any], *args: Array) -> Any:
    """`kernel(*args)` in a branch of a conditional, whose predicate XLA cannot fold: slower than a call."""
    branch = jax.jit(kernel)  # traced once, for its shapes and for the branch
    types: list[Any] = []

    def typed(*args: Array) -> Any:
        y = branch(*args)
        types[:] = map(jax.typeof, jax.tree.leaves(y))
        return y

    shapes = jax.eval_shape(typed, *args)

    def zeros(leaf: jax.ShapeDtypeStruct, kind: Any) -> Array:
        if leaf.sharding is None and any(kind.sharding.spec):
            # Of a mesh with explicit and automatic axes such a leaf does not tell the explicit ones.
            zero = lax.full(leaf.shape, 0, leaf.dtype, sharding=kind.sharding)
            return vary_together([zero], *args)[0]
        if leaf.sharding is not None or not any(map(varying, args)):
            return lax.full_like(leaf, 0)
        # Of some of a mesh's axes manual, such a leaf does not say which; its arguments do.
        return vary_together([lax.full(leaf.shape, 0, leaf.dtype)], *args)[0]

    def unused(*args: Array) -> Any:
        leaves, tree = jax.tree.flatten(shapes)
        return jax.tree.unflatten(tree, map(zeros, leaves, types))

    taken = lax.optimization_barrier(jnp.asarray(True))
    return lax.optimization_barrier(lax.cond(taken, branch, unused, *args))
