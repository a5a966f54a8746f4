"""Selections from values that the same program computes: XLA may recompute such an array for each pass over it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools
from tests.support.compilation import DEFAULT_COMPILE

SHAPE = (2, 64, 64, 16)  # enough elements for the code paths of large arrays
PRODUCERS = {
    "product": lambda a, b: a * b,
    "product and sum": lambda a, b: a * b + a,
    "normalised": lambda a, b: a / jnp.sqrt((a * a).mean(-1, keepdims=True) + 1e-3),
    "exponential": lambda a, b: jnp.exp(a) * b,
    "gelu": lambda a, b: jax.nn.gelu(a) + b,
    "matrix product": lambda a, b: jax.nn.relu(a @ b[0, 0, :16] * 3 + a),
}
# Left out: `max_unpool`, which selects nothing, sums, and functions without a derivative.
SELECTIONS = {
    name: pool
    for name, pool in pools().items()
    if not pool.marks and name != "max_unpool" and not pool.rounds(pool.given(np.ones(SHAPE)))
}
CASES = [(name, ties) for name, pool in SELECTIONS.items() for ties in pool.ties or (None,)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("name", "ties"), CASES)
def test_cotangents_of_x_and_y_have_equal_sums(name, ties, dtype):
    """The cotangent of x sums to the cotangent of y: at least one comparison with the maximum holds in every window."""
    pool = SELECTIONS[name]
    settings = {} if ties is None else {"ties": ties}
    if name in ("max", "min"):
        settings["axis"] = (1, 2)

    def run(x):
        given = pool.given(x, **settings)
        if "x" in pool.usual:  # the record would take absolute values of x
            given["x"] = x
        y = pool.run(given)
        return y[0] if isinstance(y, tuple) else y

    def gradients(a, b):
        def total(d, producer):
            return run(producer(a, b) + d).astype(jnp.float32).sum()

        zeros = jnp.zeros(SHAPE, dtype)
        return {name: jax.grad(total)(zeros, producer) for name, producer in PRODUCERS.items()}

    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.normal(size=SHAPE), dtype) for _ in range(2)]
    program = jax.jit(gradients).lower(*given).compile(compiler_options=DEFAULT_COMPILE)
    outputs = jax.eval_shape(run, given[0]).size
    # Each split share is rounded to the dtype.
    tolerance = outputs * float(jnp.finfo(dtype).eps) if ties == "split" else 0
    for producer, dx in program(*given).items():
        assert abs(np.asarray(dx, np.float64).sum() - outputs) <= tolerance, producer


def test_cotangent_sums_in_a_multi_platform_export():
    """jax inlines the calls in a program for several platforms."""

    def total(d, a):
        rows = PRODUCERS["normalised"](a, a) + d
        ids = np.arange(rows.shape[0]) * 7 % 90
        return jaxpool.segment_max(rows, ids, 90, ties="first").astype(jnp.float32).sum()

    a = jnp.asarray(np.random.default_rng(0).normal(size=(4096, 16)), jnp.bfloat16)
    gradient = jax.jit(jax.grad(total))
    exported = jax.export.export(gradient, platforms=("cpu", "cuda", "tpu"))(a, a)
    program = (
        jax.jit(exported.call).lower(jnp.zeros_like(a), a).compile(compiler_options=DEFAULT_COMPILE)
    )
    assert np.asarray(program(jnp.zeros_like(a), a), np.float32).sum() == 90 * 16


SELECTION_CALLS = {
    "segment_max": lambda x: jaxpool.segment_max(x, np.arange(8) % 3, 3, ties="first"),
    "max": lambda x: jaxpool.max(x, (1, 2)),
    "max_pool": lambda x: jaxpool.max_pool(x, (2, 2), ties="split"),
    "cummax": lambda x: jaxpool.cummax(x, 1),
    "dilate": lambda x: jaxpool.dilate(x, np.ones((2, 2), np.float32)),
}


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", SELECTION_CALLS)
def test_operands_of_two_passes_have_optimization_barriers(name, platform):
    """GPU and TPU compilers keep barriers until after fusion, so no pass recomputes the operand of the barrier."""
    x = jax.ShapeDtypeStruct((8, 8, 8, 4), np.float32)
    gradient = jax.jit(jax.grad(lambda x: SELECTION_CALLS[name](x).sum()))
    program = gradient.trace(x).lower(lowering_platforms=(platform,)).as_text()
    main = program.split("func.func private")[0].splitlines()
    readers = [line for line in main if re.search(r"%arg0\b(?!:)", line)]
    assert readers
    assert all("optimization_barrier" in line for line in readers)
