"""Adaptive pools: the oracle, worked examples, every dtype, long windows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.positions import input_position_of_tap
from jaxpool._ops.adaptive_pool import adaptive_max_op
from jaxpool._ops.apply import apply_with_residual
from jaxpool.testing import oracle
from jaxpool.testing._answer import is_floating
from tests.support.adaptive_pools import (
    INF,
    MODES,
    NAN,
    TIES,
    average,
    column,
    draw_arrays,
    maximum,
    small_integers,
)

pytestmark = pytest.mark.usefixtures("strict")

FLOATS = [
    np.float32,
    np.float16,
    jnp.bfloat16,
    jnp.float8_e4m3fn,
    jnp.float8_e4m3fnuz,
    jnp.float8_e4m3b11fnuz,
    jnp.float8_e5m2,
    jnp.float8_e5m2fnuz,
]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]

# x.shape, output_shape, axes: more windows than elements, fewer windows, and both; one even and one uneven axis.
GEOMETRIES = {
    "7 to 5": ((2, 7, 3), (5,), None),
    "3 to 8": ((3, 3, 2), (8,), None),
    "5x7 to 3x4": ((2, 5, 7, 2), (3, 4), None),
    "6x5 to 3x8, axes turned": ((2, 6, 5), (8, 3), (-1, 1)),
    "channels first": ((2, 3, 4, 6), (3, 6), (2, 3)),
    "3-D, one kept": ((3, 4, 2, 5, 1), (2, None, 3), None),
}
CASES = [(name, ties, "vjp") for name in GEOMETRIES for ties in ("first", "split")]
CASES += [(name, "last", "vjp") for name in ("7 to 5", "6x5 to 3x8, axes turned")]
CASES += [pytest.param("5x7 to 3x4", ties, "jvp", marks=pytest.mark.slow) for ties in TIES]


@pytest.mark.parametrize(("name", "ties", "autodiff"), CASES)
def test_max_value_indices_and_cotangent(name, ties, autodiff):
    shape, output_shape, axes = GEOMETRIES[name]
    for x in draw_arrays(shape):
        answer = oracle.adaptive_max_pool(x, output_shape, axes=axes, ties=ties)
        first = oracle.adaptive_max_pool(
            x, output_shape, axes=axes, ties="first" if ties == "split" else ties
        )
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, output_shape, axes, ties, autodiff)
        assert indices.dtype == np.int32
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, first.indices)
        if ties == "split":
            np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(dx, answer.cotangent(dy))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_avg_value_and_cotangent(name):
    autodiff = "jvp" if len(name) % 2 else "vjp"
    shape, output_shape, axes = GEOMETRIES[name]
    for x in draw_arrays(shape, ("ties", "normal")):
        answer = oracle.adaptive_avg_pool(x, output_shape, axes=axes)
        dy = small_integers(answer.y.shape)
        y, dx = average(x, dy, output_shape, axes, autodiff)
        np.testing.assert_allclose(y, answer.y, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)


QUICK_DTYPES = (np.float16, jnp.float8_e4m3fn, np.bool_, np.uint32)
SLOW_DTYPES = [
    pytest.param(d, marks=pytest.mark.slow) for d in FLOATS + INTEGERS if d not in QUICK_DTYPES
]


@pytest.mark.parametrize(
    "dtype", [*QUICK_DTYPES, *SLOW_DTYPES], ids=lambda dtype: np.dtype(dtype).name
)
def test_dtypes(dtype):
    shape, output_shape, axes = (3, 5, 2), (3,), None
    for x in draw_arrays(shape, dtype=dtype):
        answer = oracle.adaptive_max_pool(x, output_shape)
        dy = small_integers(answer.y.shape, dtype) if is_floating(dtype) else None
        y, indices, dx = maximum(x, dy, output_shape, axes)
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.asarray(y).astype(float), answer.y.astype(float))
        np.testing.assert_array_equal(indices, answer.indices)
        if dy is not None:
            assert dx.dtype == dtype
            want = answer.cotangent(dy).astype(float)
            np.testing.assert_array_equal(np.asarray(dx).astype(float), want)
    (x,) = draw_arrays(shape, ("normal",), dtype)
    answer = oracle.adaptive_avg_pool(x, output_shape)
    y, _ = average(x, None, output_shape)
    assert y.dtype == (dtype if is_floating(dtype) else np.float32)
    eps = float(jnp.finfo(y.dtype).eps)
    np.testing.assert_allclose(
        np.asarray(y).astype(float), answer.y.astype(float), rtol=eps, atol=1e-6
    )


def test_float8_e8m0fnu():
    x = column(0.5, 4, 2, 1, 0.25, dtype=jnp.float8_e8m0fnu)
    y = np.asarray(jaxpool.adaptive_max_pool(x, (3,)))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(float), column(4, 4, 1))


def test_float64(x64):
    (x,) = draw_arrays((2, 5, 7, 2), ("normal",), np.float64)
    x += 1e-12
    answer = oracle.adaptive_max_pool(x, (3, 4))
    dy = np.random.default_rng(0).standard_normal(answer.y.shape)
    y, indices, dx = maximum(x, dy, (3, 4))
    np.testing.assert_array_equal(y, answer.y)
    np.testing.assert_array_equal(indices, answer.indices)
    np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-15, atol=1e-15)


# Worked examples


def test_window_bounds_follow_pytorch():
    x = np.arange(10, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, (4,)), column(2, 4, 7, 9))


def test_more_windows_than_elements():
    x = column(1, 5, 3)
    y, indices, dx = maximum(x, column(1, 2, 3, 4, 5), (5,))
    np.testing.assert_array_equal(y, column(1, 5, 5, 5, 3))
    np.testing.assert_array_equal(indices, column(0, 1, 1, 1, 2))
    np.testing.assert_array_equal(dx, column(1, 9, 5))


def test_nan_and_infinities():
    x = column(NAN, -INF, NAN, -INF, -INF)
    for ties, want in [("first", (0, 2, 3)), ("last", (0, 2, 4)), ("split", (0, 2, 3))]:
        y, indices, dx = maximum(x, column(1, 2, 4), (3,), None, ties)
        np.testing.assert_array_equal(y, column(NAN, NAN, -INF))
        np.testing.assert_array_equal(indices, column(*want))
        tail = {"first": (4, 0), "last": (0, 4), "split": (2, 2)}[ties]
        np.testing.assert_array_equal(dx, column(1, 0, 2, *tail))


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("autodiff", MODES)
def test_nonfinite_cotangent_reaches_only_the_selected_element(autodiff, ties):
    x = column(1, 9, 2, 8, 3)
    _, _, dx = maximum(x, column(NAN, 1, INF), (3,), None, ties, autodiff)
    np.testing.assert_array_equal(dx, column(0, NAN, 0, INF, 0))


def test_sums_accumulate_in_float32():
    x = column(*[1] * 512, dtype=jnp.bfloat16)
    y, _ = average(np.concatenate([x, x[:1]]), None, (2,))
    np.testing.assert_array_equal(np.asarray(y).astype(float), column(1, 1))
    one = column(1, 2, dtype=jnp.bfloat16)
    dy = np.ones((601, 1), jnp.bfloat16)
    for got in (maximum(one, dy, (601,))[2], average(one, dy, (601,))[1]):
        assert float(got[1, 0]) in (300, 301)
    assert float(maximum(one, dy, (601,))[2][1, 0]) == float(jnp.bfloat16(301))


def test_many_windows_over_few_elements():
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    for n in (100, 99):
        answer = oracle.adaptive_max_pool(x, (n,))
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, (n,))
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_array_equal(dx, answer.cotangent(dy))


LONG_SHAPE = (2, 201, 2, 2)  # windows of 67 and 101 elements: reduced in blocks, not tap by tap


@pytest.mark.parametrize("outputs", [3, 2])
@pytest.mark.parametrize("ties", TIES)
def test_long_windows(ties, outputs):
    for x in draw_arrays(LONG_SHAPE):
        answer = oracle.adaptive_max_pool(x, (outputs, 1), ties=ties)
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, (outputs, 1), None, ties)
        np.testing.assert_array_equal(y, answer.y)
        if ties != "split":
            np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)
        answer = oracle.adaptive_avg_pool(np.nan_to_num(x, posinf=3, neginf=3), (outputs, 1))
        y, dx = average(np.nan_to_num(x, posinf=3, neginf=3), dy, (outputs, 1))
        np.testing.assert_allclose(y, answer.y, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [9, 201])
def test_last_nan_order_of_pytorch(length):
    x = np.zeros((length, 3), np.float32)
    x[1:5, 0] = NAN
    x[2:4, 1] = 5
    window = adaptive_window(x.shape, (2,), None)
    _, tap = jax.jit(lambda x: apply_with_residual(adaptive_max_op(window, "last_nan"), "jvp", x))(
        x
    )
    indices = input_position_of_tap(tap, window)
    np.testing.assert_array_equal(
        indices, [[4, 2, 0], [4 if length == 9 else 100] + [length // 2] * 2]
    )


def test_windows_of_more_than_256_taps():
    """Windows of 17x18 taps, more than 256."""
    x = np.zeros((33, 35, 2), np.float32)
    x[16, 17, 1] = x[32, 34, 0] = 1
    y, indices, dx = maximum(x, np.ones((2, 2, 2), np.float32), (2, 2))
    np.testing.assert_array_equal(indices[..., 1], 16 * 35 + 17)
    np.testing.assert_array_equal(indices[..., 0], [[0, 17], [16 * 35, 32 * 35 + 34]])
    assert dx[16, 17, 1] == 4
    assert y.sum() == 5


def test_empty_batch_and_channels():
    for shape in [(0, 5, 7, 2), (2, 5, 7, 0)]:
        x = np.ones(shape, np.float32)
        y, indices, dx = maximum(x, np.ones((shape[0], 3, 4, shape[3]), np.float32), (3, 4))
        assert y.shape == indices.shape == (shape[0], 3, 4, shape[3])
        assert dx.shape == shape
        assert jaxpool.adaptive_avg_pool(x, (3, 4)).shape == y.shape


@pytest.mark.parametrize("ties", ["last", "split"])
def test_output_size_one_equals_reduction(ties):
    (x,) = draw_arrays((2, 4, 5, 2), ("ties",))
    dy = small_integers((2, 1, 1, 2))
    y, _, dx = maximum(x, dy, (1, 1), None, ties)

    @jax.jit
    def reduced(x, dy):
        want, pullback = jax.vjp(lambda x: jaxpool.max(x, (1, 2), keepdims=True, ties=ties), x)
        return want, pullback(dy)[0]

    want, want_dx = reduced(x, dy)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(dx, want_dx, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"ties": "split"}, {"autodiff": "jvp"}], ids=str)
def test_divisible_sizes_lower_to_the_windowed_pool(options):
    """Both programs have the same lowered text."""
    x = np.zeros((2, 6, 8, 3), np.float32)
    window = {"window_shape": (3, 2), "strides": (3, 2)}
    for adaptive, windowed in [
        (jaxpool.adaptive_max_pool, jaxpool.max_pool),
        (jaxpool.adaptive_avg_pool, jaxpool.avg_pool),
    ]:
        if windowed is jaxpool.avg_pool and "ties" in options:
            continue
        programs = [
            jax.jit(jax.grad(lambda x, pool=pool: (pool(x) ** 2).sum())).lower(x).as_text()
            for pool in (
                functools.partial(adaptive, output_shape=(2, 4), **options),
                functools.partial(windowed, **window, **options),
            )
        ]
        assert programs[0] == programs[1]


def test_max_unpool_restores_maxima():
    x = np.random.default_rng(0).permutation(70).reshape(1, 10, 7, 1).astype(np.float32)
    y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (4, 3))
    back = np.asarray(jaxpool.max_unpool(y, indices, (10, 7)))
    np.testing.assert_array_equal(back, np.where(np.isin(x, y), x, 0))


def test_output_shape_forms():
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    want = jaxpool.adaptive_max_pool(x, (3, 3), axes=(0, 1))
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, 3, axes=(0, 1)), want)
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, [3, 3], axes=[0, -1]), want)
    np.testing.assert_array_equal(jaxpool.adaptive_avg_pool(x, (None, None), axes=(0, 1)), x)
