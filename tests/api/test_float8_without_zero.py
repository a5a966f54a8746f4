"""Every record with float8_e8m0fnu, which has neither a sign nor a zero: powers of two and NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import Call, assert_pool_matches, pools
from jaxpool.testing._sample_calls import SAMPLE_VALUES
from jaxpool.testing._values import draw_values

POOLS = pools()
DTYPE = jnp.dtype(jnp.float8_e8m0fnu)
KERNEL = np.array([[1, 0.5], [2, 1]]).astype(DTYPE)
CASES = [(name, "small") for name in POOLS] + [
    (name, argument)
    for name, pool in POOLS.items()
    for argument in ("padding", "where", "temperature", "ceil_mode", "kind")
    if pool.takes(argument) and argument in (SAMPLE_VALUES | dict(pool.choices))
]


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_values_match_the_oracle(name, argument):
    pool = POOLS[name]
    x = draw_values(np.random.default_rng(0), (2, 4, 6, 4), DTYPE, "normal")
    initial = {"initial": 0.5} if argument == "where" else {}
    for value in (SAMPLE_VALUES | dict(pool.choices)).get(argument, (None,)):
        settings = {} if argument == "small" else {argument: value}
        given = pool.given(x, kernel=KERNEL, **settings, **initial)
        assert_pool_matches(pool.function, Call(pool, given))


def numbers(x):
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize("name", [name for name, pool in POOLS.items() if pool.operands == ("x",)])
def test_cotangents_match_float32(name):
    """The gradient of x as float32, rounded; gradients of 0 and below have no value in this dtype."""
    pool = POOLS[name]
    if pool.marks:
        return
    x = draw_values(np.random.default_rng(1), (2, 4, 6, 4), DTYPE, "normal")
    given = pool.given(x)

    def gradient(x):
        def total(x):
            y = pool.run(given | {"x": x})
            return (y[0] if isinstance(y, tuple) else y).astype(jnp.float32).sum()

        return numbers(jax.jit(jax.grad(total))(x))

    want = gradient(given["x"].astype(np.float32))
    got = gradient(given["x"])
    np.testing.assert_allclose(got[want > 0], want[want > 0], rtol=0.6)


def test_softmax_and_logsumexp_of_segments():
    ids = np.array([0, 0])
    softmax = jaxpool.segment_softmax(jnp.array([8.0, 1.0], DTYPE), ids, 1)
    np.testing.assert_array_equal(numbers(softmax), [1, 2.0**-10])
    logsumexp = jaxpool.segment_logsumexp(jnp.array([1024.0, 1.0], DTYPE), ids, 2)
    np.testing.assert_array_equal(numbers(logsumexp), [1024, 2.0**-127])


@pytest.mark.parametrize(
    "name", [name for name, pool in POOLS.items() if name != "max_unpool" and not pool.marks]
)
def test_results_near_the_least_value(name):
    """XLA for CPU flushes the least value to 0 in float32, and differences from the kernel of `erode` are negative."""
    x = np.full((2, 4, 6, 4), 2.0**-127).astype(DTYPE)
    first, *_ = jax.tree.leaves(POOLS[name].run(POOLS[name].given(x, kernel=KERNEL)))
    assert (numbers(first) >= 2.0**-127).all()
