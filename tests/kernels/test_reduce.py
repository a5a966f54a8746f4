"""Reductions over whole axes, which lose a NaN for some shapes if XLA for CPU computes them."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.reduce import (
    attains_extremum,
    first_tied_flat_index,
    num_tied_elements,
)
from jaxpool._plan.reduce import ReductionPlan
from tests.support.later import first_values

SHAPES = [  # found by a search; `jax.numpy.max` loses NaNs over most of them
    ((17, 16, 8, 17), (3,)),
    ((17, 2, 4, 17, 3), (0, 1, 3)),
    ((3, 17, 7, 16, 1), (0, 1, 3, 4)),
    ((2, 16, 16, 16, 1), (0, 2, 4)),
    ((17, 16, 17), (1, 2)),
    ((8, 2, 8, 2, 8, 2), (1, 3, 5)),
    ((5, 3, 4), (1,)),
]


@pytest.mark.parametrize("dtype", first_values(1, ["float32", "bfloat16", "float16"]))
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_nan_propagates(shape, axes, kind, dtype):
    rng = np.random.default_rng(0)
    values = np.array([1, 2, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape, p=[0.4, 0.2, 0.1, 0.25, 0.05])
    y = jax.jit(lambda x: getattr(jaxpool, kind)(x, axes))(x.astype(jnp.dtype(dtype)))
    np.testing.assert_array_equal(y.astype(np.float32), getattr(np, kind)(x, axis=axes))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [9, 17, 24, 40, 63, 100, 130])
def test_chunks_of_a_last_axis_that_overlap(size, dtype):
    """Arrays large enough to be folded, with the gradient of each tie rule."""
    x = np.random.default_rng(size).integers(0, 9, (4096, size)).astype(np.float32)
    x[::7, size // 2] = np.nan
    y = np.max(x, axis=1, keepdims=True)
    tied = (x == y) | np.isnan(x)
    dx = {
        "split": tied / tied.sum(1, keepdims=True),
        "first": np.arange(size) == tied.argmax(1)[:, None],
        "last": np.arange(size) == size - 1 - tied[:, ::-1].argmax(1)[:, None],
    }
    for ties, expected in dx.items():
        pool = functools.partial(jaxpool.max, axis=1, ties=ties)
        run = jax.jit(lambda x, pool=pool: (pool(x), jax.grad(lambda x: pool(x).sum())(x)))
        found = run(x.astype(jnp.dtype(dtype)))
        np.testing.assert_array_equal(found[0].astype(np.float32), y[:, 0])
        rounded = expected.astype(jnp.dtype(dtype)).astype(np.float32)
        np.testing.assert_array_equal(found[1].astype(np.float32), rounded)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 2**16 - 1])
def test_float_counts_equal_integer_counts(size):
    """Sizes around the range of one byte, and the largest of two bytes."""
    x = np.zeros((4, size), np.float32)
    x[0, -1] = x[1, 0] = x[2] = 1  # the last, the first, all and none
    y = jnp.ones((4, 1), np.float32)

    def found(x, y):
        tied = attains_extremum(x, y)
        for floats in (False, True):
            index = functools.partial(first_tied_flat_index, tied, (1,), use_float32=floats)
            count = num_tied_elements(x, y, (1,), None, ReductionPlan(use_float32=floats))
            yield index(False, True), index(True, True), count

    integers, floats = jax.jit(lambda x, y: list(found(x, y)))(x, y)
    for got, want in zip(floats, integers, strict=True):
        np.testing.assert_array_equal(got, want)
    first, from_end, counts = (each.ravel().tolist() for each in integers)
    assert (first[:3], from_end[:3]) == ([size - 1, 0, 0], [0, size - 1, 0])
    assert counts == [1, 1, size, 0]


@pytest.mark.parametrize(("size", "small"), [(48, True), (15, False)])
def test_small_cpu_arrays_reduce_as_floats(size, small):
    """Programs of small arrays on CPU have no reduction of integers."""
    x = jnp.ones((4, size))

    def reduces_integers(ties, platform):
        both = jax.jit(jax.grad(lambda x: jaxpool.max(x, axis=1, ties=ties).sum()))
        text = both.trace(x).lower(lowering_platforms=(platform,)).as_text()
        kinds = re.findall(r"stablehlo.reduce.*?: \(tensor<[0-9x]*x(\w+)>", text)
        assert kinds
        return any(kind not in ("f32", "i1") for kind in kinds)

    for ties in ("split", "first"):
        assert reduces_integers(ties, "cpu") is not small
        assert reduces_integers(ties, "cuda")
