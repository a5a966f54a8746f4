"""Bounds on the Python calls of a first call: tracing and lowering a pool with its gradient, for a new shape.

The number of calls does not depend on the machine or its load, but on the tests before, which fill JAX's caches. Each
bound has 10 % to spare with jax 0.10 and 0.12.
"""

import sys

import jax
import jax.numpy as jnp
import pytest

import jaxpool

BOXES = jnp.array([[4.0, 4.0, 40.0, 40.0]])
IDS = jnp.array([0, 0, 1, 1])
CALLS = {  # a pool, and the bound in thousands of Python calls
    "max_pool": (lambda x: jaxpool.max_pool(x, (3, 3), (1, 1), "SAME"), 118),
    "gem_pool": (lambda x: jaxpool.gem_pool(x, 3.0, (3, 3), (1, 1), "SAME"), 128),
    "median_pool": (lambda x: jaxpool.median_pool(x, (3, 3), (1, 1), "SAME"), 92),
    "roi_align": (lambda x: jaxpool.roi_align(x, BOXES, (7, 7), batch_indices=jnp.array([0])), 82),
    "segment_max": (lambda x: jaxpool.segment_max(x, IDS, 2), 51),
}


def calls_of_first_call(function, shape):
    def loss(x):
        return function(x).sum()

    num_calls = 0

    def profile(frame, event, arg):
        nonlocal num_calls
        num_calls += event == "call"

    program = jax.jit(jax.value_and_grad(loss))
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        program.trace(x).lower()
    finally:
        sys.setprofile(previous)
    return num_calls


@pytest.mark.parametrize(("function", "bound"), CALLS.values(), ids=CALLS)
def test_python_calls_of_a_first_call(function, bound):
    calls_of_first_call(function, (4, 48, 48, 16))  # fills caches that do not depend on the shape
    thousands = calls_of_first_call(function, (4, 64, 64, 32)) / 1000
    print(f"{thousands:.1f} thousand Python calls")
    assert thousands <= bound
