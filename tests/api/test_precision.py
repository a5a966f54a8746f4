"""Dtypes, and sums that would lose digits in the dtype of x."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import Call, PoolCase, assert_pool_matches, draw_values, pools
from tests.support.later import every_nth, first_values, later

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
KINDS = ("max", "min", "avg", "sum")
# The first three run always: an 8-bit float with infinities, one without, and one without negative zero.
FLOATS = ["float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float16", "bfloat16", "float32"]
FLOATS += ["float8_e3m4", "float8_e4m3", "float8_e4m3fnuz", "float8_e5m2fnuz"]
UNSIGNED_FLOAT = "float8_e8m0fnu"  # powers of two only: no zero, so no cotangent either
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"]


def check_padded_windows(kind, dtype):
    """Compare a 3x3 window at stride 1 with padding. The oracle adds exactly and rounds once."""
    rng, dtype = np.random.default_rng(5), jnp.dtype(dtype)
    for values in ("ties", "normal", "special", "lowest"):
        if kind == "avg" and dtype.itemsize == 8 and values in ("special", "lowest"):
            continue  # integers this large are rounded to floats before they are added
        x = draw_values(rng, (5, 4, 2), dtype, values, greatest=kind == "min")
        has_gradient = jnp.issubdtype(dtype, jnp.floating) and dtype != UNSIGNED_FLOAT
        dy = draw_values(rng, x.shape, dtype, "ties") if has_gradient else None
        case = PoolCase(kind, x, dy, (3, 3), (1, 1), ((1, 1), (1, 1)))
        assert_pool_matches(getattr(jaxpool, f"{kind}_pool"), case)


@pytest.mark.parametrize("dtype", [*first_values(6, FLOATS), *INTEGERS])
@pytest.mark.parametrize("kind", every_nth(KINDS))
def test_dtypes_match_the_oracle(kind, dtype):
    if (kind, dtype) != ("sum", "bool"):  # it raises, see `test_bad_calls.py`
        check_padded_windows(kind, dtype)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_float8_e8m0fnu(kind):
    check_padded_windows(kind, UNSIGNED_FLOAT)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("kind", KINDS)
def test_64_bit_integers(kind, dtype, x64):
    check_padded_windows(kind, dtype)


@pytest.mark.parametrize("dtype", first_values(6, FLOATS))
@pytest.mark.parametrize("ties", ["split", "first", "last"])
@pytest.mark.parametrize("name", every_nth(["maximum", "minimum"]))
def test_elementwise_dtypes_match_the_oracle(name, ties, dtype):
    rng = np.random.default_rng(9)
    xs = [draw_values(rng, (40,), dtype, values) for values in ("special", "ties", "special")]
    dy = draw_values(rng, (40,), dtype, "ties")
    pool = pools()[name]
    assert_pool_matches(pool.function, Call(pool, {"xs": xs, "ties": ties}, dy))


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_integer_gradients_are_float0(dtype):
    y, pullback = jax.vjp(lambda x: jaxpool.max_pool(x, (2,)), jnp.ones((4, 1), dtype))
    (dx,) = pullback(np.zeros(y.shape, jax.dtypes.float0))
    assert dx.dtype == jax.dtypes.float0


# Sums of more terms than 8 bits of precision hold


@pytest.mark.parametrize("autodiff", MODES)
def test_bfloat16_sum_of_512_ones_is_512(autodiff):
    x = jnp.ones((512, 1), jnp.bfloat16)
    assert jaxpool.sum_pool(x, (512,), autodiff=autodiff).item() == 512
    assert jaxpool.avg_pool(x, (512,), autodiff=autodiff).item() == 1


@pytest.mark.parametrize(
    ("kind", "autodiff", "dtype"),
    [
        ("max", "vjp", jnp.bfloat16),
        later("max", "jvp", np.float16),
        later("min", "jvp", jnp.bfloat16),
        ("min", "vjp", ml_dtypes.float8_e5m2),
        ("sum", "vjp", jnp.bfloat16),
        ("sum", "jvp", np.float16),
    ],
)
def test_600_overlapping_cotangents_sum_exactly(kind, autodiff, dtype):
    """600 overlapping windows cover the middle element, and maxima and minima select it."""
    x = np.zeros((1199, 1), np.float32)
    x[599] = {"max": 1, "min": -1, "sum": 1}[kind]
    pool = getattr(jaxpool, f"{kind}_pool")

    @jax.jit
    def cotangent(x):
        y, pullback = jax.vjp(lambda x: pool(x, (600,), autodiff=autodiff), x)
        return pullback(jnp.ones_like(y))[0]

    dx = cotangent(jnp.asarray(x, dtype))
    assert dx.dtype == dtype
    assert dx[599, 0] == np.asarray(600, dtype)
    if kind != "sum":
        assert np.count_nonzero(np.float32(dx)) == 1


@pytest.mark.parametrize("autodiff", MODES)
def test_split_cotangents_accumulate_before_rounding(autodiff):
    """Inner elements get three shares of 1/3, which bfloat16 does not hold exactly."""
    x = jnp.ones((302, 1), jnp.bfloat16)
    pool = functools.partial(jaxpool.max_pool, window_shape=(3,), ties="split", autodiff=autodiff)
    dx = jax.grad(lambda x: pool(x).astype(np.float32).sum())(x)
    np.testing.assert_array_equal(np.float32(dx[2:-2]), 1)


@pytest.mark.parametrize("autodiff", MODES)
def test_broadcast_cotangent_accumulates_in_float32(autodiff):
    x, y = jnp.ones((), jnp.bfloat16), jnp.zeros((600,), jnp.bfloat16)
    with jax.numpy_rank_promotion("allow"):
        _, pullback = jax.vjp(functools.partial(jaxpool.maximum, autodiff=autodiff), x, y)
        dx, dy = pullback(jnp.ones_like(y))
    assert (dx.dtype, dx.item()) == (jnp.bfloat16, 600)
    np.testing.assert_array_equal(np.float32(dy), 0)


def test_low_precision_tangents_accumulate_in_float32():
    x, one = jnp.ones((512, 1), jnp.bfloat16), jnp.bfloat16(1)
    pool = functools.partial(jaxpool.sum_pool, window_shape=(512,))
    assert jax.jvp(functools.partial(pool, autodiff="jvp"), (x,), (x,))[1].item() == 512
    gradient = jax.grad(lambda t: pool(x * t).sum() * t)
    assert jax.jvp(gradient, (one,), (one,))[1] == 1024
