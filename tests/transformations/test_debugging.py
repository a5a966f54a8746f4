"""Debugging tools report no error in pools: checkify's index checks, and `jax_debug_nans`."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.experimental import checkify

from jaxpool.testing import pools

X = np.random.default_rng(0).normal(size=(2, 4, 6, 4)).astype(np.float32)
IDS = np.array([-1, 0, 1, -7, 2, 3, 4, 900], np.int32)
BOXES_OUTSIDE = np.array(
    [
        [-50, -50, 90, 90],
        [3, 3, 2, 2],
        [np.nan, 0, 1, 1],
        [100, 100, 200, 200],
        [np.inf, 0, 3, np.inf],
    ],
    np.float32,
)


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


def out_of_range_calls(pool):
    """Yield calls with ids, boxes or indices out of range."""
    given = pool.given(X)
    if pool.takes("segment_ids"):
        yield {**given, "segment_ids": IDS}
        yield {**given, "segment_ids": np.sort(IDS), "indices_are_sorted": True}
    if pool.takes("boxes"):
        yield {
            **given,
            "boxes": BOXES_OUTSIDE,
            "batch_indices": np.array([0, -1, 5, 1, -9], np.int32),
        }
    if pool.takes("indices"):
        outside = given["indices"].copy()
        outside[:, 0], outside[:, 1] = -5, 10**6
        yield {**given, "indices": outside}


TAKES_INDICES = [
    name
    for name, pool in pools().items()
    if any(map(pool.takes, ("segment_ids", "boxes", "indices")))
]


@pytest.mark.parametrize("name", TAKES_INDICES)
def test_out_of_range_indices_pass_checkify(name):
    pool = pools()[name]
    for call in out_of_range_calls(pool):
        for ties in pool.ties or (None,):
            run, arrays = value_and_gradient(pool, call if ties is None else {**call, "ties": ties})
            error, _ = checkify.checkify(jax.jit(run), errors=checkify.index_checks)(arrays)
            error.throw()


MASKED = [name for name, pool in pools().items() if pool.takes("where")]


@pytest.mark.parametrize("name", MASKED)
def test_all_false_mask_makes_no_nan(name):
    pool, nothing = pools()[name], np.zeros((1, 1), bool)
    more = {"initial": 0.5} if pool.takes("initial") else {}
    for ties in pool.ties or (None,):
        more = more if ties is None else {**more, "ties": ties}
        run, arrays = value_and_gradient(pool, pool.given(X, where=nothing, **more))
        with jax.debug_nans(True):
            jax.block_until_ready(jax.jit(run)(arrays))


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("window", [(2, 2), (9, 9), (16, 16)])
def test_masked_median_makes_no_nan(window, ties, mode):
    """Small and large windows, and windows as large as the image, use three different kernels."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 16, 16, 1)), jnp.float32)
    mask = jnp.arange(16)[:, None] > 12
    pool = functools.partial(
        pools()["median_pool"].function, window_shape=window, ties=ties, autodiff=mode
    )
    with jax.debug_nans(True):
        for where in (mask[..., None], jnp.zeros((1, 1), bool)):
            masked = functools.partial(pool, where=where)
            y, pullback = jax.vjp(masked, x)
            (dx,) = pullback(jnp.ones_like(y))
            if mode == "jvp":
                assert not jnp.isnan(jax.jvp(masked, (x,), (x,))[1]).any()
    assert not dx.any()
    assert not y.any()
