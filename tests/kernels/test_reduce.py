"""Reductions over whole axes: those of XLA for CPU lose a NaN, by the shape of the array."""

import functools

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.reduce import extreme, pack, unpack
from jaxpool._plan.others import reduced_ways

SHAPES = [  # found by a search; `jax.numpy.max` loses NaNs over most of them
    ((17, 16, 8, 17), (3,)),
    ((17, 2, 4, 17, 3), (0, 1, 3)),
    ((3, 17, 7, 16, 1), (0, 1, 3, 4)),
    ((2, 16, 16, 16, 1), (0, 2, 4)),
    ((17, 16, 17), (1, 2)),
    ((8, 2, 8, 2, 8, 2), (1, 3, 5)),
    ((5, 3, 4), (1,)),
]


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_no_nan_is_lost(shape, axes, kind):
    rng = np.random.default_rng(0)
    values = np.array([1, 2, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape, p=[0.4, 0.2, 0.1, 0.25, 0.05])
    y = jax.jit(lambda x: getattr(jaxpool, kind)(x, axes))(x)
    np.testing.assert_array_equal(y, getattr(np, kind)(x, axis=axes))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 19, 4), (1,)), ((2, 5, 18), (0, 2)), ((17,), (0,))]
)
def test_folded_extremes_are_those_of_numpy(shape, axes, dtype):
    rng = np.random.default_rng(1)
    values = np.array([1, -2, 0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    drawn = rng.choice(values, (40, *shape), p=[0.2, 0.2, 0.2, 0.1, 0.25, 0.025, 0.025])
    drawn[20:] = -np.abs(np.nan_to_num(drawn[20:], posinf=3, neginf=4))
    x = drawn.astype(jax.numpy.dtype(dtype))
    for kind in ("max", "min"):
        fold = functools.partial(extreme, axes=axes, kind=kind, loses_nan=True, ways=16)
        y = np.asarray(jax.jit(jax.vmap(fold))(x), np.float32)
        along = tuple(axis + 1 for axis in axes)
        expected = getattr(np, kind)(x.astype(np.float32), axis=along, keepdims=True)
        np.testing.assert_array_equal(y, expected)


def test_what_is_folded():
    large = (16, 112, 112, 64)
    assert [reduced_ways(large, (1, 2), bits, "cpu", False) for bits in (8, 16, 32)] == [1, 8, 16]
    assert reduced_ways((1, 16, 16, 48), (1, 2), 32, "cpu", False) == 1
    assert reduced_ways((1 << 18, 16), (1,), 32, "cpu", False) == 1
    assert reduced_ways(large, (1, 2), 32, "cpu", True) == 1
    assert {reduced_ways(large, (1, 2), 32, on, False) for on in ("gpu", "tpu", "portable")} == {1}


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 33, 64, 100])
def test_bits_are_blocks_of_eight(size):
    bits = np.random.default_rng(size).random((3, size, 5)) < 0.5
    length = -(-size // 8)
    padded = np.zeros((3, 8 * length, 5), bool)
    padded[:, :size] = bits
    blocks = padded.reshape(3, 8, length, 5)
    words = pack(jax.numpy.asarray(bits), 1)
    np.testing.assert_array_equal(words, np.packbits(blocks, axis=1, bitorder="little")[:, 0])
    np.testing.assert_array_equal(unpack(words, size, 1), bits)
