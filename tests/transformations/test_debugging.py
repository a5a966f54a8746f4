"""Debugging tools report no error in pools: checkify's index checks, and `jax_debug_nans`."""

import itertools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.experimental import checkify

from jaxpool.testing import pools

POOLS = pools()
X = np.random.default_rng(0).normal(size=(2, 4, 6, 4)).astype(np.float32)
SQUARE = np.random.default_rng(0).normal(size=(1, 16, 16, 4)).astype(np.float32)
IDS = np.array([-1, 0, 1, -7, 2, 3, 4, 900], np.int32)
nan, inf = np.nan, np.inf
BOXES = [[-50, -50, 90, 90], [3, 3, 2, 2], [nan, 0, 1, 1], [100, 100, 200, 200], [inf, 0, 3, inf]]
OUT_OF_RANGE = {  # by argument, settings with ids, boxes or indices out of range
    "segment_ids": [
        {"segment_ids": IDS},
        {"segment_ids": np.sort(IDS), "indices_are_sorted": True},
    ],
    "boxes": [{"boxes": np.float32(BOXES), "batch_indices": np.int32([0, -1, 5, 1, -9])}],
    "indices": [{"indices": np.resize(np.int32([-5, 10**6, 1, 2]), X.shape)}],
}


def value_and_gradient(pool, given):
    """Return a function from the arrays of a call to value and cotangents of its operands, and the arrays."""
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}

    def run(arrays):
        def value(operands):
            return jax.tree.leaves(pool.run({**given, **arrays, **operands}))[0]

        operands = {name: arrays.get(name, given[name]) for name in pool.operands}
        if pool.marks:
            return value(operands)
        y, pullback = jax.vjp(value, operands)
        return y, pullback(jnp.ones_like(y))

    return run, arrays


def with_each_tie_rule(pool, settings):
    return [settings | {"ties": ties} for ties in pool.ties] or [settings]


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, each) for each in OUT_OF_RANGE for name, pool in POOLS.items() if pool.takes(each)],
)
def test_out_of_range_indices_pass_checkify(name, argument):
    pool = POOLS[name]
    for out_of_range in OUT_OF_RANGE[argument]:
        for settings in with_each_tie_rule(pool, out_of_range):
            run, arrays = value_and_gradient(pool, pool.given(X, **settings))
            error, _ = checkify.checkify(jax.jit(run), errors=checkify.index_checks)(arrays)
            error.throw()


@pytest.mark.parametrize("name", [name for name, pool in POOLS.items() if pool.takes("where")])
@pytest.mark.parametrize("where", [np.zeros((1, 1), bool), np.arange(16)[:, None, None] > 12])
def test_masked_elements_make_no_nan(name, where):
    """Small and large windows, and windows as large as the image, use three different rank kernels."""
    pool = POOLS[name]
    windows = [(2, 2), (9, 9), (16, 16)] if pool.topic == "rank" else [(2, 2)]
    for window, mode in itertools.product(windows, pool.modes or ("vjp",)):
        given = {"where": where, "initial": 0.5, "window_shape": window, "autodiff": mode}
        for settings in with_each_tie_rule(pool, given | {"strides": (1, 1)}):
            run, arrays = value_and_gradient(pool, pool.given(SQUARE, **settings))
            with jax.debug_nans(True):
                jax.block_until_ready(jax.jit(run)(arrays))
