"""Running maximum and minimum: subnormals, long arrays with episodes, and an axis without elements."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support.later import later

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_subnormal_values(kind, dtype):
    """XLA for CPU treats subnormals as zeros in float comparisons: a running maximum of 1e-42, 0, 0 would decrease."""
    dtype = jnp.dtype(dtype)
    tiny = np.asarray(jnp.finfo(dtype).smallest_subnormal, dtype)
    x = np.array([3, 0, 5, 0, 0, 7, -2, 4, 1], np.float32) * np.float32(tiny)
    x = (x if kind == "max" else -x).astype(dtype)
    f = getattr(jaxpool, f"cum{kind}")
    y, back = jax.vjp(f, x)
    (dx,) = back(np.ones(x.shape, dtype))
    expected = getattr(np, f"{kind}imum").accumulate(x.astype(np.float32)).astype(dtype)
    bits = np.dtype(f"uint{8 * dtype.itemsize}")
    np.testing.assert_array_equal(np.asarray(y).view(bits), expected.view(bits))
    np.testing.assert_array_equal(np.asarray(jax.jit(f)(x)).view(bits), expected.view(bits))
    np.testing.assert_array_equal(np.asarray(dx, np.float32), [2, 0, 3, 0, 0, 4, 0, 0, 0])


@pytest.mark.parametrize(("reverse", "x64"), [(False, False), later(True, True)])
def test_reset_in_arrays_scanned_in_blocks(reverse, x64):
    # Long enough for blocks of blocks.
    x = np.random.default_rng(4).standard_normal((3301, 16)).astype(np.float32)
    bounds = [0, 7, 8, 40, 900, 2999, 3301]
    starts = np.isin(np.arange(3301), bounds)[:, None]
    with jax.enable_x64(x64):
        y, index = jaxpool.cummax_with_argmax(x, 0, reset=starts, reverse=reverse)
    order = -1 if reverse else 1
    for begin, end in itertools.pairwise(bounds):
        want = np.maximum.accumulate(x[begin:end][::order])[::order]
        np.testing.assert_array_equal(y[begin:end], want)
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(index), 0), y)


@pytest.mark.parametrize("reverse", [False, True])
def test_axis_without_elements(reverse):
    def cummax(x):
        return jaxpool.cummax_with_argmax(x, reverse=reverse)

    x = jnp.zeros((3, 0))
    y, pullback, index = jax.vjp(cummax, x, has_aux=True)
    assert y.shape == pullback(y)[0].shape == index.shape == x.shape
