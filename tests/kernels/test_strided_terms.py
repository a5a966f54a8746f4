"""Strided terms padded one by one or read from copies: the same sums, and copies where loops do not vectorise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels import lookup, phases
from jaxpool._kernels.route import pick, route, route_by_steps
from tests.support.geometry import window_of

GEOMETRIES = [
    # shape, window, strides, padding, dilation, ceil
    ((1, 12, 12, 16), (3, 3), (2, 2), "VALID", 1, False),
    ((1, 11, 13, 16), (3, 3), (2, 2), "VALID", 1, False),
    ((1, 11, 12, 16), (3, 3), (2, 2), 1, 1, True),
    ((1, 14, 13, 16), (3, 3), (3, 3), "VALID", 1, False),
    ((1, 14, 12, 16), (4, 4), (3, 3), "SAME", 1, False),
    ((1, 12, 11, 16), (4, 4), (2, 2), "SAME", 1, False),
    ((1, 13, 11, 16), (4, 4), (4, 4), "VALID", 1, False),
    ((1, 13, 14, 16), (2, 3), (3, 2), ((2, 0), (0, 3)), 2, False),
    ((1, 9, 9, 16), (3, 3), (2, 1), 1, 1, False),
    ((1, 7, 6, 7, 16), (2, 2, 3), (2, 1, 2), "SAME", 1, False),
    ((1, 3, 8, 16), (3, 3), (2, 2), ((0, 6), (0, 0)), 1, False),  # some windows are padding alone
    ((1, 3, 8, 16), (3, 3), (2, 2), ((9, 0), (0, 7)), 1, False),
]


@pytest.fixture
def copies(monkeypatch):
    """Whether each call that had the choice read from copies."""
    seen = []
    choose = phases._blocks_of_terms

    def chosen(*arguments):
        blocks, copied = choose(*arguments)
        seen.append(copied)
        return blocks, copied

    monkeypatch.setattr(phases, "_blocks_of_terms", chosen)
    return seen


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_same_sums_as_by_scatter(geometry, copies):
    """`route`, `pick` and the transpose of `pick`, of integers, whose sums are exact in any order."""
    shape = geometry[0]
    window = window_of(*geometry, axes=None)
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 10, shape).astype(np.float32)
    ranks = rng.permutation(x.size).reshape(shape)  # each window chooses the greatest
    dy = rng.integers(-9, 10, window.pooled(shape)).astype(np.float32)
    index = np.zeros(dy.shape, np.uint8)
    want_dx, want_y = np.zeros(shape, np.float32), np.zeros(dy.shape, np.float32)
    for out in np.ndindex(*dy.shape):
        real = []
        for tap in range(window.size):
            places = [
                out[dim.axis] * dim.stride - dim.low + t * dim.dilation
                for dim, t in zip(window.dims, window.unravel(tap), strict=True)
            ]
            if all(0 <= p < dim.size for p, dim in zip(places, window.dims, strict=True)):
                real.append((tap, (out[0], *places, out[-1])))
        if not real:
            continue
        index[out], place = max(real, key=lambda chosen: ranks[chosen[1]])
        want_dx[place] += dy[out]
        want_y[out] = x[place]
    for way in (route, route_by_steps):
        copies.clear()
        got = jax.jit(lambda dy, index, way=way: way(dy, index, window, "first"))(dy, index)
        np.testing.assert_array_equal(got, want_dx)
    assert copies, "there was a choice"

    def linear(x, index):
        return pick(x, index, window, "first")

    np.testing.assert_array_equal(jax.jit(linear)(x, index), want_y)
    copies.clear()
    back = jax.jit(lambda dy, i: jax.linear_transpose(lambda x: linear(x, i), x)(dy)[0])
    np.testing.assert_array_equal(back(dy, index), want_dx)
    assert copies, "there was a choice"


@pytest.mark.parametrize(
    ("size", "window", "stride", "padding", "copied"),
    [
        (112, 2, 2, "VALID", False),
        (112, 3, 2, "SAME", False),
        (112, 3, 2, ((1, 1), (1, 1)), False),
        (111, 3, 2, "VALID", True),
        (112, 3, 2, "VALID", True),
        (112, 3, 3, "VALID", False),
        (112, 3, 3, "SAME", True),
        (112, 4, 2, "SAME", True),
        (112, 4, 4, "VALID", False),
    ],
)
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_which_windows_are_copied(
    size, window, stride, padding, copied, autodiff, copies, monkeypatch
):
    """As measured in bench/NOTES.md: padded one by one, terms of the copied ones take 5 to 10 times as long."""
    x = jax.ShapeDtypeStruct((1, size, size, 16), jnp.float32)

    def pool(x):
        shape, strides = (window, window), (stride, stride)
        return jaxpool.max_pool(x, shape, strides, padding, autodiff=autodiff).sum()

    monkeypatch.setattr(
        lookup, "reads_in_place", lambda *_: False
    )  # asks the same, and is not counted
    jax.eval_shape(jax.grad(pool), x)
    assert set(copies) == {copied}
