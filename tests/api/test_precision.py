"""Sums of 16-bit and 8-bit floats are added in float32 and rounded once, and averages of integers are exact.

Sequential sums of ones would stop at 256 in bfloat16, at 2048 in float16 and at 16 in float8_e4m3fn.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import pools
from tests.support.chance import KEY
from tests.support.compilation import FAST_COMPILE

BFLOAT16, FLOAT8 = jnp.bfloat16, jnp.float8_e4m3fn
MODES = ("vjp", "jvp")


def ones(*shape, dtype=BFLOAT16):
    return jnp.ones(shape, dtype)


def at_center(size, value, dtype):
    """A column of zeros with one other element."""
    return jnp.zeros((size, 1), dtype).at[size // 2].set(value)


def of(function, *before, **options):
    """A function of x, which comes after the arguments `before`."""
    return functools.partial(function, *before, **options)


# A pool, x, and the value of every output
VALUES = [
    *[
        (of(jaxpool.sum_pool, window_shape=512, axes=(0,), autodiff=m), ones(512), 512)
        for m in MODES
    ],
    *[(of(jaxpool.avg_pool, window_shape=512, axes=(0,), autodiff=m), ones(512), 1) for m in MODES],
    (of(jaxpool.stochastic_pool, None, window_shape=(1000,)), ones(1000, 1), 1),
    (
        of(jaxpool.stochastic_pool, None, window_shape=(1000,)),
        jnp.full((1000, 1), 60000, jnp.float16),
        60000,
    ),
    (of(jaxpool.adaptive_avg_pool, output_shape=(2,)), ones(1, 513, 1), 1),
    (jaxpool.global_avg_pool, ones(1, 513, 1), 1),
    (of(jaxpool.global_avg_pool, where=np.arange(513)[:, None] < 511), ones(1, 513, 1), 1),
    (of(jaxpool.segment_sum, segment_ids=np.zeros(512, np.uint32)), ones(512), 512),
    (of(jaxpool.segment_mean, segment_ids=np.zeros(512, np.uint32)), ones(512), 1),
]


@pytest.mark.parametrize(("pool", "x", "want"), VALUES)
def test_values(pool, x, want):
    y = pool(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.float32(y), want)


# A pool and x. The cotangent of x for ones: its greatest element, and how many elements are not 0
COTANGENTS = [
    *[(of(jaxpool.cummax, autodiff=mode), jnp.zeros(512, BFLOAT16), 512, 1) for mode in MODES],
    (of(jaxpool.fmax, jnp.full(512, np.nan, BFLOAT16)), jnp.zeros(1, BFLOAT16), 512, 1),
    *[
        (of(jaxpool.maximum, jnp.zeros(600, BFLOAT16), autodiff=mode), ones(), 600, 1)
        for mode in MODES
    ],
    (
        of(jaxpool.adaptive_max_pool, output_shape=601, axes=(0,)),
        jnp.array([1, 2], BFLOAT16),
        301,
        2,
    ),
    (
        of(jaxpool.adaptive_avg_pool, output_shape=601, axes=(0,)),
        jnp.array([1, 2], BFLOAT16),
        300.5,
        2,
    ),
    (
        of(jaxpool.fractional_max_pool, KEY, window_shape=(21,), output_shape=(20,)),
        at_center(40, 1, FLOAT8),
        20,
        1,
    ),
    *[
        (of(jaxpool.stochastic_pool, key, window_shape=(21,)), at_center(40, 1, FLOAT8), 20, 1)
        for key in (KEY, None)
    ],
    *[
        (
            of(function, window_shape=(600,), autodiff=mode),
            at_center(1199, value, dtype),
            600,
            count,
        )
        for function, value, mode, dtype, count in [
            (jaxpool.max_pool, 1, "vjp", BFLOAT16, 1),
            (jaxpool.max_pool, 1, "jvp", np.float16, 1),
            (jaxpool.min_pool, -1, "jvp", BFLOAT16, 1),
            (jaxpool.min_pool, -1, "vjp", jnp.float8_e5m2, 1),
            (jaxpool.sum_pool, 1, "vjp", BFLOAT16, 1199),
            (jaxpool.sum_pool, 1, "jvp", np.float16, 1199),
        ]
    ],
    # Inner elements get three shares of 1/3.
    (jaxpool.max, jnp.zeros(3, BFLOAT16), 1 / 3, 3),
    *[
        (of(jaxpool.max_pool, window_shape=(3,), ties="split", autodiff=mode), ones(302, 1), 1, 302)
        for mode in MODES
    ],
]


@pytest.mark.parametrize(("pool", "x", "greatest", "count"), COTANGENTS)
def test_cotangents(pool, x, greatest, count):
    with jax.numpy_rank_promotion("allow"):
        y, pullback = jax.vjp(pool, x)
        dx = jax.jit(pullback)(jnp.ones_like(y))[0]
    assert dx.dtype == x.dtype
    assert dx.max() == np.asarray(greatest, x.dtype)
    assert np.count_nonzero(np.float32(dx)) == count


def test_tangents():
    x, one = ones(512, 1), jnp.asarray(1, BFLOAT16)
    assert jax.jvp(of(jaxpool.max, autodiff="jvp"), (x,), (x,))[1] == 1
    pool = of(jaxpool.sum_pool, window_shape=(512,))
    assert jax.jvp(of(pool, autodiff="jvp"), (x,), (x,))[1].item() == 512
    gradient = jax.grad(lambda t: pool(x * t).sum() * t)
    assert jax.jvp(gradient, (one,), (one,))[1] == 1024


# Averages of integers have the dtype of `jnp.mean`, and integers are not rounded before the division

RECORDS = pools()
# float32 holds only every other integer in this range.
INTEGERS = 2**24 + np.arange(2 * 6 * 6 * 2).reshape(2, 6, 6, 2) % 5


def is_average(name):
    return RECORDS[name].averages(RECORDS[name].given(INTEGERS))


AVERAGE_NAMES = [name for name in RECORDS if is_average(name)]


@pytest.mark.parametrize("name", AVERAGE_NAMES)
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
def test_dtype_matches_jnp_mean(name, dtype):
    f, x = RECORDS[name].of(), (INTEGERS % 5).astype(dtype)
    for wide in (False, True):
        with jax.enable_x64(wide):
            want = jax.eval_shape(jnp.mean, jnp.asarray(x)).dtype
            assert jax.eval_shape(f, jnp.asarray(x)).dtype == want


@pytest.mark.parametrize("name", AVERAGE_NAMES)
@pytest.mark.usefixtures("x64")
def test_integers_not_rounded_to_float32_before_division(name):
    f = RECORDS[name].of()
    run = jax.jit(lambda x: (f(x), f(x.astype(np.float64))), compiler_options=FAST_COMPILE)
    got, want = run(INTEGERS.astype(np.int64))
    np.testing.assert_array_equal(got, want)
