"""Means over boxes: reading pixels and matrix products give the same values and derivatives."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import jaxpool
from jaxpool._ops.box_mean import BoxMean
from jaxpool._plan.tuning import TUNING
from tests.support import forms

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 9, 20, 3)).astype(np.float32)
BOXES = np.concatenate([RNG.uniform(-3, 10, (12, 2)), RNG.uniform(-1, 22, (12, 2))], 1)
BOXES[0] = [6.5, 15.25, 2.25, 3.5]  # reversed along both axes
BOXES[1] = [4, 4, 4.3, 4.2]  # many cells per pixel
BOXES = BOXES.astype(np.float32)
IMAGES = np.array([0, 1, 2, -1] * 3, np.int32)  # two do not exist


ODD = X.copy()
ODD[0, 3, 4], ODD[0, 5, 9], ODD[1, 2, 2] = np.inf, -np.inf, np.nan


@pytest.mark.parametrize(
    ("x", "samples", "options"),
    [
        pytest.param(X, 2, {"empty_is_zero": False}, marks=pytest.mark.slow),
        pytest.param(X, 1, {"min_length": 1.0, "offset": 0.0}, marks=pytest.mark.slow),
        pytest.param(X, 4, {}, marks=pytest.mark.slow),
        (ODD, 2, {}),
    ],
)
def test_pixel_reads_equal_matrix_products(x, samples, options):
    op = BoxMean((3, 4), 0.75, samples, levels=(x.shape[:3],), **options)
    given = jnp.asarray(BOXES), jnp.asarray(IMAGES)

    @functools.partial(jax.jit, static_argnums=0)
    def both(platform, x):
        y = op.linear(platform, given, x)
        dy = jnp.sin(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))
        return y, *op.transpose(platform, given, dy)

    for a, b in zip(both("cpu", x), both("portable", x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_box_derivatives_equal_matrix_products(monkeypatch):
    """Derivatives of the value and of gradients, in reverse and forward mode."""

    def loss(x, boxes):
        y = jaxpool.roi_align(x, boxes, (3, 4), batch_indices=IMAGES.clip(0, 1))
        return (y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))).sum()

    def every():
        jax.clear_caches()
        twice = jax.grad(lambda boxes: (jax.grad(loss)(X, boxes) ** 2).sum())(BOXES)
        mixed = jax.grad(lambda x: (jax.grad(loss, 1)(x, BOXES) ** 2).sum())(X)
        forward = jax.jvp(loss, (X, BOXES), (jnp.sin(X), jnp.cos(BOXES)))
        return jax.tree.leaves((twice, mixed, forward, jax.grad(loss, (0, 1))(X, BOXES)))

    found = every()
    monkeypatch.setattr(BoxMean, "by_pixels", lambda self, platform: False)
    for a, b in zip(found, every(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    jax.clear_caches()


@pytest.mark.parametrize("wanted", [[0, 1, 2], [0, 2], [1]])
def test_joined_levels_equal_separate_levels(wanted):
    """Joined and separate levels give the same bits for tangents of all or some levels. Cotangents agree, too."""
    levels = [RNG.standard_normal((2, n, n, 3)).astype(np.float32) for n in (12, 6, 3)]
    op = BoxMean((3, 4), 0.3, 2, levels=tuple(x.shape[:3] for x in levels))
    level = jnp.asarray([0, 1, 2, 1, 0, 2, 7, -1] + [0, 2] * 2)  # two levels do not exist
    given = (jnp.asarray(BOXES), jnp.asarray(IMAGES), level)
    tangents = [x if n in wanted else None for n, x in enumerate(levels)]
    found = []
    for boxes in (0, 1 << 20):
        limits = dataclasses.replace(TUNING["cpu"], max_concatenated_bytes=boxes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(TUNING, "cpu", limits)
            found.append(jax.jit(lambda: op.linear("cpu", given, *tangents))())
    forms.assert_same_bits(found[:1], found[1:], "apart")
    want = jax.jit(lambda: op.linear("portable", given, *tangents))()
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-5)

    @jax.jit
    def sent(dy):
        return [op.transpose(platform, given, dy) for platform in ("cpu", "portable")]

    for dx, expected in zip(*sent(want), strict=True):
        np.testing.assert_allclose(dx, expected, rtol=1e-5, atol=1e-5)
