"""Dtypes: result types of each op, and sums that would lose digits."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import PoolCase, assert_pool_matches, draw_values, oracle
from tests.support.later import every_nth, later

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("split", "first", "last")
FLOAT8 = [
    ml_dtypes.float8_e3m4,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]
UNSIGNED_FLOAT = ml_dtypes.float8_e8m0fnu  # powers of two only: no zero, so no cotangent either
FLOATS = [*FLOAT8, np.float16, jnp.bfloat16, np.float32]
# The quick run has an 8-bit float with infinities, one without, and one without negative zero.
QUICK = [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3b11fnuz]
FLOAT_PARAMS = [
    pytest.param(dtype, marks=() if dtype in QUICK or dtype not in FLOAT8 else pytest.mark.slow)
    for dtype in FLOATS
]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
WITHOUT_INFINITY = [
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
]


def dtype_name(dtype):
    return np.dtype(dtype).name


def padded_case(kind, dtype, values, padding=((1, 1), (1, 1)), **more):
    """A 3x3 window at stride 1 with padding: one shape, so one program for all values."""
    rng = np.random.default_rng(5)
    x = draw_values(rng, (5, 4, 2), dtype, values, greatest=kind == "min")
    dy = draw_values(rng, (5, 4, 2), dtype, "ties") if jnp.issubdtype(dtype, jnp.floating) else None
    return PoolCase(kind, x, dy, (3, 3), (1, 1), padding, **more)


@pytest.mark.parametrize("dtype", FLOAT_PARAMS, ids=dtype_name)
@pytest.mark.parametrize("kind", every_nth(["max", "min", "avg", "sum"]))
def test_float_dtypes_match_the_oracle(kind, dtype):
    """The oracle adds exactly and rounds once."""
    for values in ("ties", "normal", "special", "lowest"):
        assert_pool_matches(getattr(jaxpool, f"{kind}_pool"), padded_case(kind, dtype, values))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_float8_e8m0fnu(kind):
    for values in ("ties", "normal", "special"):
        case = padded_case(kind, UNSIGNED_FLOAT, values)
        y = jax.jit(functools.partial(getattr(jaxpool, f"{kind}_pool"), **case.kwargs()))(case.x)
        want = case.answer().y
        assert y.dtype == want.dtype
        np.testing.assert_array_equal(np.float32(y), np.float32(want))


@pytest.mark.parametrize("dtype", [*INTEGERS, np.bool_], ids=dtype_name)
@pytest.mark.parametrize("kind", ["max", "min", "avg", "sum"])
def test_integers_and_bools(kind, dtype):
    if kind == "sum" and dtype == np.bool_:
        return  # it raises, see `test_bad_calls.py`
    for values in ("ties", "special", "lowest"):
        assert_pool_matches(getattr(jaxpool, f"{kind}_pool"), padded_case(kind, dtype, values))


@pytest.mark.parametrize("dtype", WITHOUT_INFINITY, ids=dtype_name)
def test_padding_is_not_nan_in_dtypes_without_infinity(dtype):
    """lax pads with -inf, which is NaN in these dtypes, so every padded maximum is NaN."""
    least = ml_dtypes.finfo(dtype).min
    x = np.full((3, 1), least, dtype)
    pool = functools.partial(jaxpool.max_pool, window_shape=(3,), padding=1)
    y, (dx,) = jax.jit(functools.partial(_value_and_cotangents, pool))(np.ones_like(x), x)
    np.testing.assert_array_equal(np.float32(y), np.full((3, 1), np.float32(least)))
    np.testing.assert_array_equal(np.float32(dx)[:, 0], [2, 1, 0])


@pytest.mark.parametrize("autodiff", MODES)
def test_bfloat16_sum_of_512_ones_is_512(autodiff):
    x = jnp.ones((512, 1), jnp.bfloat16)
    y = jaxpool.sum_pool(x, (512,), autodiff=autodiff)
    assert y.dtype == jnp.bfloat16
    assert y.item() == 512
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
    y, pullback = jax.vjp(pool, x)
    (dx,) = pullback(jnp.ones_like(y))
    np.testing.assert_array_equal(np.float32(dx[2:-2]), 1)


@pytest.mark.parametrize("autodiff", MODES)
def test_broadcast_cotangent_accumulates_in_float32(autodiff):
    x, y = jnp.ones((), jnp.bfloat16), jnp.zeros((600,), jnp.bfloat16)
    f = functools.partial(jaxpool.maximum, autodiff=autodiff)
    with jax.numpy_rank_promotion("allow"):
        _, pullback = jax.vjp(f, x, y)
        dx, dy = pullback(jnp.ones_like(y))
    assert (dx.dtype, dx.item()) == (jnp.bfloat16, 600)
    np.testing.assert_array_equal(np.float32(dy), 0)


@pytest.mark.parametrize("autodiff", MODES)
def test_low_precision_tangents_accumulate_in_float32(autodiff):
    x = jnp.ones((512, 1), jnp.bfloat16)
    if autodiff == "vjp":
        tangent = jax.jvp(
            jax.grad(lambda t: jaxpool.sum_pool(x * t, (512,)).sum() * t),
            (jnp.bfloat16(1),),
            (jnp.bfloat16(1),),
        )[1]
        assert tangent == 1024
    else:
        pool = functools.partial(jaxpool.sum_pool, window_shape=(512,), autodiff="jvp")
        assert jax.jvp(pool, (x,), (x,))[1].item() == 512


@pytest.mark.parametrize("kind", ["max", "min", "avg", "sum"])
def test_float64_precision(kind, x64):
    """float32 would lose digits of 2**-40."""
    x = 1 + np.arange(6, dtype=np.float64)[:, None] * 2.0**-40
    dy = 1 + np.arange(4, dtype=np.float64)[:, None] * 2.0**-40
    pool = getattr(jaxpool, f"{kind}_pool")
    case = PoolCase(kind, x, dy, (3,), (1,), "VALID")
    assert_pool_matches(pool, case)
    y, pullback = jax.vjp(lambda x: pool(x, (3,)), x)
    assert y.dtype == pullback(jnp.asarray(dy))[0].dtype == np.float64


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, np.bool_], ids=dtype_name)
def test_result_dtypes(dtype):
    x = jax.ShapeDtypeStruct((4, 1), dtype)
    floating = jnp.issubdtype(dtype, jnp.floating)

    def of(function):
        return jax.eval_shape(functools.partial(function, window_shape=(2,)), x).dtype

    assert of(jaxpool.max_pool) == of(jaxpool.min_pool) == dtype
    assert of(jaxpool.avg_pool) == (dtype if floating else np.float32)
    if dtype != np.bool_:
        assert of(jaxpool.sum_pool) == dtype


def test_average_without_padding_count_stays_bfloat16():
    """`flax.linen.avg_pool` returns float32 here."""
    x = jnp.ones((4, 1), jnp.bfloat16)
    y = jaxpool.avg_pool(x, (3,), padding="SAME", count_include_pad=False)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.float32(y), 1)


@pytest.mark.parametrize("dtype", [np.int32, np.bool_], ids=dtype_name)
def test_integer_gradients_are_float0(dtype):
    pool = functools.partial(jaxpool.max_pool, window_shape=(2,))
    y, pullback = jax.vjp(pool, jnp.ones((4, 1), dtype))
    (dx,) = pullback(np.zeros(y.shape, jax.dtypes.float0))
    assert dx.dtype == jax.dtypes.float0


@pytest.mark.parametrize("dtype", [np.int64, np.uint64], ids=dtype_name)
@pytest.mark.parametrize("kind", ["max", "min", "avg", "sum"])
def test_64_bit_integers(kind, dtype, x64):
    for values in ("ties", "special"):
        case = padded_case(kind, dtype, values)
        if kind == "avg" and values == "special":
            continue  # integers this large are rounded to floats before they are added
        assert_pool_matches(getattr(jaxpool, f"{kind}_pool"), case)


def test_weak_types_preserved():
    """Python numbers do not decide the dtype of a result, nor of later operations."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        x = jnp.ones((3,), jnp.bfloat16)
        assert jaxpool.maximum(x, 0.0).dtype == jnp.bfloat16
        assert jaxpool.maximum(0, x).dtype == jnp.bfloat16
        weak = jaxpool.maximum(1.0, 2.0)
        assert jax.typeof(weak).weak_type
        assert (x + weak).dtype == jnp.bfloat16
        assert not jax.typeof(jaxpool.maximum(x, 0.0)).weak_type


