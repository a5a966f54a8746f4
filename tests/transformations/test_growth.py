"""Temporary memory and compile time stay bounded for large windows, kernels, ranks and axes."""

import time

import jax
import jax.numpy as jnp
import pytest

from jaxpool.testing import pools
from tests.support.compilation import AS_USERS
from tests.support.growth import calls

LEAST = 64_000_000  # temporary bytes that any program may use
TIMES = 20  # temporary bytes per byte of arguments and results
SECONDS = 5  # processor time to trace and compile
CALLS = list(calls())


def _both(call, *xs, dy):
    def first(*xs):
        y, *others = jax.tree.leaves(call(*xs))
        return y, others

    y, back, others = jax.vjp(first, *xs, has_aux=True)
    return y, others, back(dy)


def test_every_public_function_is_here():
    named = {large.name.split()[0] for large in CALLS}
    assert named == set(pools())


@pytest.mark.slow
@pytest.mark.parametrize("large", CALLS, ids=lambda large: large.name)
def test_memory_and_compiling_are_bounded(large):
    xs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in large.shapes]
    dy = jax.tree.leaves(jax.eval_shape(large.call, *xs))[0]
    program = jax.jit(lambda dy, *xs: _both(large.call, *xs, dy=dy))
    began = time.process_time()
    memory = program.lower(dy, *xs).compile(AS_USERS).memory_analysis()
    seconds = time.process_time() - began
    around = memory.argument_size_in_bytes + memory.output_size_in_bytes
    print(f"{seconds:.1f} s, {memory.temp_size_in_bytes / 1e6:.0f} MB beside {around / 1e6:.0f}")
    assert memory.temp_size_in_bytes <= max(LEAST, TIMES * around), f"{around=}"
    assert seconds <= SECONDS
