"""Reductions over whole axes, which lose a NaN for some shapes if XLA for CPU computes them."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import Window
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.reduce import (
    attains_extremum,
    first_tied_flat_index,
    max_or_min_over_axes,
    num_tied_elements,
)
from jaxpool._plan import tuning
from jaxpool._plan.problem import Problem
from jaxpool._plan.reduce import Fold, ReductionPlan, plan_folds
from jaxpool.testing import oracle
from tests.support import forms
from tests.support.later import first_values, later
from tests.support.programs import value_and_vjp

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
            count = num_tied_elements(x, y, (1,), plan=ReductionPlan(use_float32=floats))
            yield index(False, True), index(True, True), count

    integers, floats = jax.jit(lambda x, y: list(found(x, y)))(x, y)
    forms.assert_same_bits(floats, integers, "float32")
    first, from_end, counts = (each.ravel().tolist() for each in integers)
    assert (first[:3], from_end[:3]) == ([size - 1, 0, 0], [0, size - 1, 0])
    assert counts == [1, 1, size, 0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 19, 4), (1,)), ((2, 5, 18), (2, 0)), ((17,), (0,))]
)
def test_folded_extrema_equal_numpy(shape, axes, dtype):
    rng = np.random.default_rng(1)
    values = np.array([1, -2, 0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    drawn = rng.choice(values, (40, *shape), p=[0.2, 0.2, 0.2, 0.1, 0.25, 0.025, 0.025])
    drawn[20:] = -np.abs(np.nan_to_num(drawn[20:], posinf=3, neginf=4))
    x = drawn.astype(jax.numpy.dtype(dtype))
    for kind in ("max", "min"):
        plan = ReductionPlan((Fold(axes[0], 16),), finds_nan_by_sum=True)
        options = {"axes": axes, "kind": kind, "plan": plan}
        fold = functools.partial(max_or_min_over_axes, **options)
        y = np.asarray(jax.jit(jax.vmap(fold))(x), np.float32)
        along = tuple(axis + 1 for axis in axes)
        expected = getattr(np, kind)(x.astype(np.float32), axis=along, keepdims=True)
        np.testing.assert_array_equal(y, expected)


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


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("kind", ["max", pytest.param("min", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype", [np.float32, jnp.bfloat16, pytest.param(np.float16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 19, 4), (1,)), ((2, 18, 5), (2, 1)), later((2, 3, 17), (0, 2)), later((16,), (0,))],
)
def test_cotangents_of_folded_extrema(monkeypatch, shape, axes, dtype, kind, ties):
    """Nineteen elements in parts of two: the last two parts overlap by one element."""
    folding = dataclasses.replace(
        tuning.CPU, min_folded_elements=0, min_folded_row_bits=1, min_tie_row_bits=1
    )
    monkeypatch.setitem(tuning.TUNING, "cpu", folding)
    assert plan_folds(Problem(Window(()), shape, "float16", "cpu"), axes, of_ties=True)
    rng = np.random.default_rng(0)
    values = np.array([1, 2, 0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape, p=[0.3, 0.3, 0.1, 0.1, 0.05, 0.13, 0.02]).astype(dtype)
    masked = {
        "where": rng.random(shape[-1:]) > 0.5,
        "initial": -np.inf if kind == "max" else np.inf,
    }
    for options in ({}, masked):
        want = getattr(oracle, kind)(x, axes, ties=ties, **options)
        dy = (12 * rng.integers(1, 4, want.y.shape)).astype(dtype)
        reduce = functools.partial(getattr(jaxpool, kind), axis=axes, ties=ties, **options)
        y, dx = jax.jit(value_and_vjp(reduce))(x, dy)
        np.testing.assert_array_equal(y.astype(np.float32), want.y.astype(np.float32))
        np.testing.assert_array_equal(dx, want.cotangents(dy)[0])


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 33, 64, 100])
def test_pack_bits_in_blocks_of_eight(size):
    bits = np.random.default_rng(size).random((3, size, 5)) < 0.5
    length = -(-size // 8)
    padded = np.zeros((3, 8 * length, 5), bool)
    padded[:, :size] = bits
    blocks = padded.reshape(3, 8, length, 5)
    words = pack_bits(jax.numpy.asarray(bits), 1)
    np.testing.assert_array_equal(words, np.packbits(blocks, axis=1, bitorder="little")[:, 0])
    np.testing.assert_array_equal(unpack_bits(words, size, 1), bits)
