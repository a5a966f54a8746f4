"""Morphology: kernels of many taps, evaluated in a loop, of zeros, which equal a max pool, and of special values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops import morphology, op
from tests.support.compilation import DEFAULT_COMPILE
from tests.support.later import first_values, later

RNG = np.random.default_rng(0)
X = np.array(RNG.integers(-5, 5, (2, 9, 11, 3)), np.float32)
X[0, 3, 3], X[1, :7, :7], X[1, 8, 8, 1] = -np.inf, -np.inf, np.nan


def value_and_cotangents(x, kernel, dy, name, options):
    y, back = jax.vjp(functools.partial(getattr(jaxpool, name), **dict(options)), x, kernel)
    return y, *back(dy.ravel()[: y.size].reshape(y.shape))


@pytest.fixture
def set_uses_loop(monkeypatch):
    """Return a function that makes all kernels large or small, for ops that are traced afterwards."""

    def set_loop(loop):
        monkeypatch.setattr(morphology.Morphology, "_is_large", loop)
        clear_caches()

    def clear_caches():
        op._types.cache_clear()
        jax.clear_caches()

    yield set_loop
    clear_caches()


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("dilate", (3, 4), {"padding": "SAME"}),
        ("erode", (4, 5), {"padding": "SAME", "strides": (2, 3)}),
        later(
            "dilate", (4, 3, 3), {"padding": "SAME", "strides": (1, 2), "window_dilation": (2, 3)}
        ),
        later("erode", (5, 2), {"strides": (7, 9), "axes": (2, 0), "padding": ((0, 2), (1, 1))}),
        later("dilate", (2, 3, 3), {"strides": (2, 1, 2), "axes": (3, 2, 1)}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(jnp.bfloat16, marks=pytest.mark.slow)])
def test_loop_over_taps_equals_unrolled_taps(name, shape, options, ties, dtype, set_uses_loop):
    kernel = np.array(RNG.integers(-2, 2, shape), np.float32)
    kernel[(0,) * kernel.ndim] = -np.inf
    # As an argument: XLA for GPUs would omit the rounding to bfloat16 of a dy that the program computes.
    dy = jnp.cos(jnp.arange(2 * X.size)).astype(dtype)
    args = jnp.asarray(X, dtype), jnp.asarray(kernel, dtype), dy
    options = tuple({**options, "ties": ties}.items())
    results = []
    for loop in (False, True):
        set_uses_loop(loop)
        results.append(jax.jit(lambda *xs: value_and_cotangents(*xs, name, options))(*args))
    rounding = 1e-6 if dtype == np.float32 else 2e-2  # of sums; only split ties add
    for one, other in zip(*results, strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        np.testing.assert_allclose(one, other, rtol=rounding if ties == "split" else 0, atol=1e-5)


@pytest.mark.parametrize("dtype", first_values(1, [np.int32, np.uint8]))
def test_integer_overflow_in_loop_equals_unrolled(dtype, set_uses_loop):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, (2, 7, 8, 1), dtype, endpoint=True)
    kernel = RNG.integers(info.min, info.max, (3, 3), dtype, endpoint=True)
    for name in ("dilate", "erode"):
        results = []
        for loop in (False, True):
            set_uses_loop(loop)
            results.append(getattr(jaxpool, name)(x, kernel, (2, 1), "SAME"))
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("ties", first_values(1, ["first", "split"]))
def test_large_kernel_program_size_and_memory(ties):
    x = jax.ShapeDtypeStruct((1, 64, 64, 4), np.float32)
    kernel = jax.ShapeDtypeStruct((23, 23), np.float32)
    options = (("padding", "SAME"), ("ties", ties))
    program = jax.jit(lambda *xs: value_and_cotangents(*xs, "dilate", options)).lower(x, kernel, x)
    assert len(program.as_text()) < 250_000  # 201,632 characters with split ties in jax 0.12
    memory = program.compile(DEFAULT_COMPILE).memory_analysis()
    assert memory.temp_size_in_bytes < 12 * 4 * (64 + 2 * 22) ** 2 * 4


@pytest.mark.parametrize(
    "kernel", [np.zeros((3, 3)), np.zeros((1, 2)), jnp.zeros((2, 2, 3)), -np.zeros((2, 3))]
)
@pytest.mark.parametrize(("name", "pool"), [("dilate", "max_pool"), ("erode", "min_pool")])
def test_zero_kernel_lowers_to_max_pool(kernel, name, pool):
    kernel, shape = kernel.astype(np.float32), kernel.shape[:2]

    def program(call):
        return jax.jit(lambda x: jax.vjp(call, x)[1](call(x))[0]).lower(X).as_text()

    ours = program(lambda x: getattr(jaxpool, name)(x, kernel, (2, 1), "SAME", ties="last"))
    assert ours == program(lambda x: getattr(jaxpool, pool)(x, shape, (2, 1), "SAME", ties="last"))


@pytest.mark.parametrize(("name", "sign"), [("dilate", 1), ("erode", -1)])
def test_nan_and_infinite_kernel_entries(name, sign):
    """-inf removes an element; +inf and NaN win, or meet padding of the opposite sign."""
    inf, nan = np.inf, np.nan
    x = np.array([1, 5, 2], np.float32)[None, :, None]

    @jax.jit
    def pool(kernel):
        return sign * getattr(jaxpool, name)(jnp.asarray(sign * x), kernel, padding=1)[0, :, 0]

    np.testing.assert_array_equal(pool(np.float32([-inf, 0, 0])), [5, 5, 2])
    np.testing.assert_array_equal(pool(np.float32([0, 0, -inf])), [1, 5, 5])
    np.testing.assert_array_equal(pool(np.float32([inf, 0, 0])), [nan, inf, inf])
    np.testing.assert_array_equal(pool(np.float32([0, 0, nan])), [nan, nan, nan])


def test_integer_padding_is_never_selected():
    """Padding stays the identity, although adding or subtracting the kernel would wrap it around."""
    least, greatest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    kernel = jnp.array([5, 0, 0])
    x = jnp.array([[[least + 1], [least + 2]]], jnp.int32)
    y = jaxpool.dilate(x, kernel, padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [least + 2, least + 6])
    x = jnp.array([[[greatest - 1], [greatest - 2]]], jnp.int32)
    y = jaxpool.erode(x, kernel, padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [greatest - 2, greatest - 6])


@pytest.mark.parametrize("ties", ["first", "split"])
def test_tangent_of_kernel_only(ties):
    x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
    dilate = functools.partial(jaxpool.dilate, x, ties=ties, autodiff="jvp")
    y, tangent = jax.jvp(dilate, (kernel,), (jnp.array([10.0, 100.0]),))
    np.testing.assert_array_equal(y.ravel(), [6, 5, 2])
    np.testing.assert_array_equal(tangent.ravel(), [100, 10, 10])
