"""Padded windows over large arrays, computed region by region: the same as over a padded copy, to the bit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels import regions
from jaxpool._kernels import select as selecting
from jaxpool._kernels.route import route
from jaxpool._kernels.select import select, select_value
from tests.support.geometry import window_of

GEOMETRIES = [
    # shape, window, strides, padding, dilation, ceil, axes
    ((2, 9, 8, 3), (3, 3), (1, 1), "SAME", 1, False, None),
    ((2, 19, 18, 3), (3, 3), (2, 2), "SAME", 1, False, None),
    ((2, 19, 18, 3), (3, 3), (2, 2), 1, 1, False, (2, 1)),
    ((19, 21), (2, 3), (3, 2), ((1, 0), (0, 2)), 1, True, (0, 1)),
    ((1, 12, 13, 2), (3, 2), (1, 2), ((2, 2), (1, 0)), 2, False, None),
    ((2, 2, 22, 33), (3, 3), (2, 3), 2, 2, True, (2, 3)),
    ((2, 25, 1), (7,), (3,), 3, 1, True, None),
    ((1, 7, 8, 9, 2), (2, 2, 2), (1, 1, 2), "SAME_LOWER", 1, False, None),
    ((1, 22, 41, 2), (3, 3), (4, 4), 1, 1, False, None),
    ((3, 10, 3), (3,), (1,), ((0, 4),), 2, False, None),
    ((1, 30, 1), (2,), (3,), ((5, 7),), 1, False, None),  # some windows are padding alone
]


def selections(window):
    def every(x):
        several = [
            select(x, window, kind, ties)
            for kind, ties in (("max", "first"), ("min", "last"), ("max", "last_nan"))
        ]
        return several, select_value(x, window, "max", "first")

    return every


@pytest.fixture
def split(monkeypatch):
    """`split(kernel, x)`: what it gives if every array counts as large, if none, and the regions of each pass."""

    def both(kernel, x, large=0):
        monkeypatch.setattr(regions, "LARGE", 1 << 60)
        whole = jax.jit(kernel)(x)
        seen = []
        together = regions.put_together

        def counting(axes, columns, region):
            seen.append(math.prod(map(len, columns)))
            return together(axes, columns, region)

        for module in (regions, selecting):
            monkeypatch.setattr(module, "put_together", counting)
        monkeypatch.setattr(regions, "LARGE", large)
        monkeypatch.setattr(kernels, "WIDE", 0)
        return jax.jit(lambda x: kernel(x))(x), whole, seen

    return both


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_same_as_over_a_padded_copy(geometry, split):
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 3, geometry[0]), jnp.float32)
    x = x.at[(0,) * x.ndim].set(jnp.nan).at[(-1,) * x.ndim].set(-jnp.inf)
    window = window_of(*geometry)

    parts, whole, seen = split(selections(window), x)
    assert len(seen) == 4
    assert min(seen) > 1, "the geometry is to be split"
    jax.tree.map(np.testing.assert_array_equal, parts, whole)


BACKWARDS = [geometry for geometry in GEOMETRIES if set(geometry[2]) == {1}] + [
    ((2, 19, 18, 3), (3, 3), (1, 1), "VALID", 1, False, None),
    ((1, 22, 27, 2), (2, 3), (1, 1), ((1, 0), (0, 2)), 2, False, (2, 1)),
]


@pytest.mark.parametrize("geometry", BACKWARDS)
def test_the_same_cotangents_as_over_padded_copies(geometry, split):
    """The same terms in the same order, so the same bits."""
    window = window_of(*geometry)
    rng = np.random.default_rng(1)
    dy = jnp.asarray(rng.standard_normal(window.pooled(geometry[0])), jnp.float32)
    index = jnp.asarray(rng.integers(0, window.size, dy.shape), jnp.uint8)

    def every(dy):
        return [route(dy, index, window, ties) for ties in ("first", "last")]

    parts, whole, seen = split(every, dy)
    assert len(seen) == 2
    assert min(seen) > 1, "the geometry is to be split"
    jax.tree.map(np.testing.assert_array_equal, parts, whole)


@pytest.mark.parametrize(
    ("shape", "window", "strides", "padding"),
    [
        ((2, 9, 9, 1), (3, 3), (1, 1), "VALID"),  # nothing is padded
        ((2, 3, 3, 1), (3, 3), (1, 1), "SAME"),  # nearly all outputs reach padding
        ((0, 9, 9, 1), (3, 3), (1, 1), "SAME"),
    ],
)
def test_what_is_not_split(shape, window, strides, padding, split):
    given = make_window(shape, window, strides, padding)
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 3, shape), jnp.float32)
    parts, whole, seen = split(selections(given), x, large=1)
    assert seen == [1] * 4
    assert parts[1].shape == given.pooled(shape)
    jax.tree.map(np.testing.assert_array_equal, parts, whole)


def test_a_large_array_is_not_copied():
    """The program of a large pool needs less room than a padded copy of its input."""
    x = jax.ShapeDtypeStruct((2, 128, 128, 32), jnp.float32)
    for pool in (jaxpool.max_pool, jaxpool.avg_pool):
        grad = jax.jit(jax.grad(lambda x, pool=pool: pool(x, (3, 3), (2, 2), "SAME").sum()))
        memory = grad.lower(x).compile().memory_analysis()
        assert memory.temp_size_in_bytes < 0.9 * 4 * 2 * 128 * 128 * 32


STEPPED = [
    ((2, 40, 38, 3), (5, 5), (1, 1), "SAME", 1, False, None),
    ((2, 39, 38, 3), (7, 6), (2, 3), 2, 1, False, (2, 1)),
    ((90, 2), (31,), (2,), "SAME", 1, False, (0,)),
    ((2, 41, 40, 2), (5, 5), (2, 1), 4, 2, True, None),
    ((1, 11, 12, 13, 2), (3, 3, 3), (1, 2, 1), "SAME", 1, False, None),
    ((1, 10, 12, 14, 2), (3, 3, 3), (2, 2, 2), "SAME", 1, False, None),
]


@pytest.mark.parametrize("geometry", STEPPED)
def test_the_same_in_steps_as_over_padded_copies(geometry, split):
    """Values and taps, by each step's own regions."""
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 3, geometry[0]), jnp.float32)
    x = x.at[(0,) * x.ndim].set(jnp.nan).at[(-1,) * x.ndim].set(-jnp.inf)
    window = window_of(*geometry)

    parts, whole, seen = split(selections(window), x)
    assert seen == seen[: len(seen) // 4] * 4
    assert max(seen) > 1, "the geometry is to be split"
    jax.tree.map(np.testing.assert_array_equal, parts, whole)
