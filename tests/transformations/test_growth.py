"""Temporary memory and compile time stay bounded for large windows, kernels, ranks and axes."""

import time

import jax
import jax.numpy as jnp
import pytest

from jaxpool.testing import pools
from tests.support.compilation import DEFAULT_COMPILE
from tests.support.growth import calls

MIN_TEMP_BYTES = 64_000_000  # temporary bytes that any program may use
MAX_TEMP_RATIO = 20  # temporary bytes per byte of arguments and results
MAX_SECONDS = 5  # processor time to trace and compile
CALLS = list(calls())


def _value_and_vjp(call, *xs, dy):
    def first(*xs):
        y, *others = jax.tree.leaves(call(*xs))
        return y, others

    y, back, others = jax.vjp(first, *xs, has_aux=True)
    return y, others, back(dy)


def test_every_public_function_has_a_case():
    named = {large.name.split()[0] for large in CALLS}
    assert named == set(pools())


@pytest.mark.slow
@pytest.mark.parametrize("large", CALLS, ids=lambda large: large.name)
def test_memory_and_compile_time_are_bounded(large):
    xs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in large.shapes]
    dy = jax.tree.leaves(jax.eval_shape(large.call, *xs))[0]
    program = jax.jit(lambda dy, *xs: _value_and_vjp(large.call, *xs, dy=dy))
    began = time.process_time()
    memory = program.lower(dy, *xs).compile(DEFAULT_COMPILE).memory_analysis()
    seconds = time.process_time() - began
    around = memory.argument_size_in_bytes + memory.output_size_in_bytes
    print(f"{seconds:.1f} s, {memory.temp_size_in_bytes / 1e6:.0f} MB beside {around / 1e6:.0f}")
    assert memory.temp_size_in_bytes <= max(MIN_TEMP_BYTES, MAX_TEMP_RATIO * around), f"{around=}"
    assert seconds <= MAX_SECONDS
