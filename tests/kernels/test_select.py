"""The selected element of every window of three special numbers, compared with a loop."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._kernels.dtypes import (
    constant_in_comparison_dtype,
    reduction_identity,
    to_comparison_dtype,
)
from jaxpool._kernels.keys import constant_sort_key, to_sort_keys
from jaxpool._kernels.select import select, select_value
from jaxpool._plan.max_pool import plan_max
from jaxpool._plan.problem import Problem

NUMBERS = [-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]


def selected_position(row, kind, ties):
    """Return the position of the first or last NaN, else of the first or last extremum."""
    nan = np.isnan(row)
    best = nan if nan.any() else row == (max(row) if kind == "max" else min(row))
    last = ties == "last" or (ties == "last_nan" and nan.any())
    return np.flatnonzero(best)[-1 if last else 0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("ties", ["first", "last", "last_nan"])
@pytest.mark.parametrize("platform", ["cpu", "portable"])
def test_selected_element(platform, ties, kind, dtype):
    numbers = [*NUMBERS, float(jnp.finfo(dtype).tiny)]
    rows = np.array([*itertools.product(numbers, repeat=3)])
    x = jnp.asarray(rows, dtype)
    window = make_window(x.shape, (3,), axes=(1,))
    plan = plan_max(Problem(x.shape, dtype, platform, window))
    value, index = jax.jit(lambda x: select(x, window, kind, ties, plan))(x)
    chosen = [selected_position(row, kind, ties) for row in rows]
    np.testing.assert_array_equal(index[:, 0], chosen)
    best = rows[np.arange(len(rows)), chosen]
    for found in (value, jax.jit(lambda x: select_value(x, kind, ties, plan))(x)):
        y = np.asarray(found[:, 0], np.float64)
        np.testing.assert_array_equal(y, best)
        np.testing.assert_array_equal(np.signbit(y)[best == 0], np.signbit(best)[best == 0])


@pytest.mark.parametrize(("size", "strides"), [(112, 2), (57, 2), (64, 3)])
def test_strides_along_the_last_axis(size, strides):
    """Channels first: results in strided slices, of which the last elements are cropped."""
    x = np.random.default_rng(0).integers(0, 50, (2, 3, size, size)).astype(np.float32)

    def pool(x, axes):
        return jaxpool.max_pool(x, (4, 4), (strides, strides), axes=axes)

    def value_and_gradient(x, axes):
        return pool(x, axes), jax.grad(lambda x: (pool(x, axes) ** 2).sum())(x)

    run = jax.jit(value_and_gradient, static_argnums=1)
    for found, expected in zip(run(x, (2, 3)), run(np.moveaxis(x, 1, -1), (1, 2)), strict=True):
        np.testing.assert_array_equal(found, np.moveaxis(expected, -1, 1))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(
    "dtype",
    ["bool", "int4", "uint8", "int32", "float8_e4m3fn", "float8_e8m0fnu", "bfloat16", "float32"],
)
def test_identities_by_numpy_equal_those_by_jax(dtype, kind):
    identity = reduction_identity(dtype, kind)
    for by_numpy, by_jax in (
        (constant_in_comparison_dtype(identity), to_comparison_dtype(jnp.asarray(identity))),
        (constant_sort_key(identity), to_sort_keys(jnp.asarray(identity), "least")),
    ):
        assert by_numpy.dtype == by_jax.dtype
        assert by_numpy.tobytes() == np.asarray(by_jax).tobytes()
