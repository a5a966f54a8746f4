"""`multilevel_roi_align` pools each box once, and equals a selection from `roi_align` of every level."""

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


def level_index(box):
    """Equation 1 of the paper, counted from the finest level, which has number 2."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    if not area:
        return 0
    return int(np.clip(np.floor(3 + np.log2(np.sqrt(area) / 40)), 2, 4)) - 2


def pool_every_level_then_select(levels, boxes, **options):
    """Reference: `roi_align` of every box from every level, then a selection by level."""
    pooled = [
        jaxpool.roi_align(
            x, boxes, 3, batch_indices=IMAGES, spatial_scale=0.25 / 2**number, **options
        )
        for number, x in enumerate(levels)
    ]
    # `boxes` may be traced
    level_of_box = np.array([level_index(box) for box in BOXES])
    assert set(level_of_box) == {0, 1, 2}
    return jnp.stack(pooled)[level_of_box, np.arange(len(level_of_box))]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("options", [{"aligned": False}, {}, {"samples": 6}])
def test_matches_roi_align_of_every_level(options):
    def ours(levels, boxes):
        return jaxpool.multilevel_roi_align(
            levels, boxes, 3, batch_indices=IMAGES, **SETTINGS, **options
        )

    def reference(levels, boxes):
        return pool_every_level_then_select(levels, boxes, **options)

    @functools.partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILE)
    def both(pool, levels, boxes):
        def loss(*given):
            y = pool(*given)
            return (y**2).sum(), y

        return jax.grad(loss, (0, 1), has_aux=True)(levels, boxes)

    (got, y), (want, expected) = (both(pool, LEVELS, BOXES) for pool in (ours, reference))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_matches_the_oracle():
    image = [x[0] for x in LEVELS]
    want = oracle.multilevel_roi_align(image, BOXES, (2, 3), **SETTINGS)
    got = jaxpool.multilevel_roi_align(image, BOXES, (2, 3), **SETTINGS)
    np.testing.assert_allclose(got, want.y, rtol=1e-5, atol=1e-6)


def test_level_of_boxes_at_size_limits_or_without_area():
    sides = jnp.array([112.0, 223.9, 224.0, 448.0, 2000.0, 1.0, 0.0, -3.0, jnp.nan])
    boxes = jnp.stack([sides * 0, sides * 0, sides, jnp.abs(sides)], 1)
    assert pyramid_level_of_boxes(boxes, (2, 5), 224.0, 4).tolist() == [1, 1, 2, 3, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int32])
def test_dtypes_and_shapes(dtype):
    levels = [jnp.asarray(x * 8).astype(dtype) for x in LEVELS]
    y = jaxpool.multilevel_roi_align(levels, BOXES, 3, batch_indices=IMAGES)
    assert y.dtype == (jnp.float32 if dtype == jnp.int32 else dtype)
    assert y.shape == (9, 3, 3, 3)


def test_vmap_and_jvp():
    def pool(levels, boxes):
        return jaxpool.multilevel_roi_align(levels, boxes, 2, batch_indices=IMAGES, **SETTINGS)

    both = [jnp.stack([x, 2 * x]) for x in LEVELS]
    mapped = jax.jit(jax.vmap(pool, (0, None)))(both, BOXES)
    np.testing.assert_allclose(mapped[1], 2 * pool(LEVELS, BOXES), rtol=1e-5, atol=1e-6)
    tangent = jax.jvp(lambda levels: pool(levels, BOXES), (LEVELS,), (LEVELS,))[1]
    np.testing.assert_allclose(tangent, pool(LEVELS, BOXES), rtol=1e-5, atol=1e-6)


def test_scatter_only_on_cpu_and_empty_boxes():
    def total(levels):
        return jaxpool.multilevel_roi_align(levels, BOXES, 2, batch_indices=IMAGES).sum()

    for platform in ("cpu", "cuda", "tpu"):
        lowered = jax.jit(jax.grad(total)).trace(LEVELS).lower(lowering_platforms=(platform,))
        assert ("scatter" in lowered.as_text()) is (platform == "cpu")
    assert jaxpool.multilevel_roi_align([LEVELS[0][0]], BOXES[:0], 2).shape == (0, 2, 2, 3)


def test_strict_promotion():
    def pool(levels, boxes):
        return jaxpool.multilevel_roi_align(levels, boxes, 2, batch_indices=IMAGES, **SETTINGS)

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        y, pull = jax.vjp(pool, LEVELS, BOXES)
        assert jax.eval_shape(pull, y)[1].shape == BOXES.shape


def test_coarsest_level_first_raises():
    with pytest.raises(ValueError, match=r"`features` must be the finest first.*Pass features"):
        jaxpool.multilevel_roi_align(LEVELS[::-1], BOXES, 2, batch_indices=IMAGES)


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
