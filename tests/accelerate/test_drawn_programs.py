"""Random programs with and without `accelerate`: equal values and gradients, and similar tracing time and memory."""

import collections
import concurrent.futures
import os
import time

import jax
import numpy as np
import pytest

from jaxpool import accelerate
from tests.support.compilation import FAST_COMPILE
from tests.support.nested_programs import Draws, draw_array, draw_program, is_exact, with_pullback

FIRST_SEED, NUM_PROGRAMS = (
    int(os.environ.get(name, n)) for name, n in (("PROGRAM", 0), ("PROGRAMS", 200))
)
# lax raises these for forward mode of a jax.custom_vjp, and for features without a shard_map rule.
LAX_ERRORS = (TypeError, ValueError, NotImplementedError)
costs = collections.Counter()  # seconds of tracing and bytes of temporary memory


def compile_timed(f, x, label):
    start = time.thread_time()
    traced = f.trace(x)
    costs[f"tracing {label}"] += time.thread_time() - start
    return traced.lower().compile()


def compare_with_plain(seed):
    """Compare a program with its accelerated form. The original, run again, must not reuse the other trace."""
    rng = Draws(seed)
    f = with_pullback(rng, draw_program(rng, int(rng.integers(1, 6))))
    x = draw_array(rng)
    plain = jax.jit(f, compiler_options=FAST_COMPILE)
    jit_order, jitted_accelerated = (
        rng.integers(3),
        jax.jit(accelerate(f), compiler_options=FAST_COMPILE),
    )
    accelerated = (jitted_accelerated, accelerate(plain), accelerate(jitted_accelerated))[jit_order]
    try:
        executables = {"plain": compile_timed(plain, x, "plain")}
    except LAX_ERRORS:
        return "no program"
    executables["ours"] = compile_timed(accelerated, x, "ours")
    want = jax.device_get(executables["plain"](x))
    if not is_exact(*want):
        return "too large to be exact"
    for label, got in (
        ("compiled", executables["ours"](x)),
        ("called", accelerated(x)),
        ("plain again", plain(x)),
    ):
        for name, actual, expected in zip(("value", "gradient"), got, want, strict=True):
            np.testing.assert_array_equal(actual, expected, f"{name} of program {seed}, {label}")
    memory = [run.memory_analysis().temp_size_in_bytes for run in executables.values()]
    costs.update({"memory plain": memory[0], "memory ours": memory[1]})
    return "equal"


def test_random_programs_match_lax():
    assert {compare_with_plain(seed) for seed in range(6)} == {"equal"}


@pytest.mark.slow
def test_many_random_programs_in_threads_match_lax_and_cost():
    costs.clear()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outcomes = collections.Counter(
            pool.map(compare_with_plain, range(FIRST_SEED, FIRST_SEED + NUM_PROGRAMS))
        )
    print(dict(outcomes), dict(costs))
    assert outcomes["equal"] > 0.9 * NUM_PROGRAMS
    assert costs["tracing ours"] < 2 * costs["tracing plain"]
    assert costs["memory ours"] < 2 * costs["memory plain"]
