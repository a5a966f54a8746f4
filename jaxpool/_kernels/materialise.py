"""Results that materialise: computed once, however many read them."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together, varying
from jaxpool._plan.problem import Barrier


def materialise(by: Barrier, kernel: Callable[..., Any], *args: Array) -> Any:
    """`kernel(*args)`, computed once and stored.

    XLA fuses a cheap producer into each of its consumers and computes it again there; a select
    chain inside every term of a backward pass is 10 to 40 times slower. An optimization barrier
    keeps the two apart, but XLA for CPU drops barriers before it fuses. There the kernel stands in
    a branch of a conditional, whose predicate is hidden behind a barrier for just long enough not
    to be folded.
    """
    if by == "barrier":
        return lax.optimization_barrier(kernel(*args))
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
