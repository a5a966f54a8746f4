"""Random programs with and without `accelerate`: equal values and gradients, and similar tracing time and memory."""

import collections
import concurrent.futures
import os
import time

import jax
import numpy as np
import pytest

from jaxpool import accelerate
from tests.support.compilation import HASTY
from tests.support.nested_programs import Draws, array, drawn, exact, outermost

FIRST, MANY = (int(os.environ.get(name, n)) for name, n in (("PROGRAM", 0), ("PROGRAMS", 200)))
# lax raises these for forward mode of a jax.custom_vjp, and for features without a shard_map rule.
REFUSED = (TypeError, ValueError, NotImplementedError)
spent = collections.Counter()  # seconds of tracing and bytes of temporary memory


def compiled(f, x, whose):
    begun = time.thread_time()
    traced = f.trace(x)
    spent[f"tracing {whose}"] += time.thread_time() - begun
    return traced.lower().compile()


def check(seed):
    """Compare a program with its accelerated form. The original, run again, must not reuse the other trace."""
    rng = Draws(seed)
    f = outermost(rng, drawn(rng, int(rng.integers(1, 6))))
    x = array(rng)
    plain = jax.jit(f, compiler_options=HASTY)
    around, within = rng.integers(3), jax.jit(accelerate(f), compiler_options=HASTY)
    fast = (within, accelerate(plain), accelerate(within))[around]
    try:
        runs = {"plain": compiled(plain, x, "plain")}
    except REFUSED:
        return "no program"
    runs["ours"] = compiled(fast, x, "ours")
    want = jax.device_get(runs["plain"](x))
    if not exact(*want):
        return "too large to be exact"
    for whose, got in (
        ("compiled", runs["ours"](x)),
        ("called", fast(x)),
        ("plain again", plain(x)),
    ):
        for name, mine, theirs in zip(("value", "gradient"), got, want, strict=True):
            np.testing.assert_array_equal(mine, theirs, f"{name} of program {seed}, {whose}")
    memory = [run.memory_analysis().temp_size_in_bytes for run in runs.values()]
    spent.update({"memory plain": memory[0], "memory ours": memory[1]})
    return "equal"


def test_a_few_programs_are_equal():
    assert {check(seed) for seed in range(6)} == {"equal"}


@pytest.mark.slow
def test_many_programs_are_equal_in_several_threads_and_cost_no_more():
    spent.clear()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        said = collections.Counter(pool.map(check, range(FIRST, FIRST + MANY)))
    print(dict(said), dict(spent))
    assert said["equal"] > 0.9 * MANY
    assert spent["tracing ours"] < 2 * spent["tracing plain"]
    assert spent["memory ours"] < 2 * spent["memory plain"]
