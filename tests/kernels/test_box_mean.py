"""Weighted pixels of boxes: reads from one or several arrays, and cotangents summed in a fixed order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels import box_mean
from jaxpool._kernels.box_mean import (
    WeightedPixels,
    scatter_weighted_cotangents,
    weighted_sums_by_gather,
)
from tests.support import forms
from tests.support.compilation import DEFAULT_FUSION

RNG = np.random.default_rng(0)


def draw_pixels(boxes, cells, pixels, height, width):
    """Draw pixels of boxes in a flattened image, with weights, some of them zero."""
    shapes = [(boxes, cells, pixels)] * 2
    rows, columns = (RNG.integers(0, n, s) for n, s in zip((height, width), shapes, strict=True))
    weights = [RNG.random(s) * (RNG.random(s) < 0.8) for s in shapes]
    down, across = (
        (at.astype(np.int32), w.astype(np.float32))
        for at, w in zip((rows * width, columns), weights, strict=True)
    )
    return jax.tree.map(jnp.asarray, WeightedPixels(down, across))


def numpy_cotangent(dy, of, count):
    """Return the cotangent of each pixel, summed term by term in float32."""
    at, weight = (np.asarray(a) for a in of.all_pixels())
    terms = np.asarray(dy)[:, :, :, None, None] * weight[..., None]
    dx = np.zeros((count, dy.shape[-1]), np.float32)
    np.add.at(dx, at.ravel(), terms.reshape(-1, dy.shape[-1]))
    return dx


@pytest.mark.parametrize(
    ("boxes", "cells", "pixels", "height", "width", "channels", "parts"),
    [(5, 3, 2, 4, 6, 3, 1), (5, 4, 2, 4, 6, 3, 2), (9, 7, 4, 5, 7, 256, 1)],
    ids=["few", "in parts", "of which XLA divides the scatter among threads"],
)
def test_cotangents_are_summed_in_order(boxes, cells, pixels, height, width, channels, parts):
    """XLA's scatter for CPU writes in order, so that sums equal those of a sequential loop."""
    of = draw_pixels(boxes, cells, pixels, height, width)
    dy = jnp.asarray(RNG.standard_normal((boxes, cells, cells, channels)), jnp.float32)
    which = jnp.zeros(boxes, np.int32)
    count = height * width
    run = (
        jax.jit(lambda dy, of: scatter_weighted_cotangents(dy, which, of, [count], parts))
        .lower(dy, of)
        .compile(DEFAULT_FUSION)
    )
    (dx,) = run(dy, of)
    forms.assert_same_bits([dx], [numpy_cotangent(dy, of, count)], "in order")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_boxes_of_several_arrays(dtype):
    of, which = draw_pixels(8, 3, 4, 4, 6), jnp.asarray([0, 1, 2, 1, 0, 2, 2, 1])
    flats = [jnp.asarray(RNG.standard_normal((24, 5)), dtype) for _ in range(3)]
    want = jnp.stack(
        [
            weighted_sums_by_gather([flats[n]], which, of, concatenates_arrays=False)[k]
            for k, n in enumerate(which)
        ]
    )
    for joined in (False, True):
        y = jax.jit(
            lambda flats, j=joined: weighted_sums_by_gather(flats, which, of, concatenates_arrays=j)
        )(flats)
        forms.assert_same_bits([y], [want], f"{joined=}")
    dy = jnp.sin(jnp.arange(want.size, dtype=jnp.float32)).reshape(want.shape)
    dxs = jax.jit(lambda dy: scatter_weighted_cotangents(dy, which, of, [24, 24, 24], 3))(dy)
    for n, dx in enumerate(dxs):
        alone = jax.tree.map(lambda a, n=n: a[which == n], of)
        forms.assert_same_bits([dx], [numpy_cotangent(dy[which == n], alone, 24)], f"to {n}")


def test_zero_weight_pixel_is_ignored():
    of = WeightedPixels(*[(jnp.zeros((1, 1, 2), np.int32), jnp.asarray([[[1.0, 0.0]]]))] * 2)
    of = of._replace(rows=(jnp.asarray([[[0, 1]]], np.int32), of.rows[1]))
    flat, which = jnp.asarray([[2.0], [np.nan]]), jnp.zeros(1, np.int32)
    assert weighted_sums_by_gather([flat], which, of, concatenates_arrays=False).ravel() == 2
    dx = scatter_weighted_cotangents(jnp.full((1, 1, 1, 1), np.inf), which, of, [2], 1)[0]
    np.testing.assert_array_equal(dx, [[np.inf], [0]])


@pytest.mark.parametrize("apart", [False, True])
def test_16_bit_image_is_not_copied(apart):
    """XLA for CPU would copy an image that it gathers from 16 times."""
    of = draw_pixels(8, 3, 4, 50, 60)
    flat = jax.ShapeDtypeStruct((3000, 256), jnp.bfloat16)
    which = jax.ShapeDtypeStruct((8,), np.int32)

    def way(flat, which):
        return weighted_sums_by_gather(
            [flat, flat[:2]] if apart else [flat], which, of, concatenates_arrays=False
        )

    held = (
        jax.jit(way).lower(flat, which).compile(DEFAULT_FUSION).memory_analysis().temp_size_in_bytes
    )
    assert held < flat.size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cell_length_is_correctly_rounded(dtype):
    """A product with the reciprocal of the number of cells, alone, is wrong in the last bit of many lengths."""
    lengths = np.concatenate([np.arange(500), 10.0 ** np.linspace(-9, 9, 500), [np.inf, np.nan]])
    lengths = np.concatenate([lengths, -lengths]).astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        for num_cells in (1, 3, 7, 14, 49, 1000, 2047):
            divided = box_mean._divide_correctly_rounded(jnp.asarray(lengths), num_cells)
            np.testing.assert_array_equal(divided, lengths / dtype(num_cells))