def _value_and_cotangents(f, dy, *xs):
    y, pullback = jax.vjp(f, *xs)
    return y, pullback(dy)


@pytest.mark.parametrize("dtype", FLOAT_PARAMS, ids=dtype_name)
@pytest.mark.parametrize("function", every_nth(["maximum", "minimum"]))
def test_elementwise_float_dtypes_match_the_oracle(function, dtype):
    rng = np.random.default_rng(9)
    xs = [draw_values(rng, (40,), dtype, values) for values in ("special", "ties", "special")]
    dy = draw_values(rng, (40,), dtype, "ties")

    @jax.jit
    def by_ties(dy, *xs):
        pools = {ties: functools.partial(getattr(jaxpool, function), ties=ties) for ties in TIES}
        return {ties: _value_and_cotangents(f, dy, *xs) for ties, f in pools.items()}

    for ties, (y, cotangents) in by_ties(dy, *xs).items():
        want = getattr(oracle, function)(*xs, ties=ties)
        assert y.dtype == want.y.dtype
        np.testing.assert_array_equal(np.float32(y), np.float32(want.y))
        eps = float(ml_dtypes.finfo(dtype).eps)
        for got, expected in zip(cotangents, want.cotangents(dy), strict=True):
            assert got.dtype == dtype
            np.testing.assert_allclose(np.float32(got), np.float32(expected), rtol=eps)
