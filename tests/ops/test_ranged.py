"""Exponents and temperatures whose inverse is out of range of the dtype, and programs without a branch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import Axis, Window
from jaxpool._ops.power_pool import MeanPool
from jaxpool._ops.range_status import clip_value


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.0, 2.0**-94), (1e-45, 2.0**-94), (2.0**-94, 2.0**-94), (3.0, 3.0), (1e39, 2.0**96)],
)
def test_clip_value(sign, value, kept):
    assert clip_value(sign * value, jnp.float32) == pytest.approx(sign * kept, rel=1e-7, abs=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "pool",
    [
        jaxpool.logsumexp_pool,
        jaxpool.softmax_pool,
        functools.partial(jaxpool.lp_pool, p=2),
        functools.partial(jaxpool.gem_pool, p=3),
    ],
    ids=["logsumexp_pool", "softmax_pool", "lp_pool", "gem_pool"],
)
def test_gpu_programs_do_not_wait_for_the_host(pool, dtype):
    """XLA runs loops and branches of a GPU program on the host."""

    def value_and_cotangent(x, dy):
        y, back = jax.vjp(functools.partial(pool, window_shape=(3, 3), padding="SAME"), x)
        return y, back(dy)

    x = jax.ShapeDtypeStruct((2, 9, 9, 4), dtype)
    lowered = jax.jit(value_and_cotangent).trace(x, x).lower(lowering_platforms=("cuda",))
    assert "stablehlo.while" not in lowered.as_text()
    assert "stablehlo.case" not in lowered.as_text()


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, -1.0, -1.5])
def test_slopes_of_ratios_that_underflow(p, platform):
    """The ratio of the elements is less than the least float32, and some of their slopes are not."""
    x = np.array([[1e-30, 1e16]], np.float32)
    op = MeanPool(Window((Axis(1, 2, 2, 1, 1, 0, 0, 1),)), p, 1e-37)
    y = op.value(platform, x)
    (dx,) = op.transpose(platform, ((x,), y), np.ones_like(y))
    ratios = x.astype(np.float64) / x[0, 0 if p < 0 else 1]
    mean = np.mean(ratios**p) ** (1 / p)
    slopes = (ratios / mean) ** (p - 1) / 2
    np.testing.assert_allclose(dx, slopes, rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("p", [1.0, -1.0, 1.5, 2.0])
def test_slopes_of_windows_with_nan(p, platform):
    x = np.array([[np.nan, 2.0]], np.float32)
    op = MeanPool(Window((Axis(1, 2, 2, 1, 1, 0, 0, 1),)), p, 1e-6)
    y = op.value(platform, x)
    (dx,) = op.transpose(platform, ((x,), y), np.ones_like(y))
    assert np.isnan(y).all()
    assert np.isnan(dx).all()


@pytest.mark.parametrize("scale", [1e25, 1e-25])
@pytest.mark.parametrize("p", [1.5, 2.0, 2.5, 3.0])
def test_second_derivatives_of_large_and_small_means(p, scale):
    """The mean is homogeneous, so its second derivatives are inversely proportional to x."""

    def derivative(x, v):
        def mean(x):
            return jaxpool.gem_pool(x, p, (2,), axes=(0,), eps=1e-37).sum()

        return jax.jvp(jax.grad(mean), (x,), (v,))[1]

    x, v = jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 0.5, -1.0])
    expected = derivative(x, v)
    np.testing.assert_allclose(derivative(x * scale, v) * scale, expected, rtol=1e-4)
