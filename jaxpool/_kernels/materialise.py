"""Arrays that XLA computes once and stores, instead of recomputing them in every consumer.

XLA fuses a cheap producer into each of its consumers. A chain of selects is then 10 to 40 times slower, and comparisons
fail if two computations of one array are rounded differently. An optimization barrier prevents the fusion, but XLA for
CPU drops barriers before it fuses. On CPU, the producer is therefore put into a call that XLA does not inline.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._plan.problem import BarrierKind

# True if jax inlines every call of the program that is being lowered, as jax does for programs exported for several
# platforms or with symbolic sizes. jax's jit cache has a separate entry for each value of a user context.
inlines_calls = jax.make_user_context(False)


def materialise(barrier_kind: BarrierKind, kernel: Callable[..., Any], *args: Array) -> Any:
    """Evaluate `kernel(*args)` and store each result. With the barrier kind "call", the arguments are also stored."""
    if barrier_kind == "barrier":
        return lax.optimization_barrier(kernel(*args))
    if inlines_calls.value:
        return _evaluate_in_conditional(kernel, *args)

    def body(*args: Array) -> Any:
        with set_xla_metadata(inlineable=None):  # XLA may inline calls inside the kernel
            return kernel(*args)

    with set_xla_metadata(inlineable="false"):
        return jax.jit(body)(*args)


def store_arguments(barrier_kind: BarrierKind, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel so that each argument is computed once and stored, even if the kernel reads the argument twice.

    XLA may recompute an argument for a second read with different rounding: XLA keeps 16-bit intermediates as float32
    and contracts products and sums. The maximum from the first read may then equal no element of the second read.
    """
    if barrier_kind == "barrier":
        return lambda *args: kernel(*lax.optimization_barrier(args))
    return functools.partial(materialise, barrier_kind, kernel)


def _evaluate_in_conditional(kernel: Callable[..., Any], *args: Array) -> Any:
    """Evaluate `kernel(*args)` in a `lax.cond` whose predicate XLA cannot fold, which is slower than a call."""
    branch = jax.jit(kernel)  # so that `make_jaxpr` and the branch share one trace
    program, result_shapes = jax.make_jaxpr(branch, return_shape=True)(*args)

    def zeros_of_type(aval: Any) -> Array:
        sharding = aval.sharding if any(aval.sharding.spec) else None
        zeros = lax.full(aval.shape, 0, aval.dtype, sharding=sharding)
        axes = tuple(sorted(varying_mesh_axes(aval), key=str))
        return lax.pcast(zeros, axes, to="varying") if axes else zeros

    def untaken_branch(*args: Array) -> Any:
        tree = jax.tree.structure(result_shapes)
        return jax.tree.unflatten(tree, map(zeros_of_type, program.out_avals))

    predicate = lax.optimization_barrier(jnp.asarray(True))
    return lax.optimization_barrier(lax.cond(predicate, branch, untaken_branch, *args))
