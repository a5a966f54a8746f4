"""Adaptive pools: worked examples, programs, and the order of PyTorch for several NaN."""

import functools

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.adaptive import adaptive_window
from jaxpool._kernels.positions import input_position_of_tap
from jaxpool._ops.adaptive_pool import adaptive_max_op
from jaxpool._ops.apply import apply_with_residual

pytestmark = pytest.mark.usefixtures("strict")


def test_window_bounds_follow_pytorch():
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, 4, axes=(0,)), [2, 4, 7, 9])


@pytest.mark.parametrize("length", [9, 201])
def test_last_nan_order_of_pytorch(length):
    x = np.zeros((length, 3), np.float32)
    x[1:5, 0] = np.nan
    x[2:4, 1] = 5
    window = adaptive_window(x.shape, (2,), None)
    op = adaptive_max_op(window, "last_nan")
    _, tap = jax.jit(lambda x: apply_with_residual(op, x))(x)
    indices = input_position_of_tap(tap, window)
    np.testing.assert_array_equal(
        indices, [[4, 2, 0], [4 if length == 9 else 100] + [length // 2] * 2]
    )


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
