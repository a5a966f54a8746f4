"""Reductions over whole axes, which lose a NaN for some shapes if XLA for CPU computes them."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.bits import pack_bits, unpack_bits
from jaxpool._kernels.reduce import (
    attains_extremum,
    first_tied_flat_index,
    max_or_min_over_axes,
    num_tied_elements,
)
from jaxpool._ops.reduction import Reduction
from jaxpool._plan import tuning
from jaxpool._plan.reduce import Fold
from tests.support import forms
from tests.support.later import first_values, later

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

    @jax.jit
    def found(x, y):
        tied = attains_extremum(x, y)
        ranks = [
            [
                first_tied_flat_index(tied, (1,), last, True, use_float32=floats)
                for last in (False, True)
            ]
            for floats in (False, True)
        ]
        return ranks, [
            num_tied_elements(x, y, (1,), use_float32=floats) for floats in (False, True)
        ]

    (ranks, floats), counts = found(x, y)
    forms.assert_same_bits(floats, ranks, "ranks")
    forms.assert_same_bits([counts[1]], [counts[0]], "counts")
    assert counts[0].ravel().tolist() == [1, 1, size, 0]
    assert ranks[0].ravel()[:3].tolist() == [size - 1, 0, 0]


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
        fold = functools.partial(
            max_or_min_over_axes,
            axes=axes,
            kind=kind,
            loses_nan=True,
            plan=Fold(axes[0], 16),
        )
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


def _expected(x, axes, kind, ties, mask, dy):
    """Return the maximum or minimum and the cotangent of x, computed element by element."""
    lost = -np.inf if kind == "max" else np.inf
    read = np.where(mask, x, np.float32(lost))
    y = getattr(np, kind)(read, axis=axes, keepdims=True)
    tied = ((read == y) | (np.isnan(read) & np.isnan(y))) & mask
    dx = np.zeros(x.shape, np.float32)
    for out in np.ndindex(y.shape):
        here = np.zeros(x.shape, bool)
        here[tuple(slice(None) if axis in axes else at for axis, at in enumerate(out))] = True
        places = sorted(
            zip(*np.nonzero(tied & here), strict=True), key=lambda p: [p[a] for a in axes]
        )
        if not places:
            continue
        if ties != "split":
            places = [places[0 if ties == "first" else -1]]
        for place in places:
            dx[place] = np.float32(dy[out]) / np.float32(len(places))
    return y, dx


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("kind", ["max", pytest.param("min", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)]
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
    rng = np.random.default_rng(0)
    values = np.array([1, 2, 0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape, p=[0.3, 0.3, 0.1, 0.1, 0.05, 0.13, 0.02])
    sizes = tuple(shape[axis] for axis in axes)
    op = Reduction(kind, ties, axes, sizes)
    for mask in (np.ones(shape[-1:], bool), rng.random(shape[-1:]) > 0.5):
        given = jnp.asarray(x, dtype), jnp.asarray(mask).reshape((1,) * (len(shape) - 1) + (-1,))
        dy = jnp.asarray(
            12 * rng.integers(1, 4, [1 if a in axes else n for a, n in enumerate(shape)]), dtype
        )

        @jax.jit
        def both(dy, x, mask):
            y, kept = op.primal("cpu", x, mask)
            return y, op.transpose("cpu", kept, dy)[0]

        y, dx = both(dy, *given)
        expected, cotangent = _expected(x, axes, kind, ties, mask, np.asarray(dy, np.float32))
        np.testing.assert_array_equal(np.asarray(y, np.float32), expected)
        np.testing.assert_array_equal(dx, jnp.asarray(cotangent).astype(dtype))


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
