"""Pools of boxes sum cotangents in a fixed order or by one product, do not copy images, and round lengths once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels import box_mean
from jaxpool._kernels.box_mean import (
    WeightedPixels,
    multiply_weighted_cotangents,
    scatter_weighted_cotangents,
    weighted_sums_by_gather,
)
from jaxpool._ops.box_max import BoxMax
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
    factors = np.asarray(dy)[:, :, :, None, None], weight[..., None]
    terms = np.zeros((*at.shape, dy.shape[-1]), np.float32)
    np.multiply(*factors, out=terms, where=factors[1] != 0)
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
    np.testing.assert_array_equal(dx, numpy_cotangent(dy, of, count))


def test_product_adds_infinite_cotangents_to_their_pixels_only():
    """In a product with weights, an infinity or NaN of weight 0 would be NaN."""
    of, boxes = draw_pixels(9, 3, 4, 12, 14), 9
    dy = RNG.standard_normal((boxes, 3, 3, 5)).astype(np.float32)
    for value in (np.inf, -np.inf, np.nan):
        dy[RNG.random(dy.shape) < 0.02] = value
    levels = [(2, 6, 14), (3, 4, 14)]
    which = jnp.asarray(RNG.integers(0, 3, boxes), np.int32)  # 2: in no level
    dxs = jax.jit(multiply_weighted_cotangents, static_argnums=3)(
        jnp.asarray(dy), which, of, tuple(levels)
    )
    for level, dx in enumerate(dxs):
        here = np.asarray(which) == level
        with np.errstate(invalid="ignore"):
            want = numpy_cotangent(dy[here], jax.tree.map(lambda a, at=here: a[at], of), 12 * 14)
        assert 0 < np.isfinite(want).sum() < want.size
        np.testing.assert_allclose(dx, want, rtol=1e-5, atol=1e-5)


def test_cotangents_of_box_maxima_are_summed_in_order():
    """An array large enough that XLA for CPU divides the scatter among threads."""
    x = jnp.asarray(RNG.standard_normal((2, 9, 11, 64)), np.float32)
    op = BoxMax((7, 7), 1.0, "first", x.shape[:3])
    corners = np.concatenate([RNG.uniform(-4, 8, (72, 2)), RNG.uniform(-2, 14, (72, 2))], 1)
    images = np.arange(72) % 2
    given = jnp.asarray(corners, np.float32), jnp.asarray(images, np.int32)
    _, kept = op.primal("cpu", x, *given)
    dy = jnp.asarray(RNG.standard_normal((72, 7, 7, 64)), np.float32)
    (dx,) = jax.jit(lambda dy: op.transpose("cpu", kept, dy)).lower(dy).compile(DEFAULT_FUSION)(dy)
    want, where = np.zeros((2 * 99 + 1, 64), np.float32), np.asarray(kept[1]).astype(int)
    rows = np.where(where < 99, where + 99 * images[:, None, None, None], 2 * 99)
    np.add.at(want, (rows, np.broadcast_to(np.arange(64), rows.shape)), np.asarray(dy))
    np.testing.assert_array_equal(dx.reshape(-1, 64), want[:-1])


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
