"""What pools with chance say of arguments they do not take, word for word."""

import jax
import numpy as np
import pytest

import jaxpool
from tests.support.chance import KEY, THREEFRY

pytestmark = pytest.mark.usefixtures("strict")

X = np.zeros((2, 4, 4, 3), np.float32)
CALLED = "(x.shape=(2, 4, 4, 3), window_shape=(2, 2))"
fractional, stochastic = jaxpool.fractional_max_pool, jaxpool.stochastic_pool
MESSAGES = [
    (
        lambda: fractional(None, X, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must be a PRNG key; got key=None. "
        "Pass jax.random.key(0), say.",
    ),
    (
        lambda: fractional(X, KEY, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must come before `x`; got them the other way round. "
        "The order is key, x, window_shape, output_shape.",
    ),
    (
        lambda: fractional(jax.random.split(THREEFRY), X, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must be a PRNG key; got key=key<fry>[2]. "
        "Pass jax.random.key(0), say.",
    ),
    (
        lambda: fractional(KEY, "x", (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `x` must be an array; got x='x'. Pass jnp.asarray(x).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), 2),
        TypeError,
        "jaxpool.fractional_max_pool: `output_shape` must be a tuple of positive ints, one a "
        f"pooled axis; got output_shape=2 {CALLED}. Pass a tuple such as (4, 4).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), ()),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be a tuple of positive ints, one a "
        f"pooled axis; got output_shape=() {CALLED}. Pass a tuple such as (4, 4).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (2, 0)),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be 2 ints of at least 1, one "
        f"a pooled axis; got output_shape=(2, 0) {CALLED}. Pass a tuple such as (2, 2).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (4, 3)),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be at most size - window + 1, 3 along "
        f"axis 1; got output_shape=(4, 3) {CALLED}. Ask for fewer windows, or smaller ones.",
    ),
    (
        lambda: fractional(KEY, X, (2, 5), (2, 2)),
        ValueError,
        "jaxpool.fractional_max_pool: `window_shape` must be at most the input, 4 along axis 2; "
        "got window_shape=(2, 5) (x.shape=(2, 4, 4, 3)). "
        "Use a smaller window.",
    ),
    (
        lambda: fractional(KEY, X, (2, 2, 2), (2, 2)),
        ValueError,
        "jaxpool.fractional_max_pool: `window_shape` must be an int or 2 ints of at least 1, one "
        "a pooled axis; got window_shape=(2, 2, 2) (x.shape=(2, 4, 4, 3)). "
        "Pass a tuple such as (2, 2).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (2, 2), axes=(1, 2, 3)),
        ValueError,
        "jaxpool.fractional_max_pool: `axes` must be 2 axes, one for each entry of the shape; got "
        f"axes=(1, 2, 3) {CALLED}. Make the lengths agree.",
    ),
    (
        lambda: stochastic(0, X, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `key` must be a PRNG key or None; got key=0. "
        "Pass jax.random.key(0), say, or None to evaluate.",
    ),
    (
        lambda: stochastic(np.zeros(3, np.uint32), X, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `key` must be a PRNG key or None; got key=uint32[3]. "
        "Pass jax.random.key(0), say, or None to evaluate.",
    ),
    (
        lambda: stochastic(None, None, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `x` must be an array; got x=None. Pass jnp.asarray(x).",
    ),
    (
        lambda: stochastic(KEY, X, (2, 2), padding="FULL"),
        ValueError,
        "jaxpool.stochastic_pool: `padding` must be 'VALID', 'SAME', 'SAME_LOWER', a non-negative "
        "int, or one int or (low, high) pair a pooled axis; got padding='FULL' "
        f"{CALLED}. Pass 'SAME' or pairs such as ((1, 1), (1, 1)).",
    ),
    (
        lambda: stochastic(KEY, X, (2, 2), padding=2),
        ValueError,
        "jaxpool.stochastic_pool: `padding` must be such that every window holds a real element; "
        "window 0 along axis 1 holds none; got padding=((2, 2), (2, 2)) "
        f"{CALLED}. Use less padding or a larger window.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), MESSAGES)
def test_messages(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
