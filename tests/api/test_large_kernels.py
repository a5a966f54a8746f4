"""Morphology: programs of large kernels, kernels of zeros, which equal a max pool, and kernels of special values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.compilation import DEFAULT_COMPILE
from tests.support.later import first_values


@pytest.mark.parametrize("ties", first_values(1, ["first", "split"]))
def test_large_kernel_program_size_and_memory(ties):
    x = jax.ShapeDtypeStruct((1, 64, 64, 4), np.float32)
    kernel = jax.ShapeDtypeStruct((23, 23), np.float32)
    dilate = functools.partial(jaxpool.dilate, padding="SAME", ties=ties)

    def value_and_cotangents(x, kernel, dy):
        y, back = jax.vjp(dilate, x, kernel)
        return y, *back(dy)

    program = jax.jit(value_and_cotangents).lower(x, kernel, x)
    assert len(program.as_text()) < 250_000  # 201,632 characters with split ties in jax 0.12
    memory = program.compile(DEFAULT_COMPILE).memory_analysis()
    assert memory.temp_size_in_bytes < 12 * 4 * (64 + 2 * 22) ** 2 * 4


@pytest.mark.parametrize(
    "kernel", [np.zeros((3, 3)), np.zeros((1, 2)), jnp.zeros((2, 2, 3)), -np.zeros((2, 3))]
)
@pytest.mark.parametrize(("name", "pool"), [("dilate", "max_pool"), ("erode", "min_pool")])
def test_zero_kernel_lowers_to_max_pool(kernel, name, pool):
    kernel, shape = kernel.astype(np.float32), kernel.shape[:2]
    x = np.zeros((2, 9, 11, 3), np.float32)

    def program(call):
        return jax.jit(lambda x: jax.vjp(call, x)[1](call(x))[0]).lower(x).as_text()

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


@pytest.mark.parametrize("ties", ["first", "split"])
def test_tangent_of_kernel_only(ties):
    x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
    dilate = functools.partial(jaxpool.dilate, x, ties=ties, autodiff="jvp")
    y, tangent = jax.jvp(dilate, (kernel,), (jnp.array([10.0, 100.0]),))
    np.testing.assert_array_equal(y.ravel(), [6, 5, 2])
    np.testing.assert_array_equal(tangent.ravel(), [100, 10, 10])
