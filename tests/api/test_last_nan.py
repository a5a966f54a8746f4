"""PyTorch's selection order: the first of tied numbers, but the last of several NaN."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.window import make_window
from jaxpool._kernels.dtypes import challenger_wins
from jaxpool._ops.apply import apply
from jaxpool._ops.select_pool import SelectPool

GEOMETRIES = [
    ((3,), (1,), ((1, 1),), None),
    ((13,), (1,), ((6, 6),), None),
    ((13,), (2,), ((0, 0),), None),
    ((7,), (3,), ((3, 2),), (2,)),
    ((2, 2), (2, 2), ((0, 0), (0, 0)), None),
    ((5, 7), (1, 1), ((2, 2), (3, 3)), None),
    ((7, 3), (2, 1), ((3, 0), (1, 1)), (1, 2)),
]


def random_values_with_nan(shape, seed):
    rng = np.random.default_rng(seed)
    return rng.choice(np.float32([-np.inf, -1, 1, 1, 2, 2, np.nan]), shape)


def selected_positions(x, window, kind):
    """Loops: each output position and the position of the selected element."""
    sign = 1 if kind == "max" else -1
    for out in itertools.product(*map(range, window.output_shape)):
        best = None
        for tap in itertools.product(*map(range, window.window_shape)):
            source = tuple(
                o * dim.stride - dim.low + t * dim.dilation
                for o, t, dim in zip(out, tap, window.dims, strict=True)
            )
            if not all(0 <= at < dim.size for at, dim in zip(source, window.dims, strict=True)):
                continue
            if best is None or np.isnan(x[source]) or sign * x[source] > sign * x[best]:
                best = source
        yield out, best


@functools.partial(jax.jit, static_argnums=(0, 1))
def value_and_cotangent(op, autodiff, x, dy):
    y, pullback = jax.vjp(lambda x: apply(op, autodiff, x), x)
    return y, pullback(dy)[0]


@pytest.mark.parametrize(
    ("kind", "autodiff", "geometry"),
    [("max", "vjp", geometry) for geometry in GEOMETRIES]
    + [("max", "jvp", geometry) for geometry in GEOMETRIES[-2:]]
    + [("min", "vjp", GEOMETRIES[1])],
)
def test_value_and_cotangent(kind, autodiff, geometry):
    window_shape, strides, padding, dilation = geometry
    shape = (16,) if len(window_shape) == 1 else (13, 9)
    axes = tuple(range(len(shape)))
    window = make_window(shape, window_shape, strides, padding, window_dilation=dilation, axes=axes)
    op = SelectPool(window, kind, "last_nan")
    dy = np.arange(1, np.prod(window.output_shape) + 1, dtype=np.float32)
    dy = dy.reshape(window.output_shape)
    for seed in range(8):
        x = random_values_with_nan(shape, seed)
        y, dx = value_and_cotangent(op, autodiff, x, dy)
        want_y, want_dx = np.zeros(y.shape, np.float32), np.zeros(shape, np.float32)
        for out, best in selected_positions(x, window, kind):
            want_y[out] = x[best]
            want_dx[best] += dy[out]
        np.testing.assert_array_equal(y, want_y)
        np.testing.assert_array_equal(dx, want_dx)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_have_no_nan(dtype):
    best, challenger = jnp.asarray([1, 2, 3], dtype), jnp.asarray([2, 2, 2], dtype)
    for kind, want in (("max", [True, False, False]), ("min", [False, False, True])):
        np.testing.assert_array_equal(challenger_wins(challenger, best, kind, "last_nan"), want)
