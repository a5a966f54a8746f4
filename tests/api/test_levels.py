"""`multilevel_roi_align`: gradients, levels of boxes, shardings and images that do not exist."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api.regions import pyramid_level_of_boxes
from jaxpool.testing import oracle
from tests.support.compilation import FAST_COMPILE

SIZES = (24, 12, 6)
RNG = np.random.default_rng(0)
LEVELS = [RNG.normal(size=(2, size, size, 3)).astype(np.float32) for size in SIZES]
CORNERS = RNG.uniform(0, 60, (9, 2))
SIDES = np.float32(
    [[4, 9], [8, 8], [16, 30], [20, 20], [30, 50], [50, 40], [70, 44], [99, 80], [0, 9]]
)
BOXES = np.concatenate([CORNERS, CORNERS + SIDES], 1).astype(np.float32)
IMAGES = np.arange(9) % 2
SETTINGS = {"canonical_size": 40.0, "canonical_level": 3}


@pytest.mark.parametrize("options", [{"aligned": False}, {}, {"samples": 6}])
def test_gradients_match_roi_align_of_every_level(options):
    """Gradients of the levels and of the boxes; the reference pools every box from every level and then selects."""
    number = pyramid_level_of_boxes(jnp.asarray(BOXES), (2, 4), 40.0, 3)
    assert set(np.asarray(number)) == {0, 1, 2}

    def ours(levels, boxes):
        return jaxpool.multilevel_roi_align(
            levels, boxes, 3, batch_indices=IMAGES, **SETTINGS, **options
        )

    def reference(levels, boxes):
        scales = [0.25, 0.125, 0.0625]
        pooled = [
            jaxpool.roi_align(x, boxes, 3, batch_indices=IMAGES, spatial_scale=scale, **options)
            for x, scale in zip(levels, scales, strict=True)
        ]
        return jnp.stack(pooled)[number, np.arange(len(BOXES))]

    @functools.partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILE)
    def both(pool, levels, boxes):
        y, back = jax.vjp(pool, levels, boxes)
        return y, back(2 * y)

    got, want = (jax.tree.leaves(both(pool, LEVELS, BOXES)) for pool in (ours, reference))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_matches_the_oracle():
    """One of the boxes has no area."""
    image = [x[0] for x in LEVELS]
    want = oracle.multilevel_roi_align(image, BOXES, (2, 3), **SETTINGS)
    got = jaxpool.multilevel_roi_align(image, BOXES, (2, 3), **SETTINGS)
    np.testing.assert_allclose(got, want.y, rtol=1e-5, atol=1e-6)


def test_level_of_boxes_at_size_limits_or_without_area():
    sides = jnp.array([112.0, 223.9, 224.0, 448.0, 2000.0, 1.0, 0.0, -3.0, jnp.nan])
    boxes = jnp.stack([sides * 0, sides * 0, sides, jnp.abs(sides)], 1)
    assert pyramid_level_of_boxes(boxes, (2, 5), 224.0, 4).tolist() == [1, 1, 2, 3, 3, 0, 0, 0, 0]


def test_scatter_only_on_cpu_and_empty_boxes():
    def total(levels):
        return jaxpool.multilevel_roi_align(levels, BOXES, 2, batch_indices=IMAGES).sum()

    for platform in ("cpu", "cuda", "tpu"):
        lowered = jax.jit(jax.grad(total)).trace(LEVELS).lower(lowering_platforms=(platform,))
        assert ("scatter" in lowered.as_text()) is (platform == "cpu")
    assert jaxpool.multilevel_roi_align([LEVELS[0][0]], BOXES[:0], 2).shape == (0, 2, 2, 3)


def test_boxes_with_explicit_sharding():
    mesh = jax.make_mesh((1,), ("k",), axis_types=(jax.sharding.AxisType.Explicit,))
    pool = functools.partial(jaxpool.multilevel_roi_align, output_shape=2, **SETTINGS)
    with jax.set_mesh(mesh):
        boxes = jax.device_put(BOXES, jax.NamedSharding(mesh, jax.P("k")))
        y = jax.jit(pool)(LEVELS, boxes, batch_indices=jnp.asarray(IMAGES))
    np.testing.assert_array_equal(y, pool(LEVELS, BOXES, batch_indices=IMAGES))


@pytest.mark.parametrize("image", [-1, 2])
def test_invalid_batch_index_gives_zeros(image):
    """Under jit the image index is not known at trace time."""

    @jax.jit
    def pool(levels, image):
        images = jnp.full(len(BOXES), image)
        return jaxpool.multilevel_roi_align(levels, BOXES, 2, batch_indices=images, **SETTINGS)

    levels = [jnp.ones((2, 64 >> k, 64 >> k, 1)) for k in range(3)]
    assert pool(levels, 1).any()
    assert not pool(levels, image).any()
    dx = jax.jit(jax.grad(lambda levels: pool(levels, image).sum()))(levels)
    assert not any(each.any() for each in dx)
