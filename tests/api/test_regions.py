"""Pools of boxes: boxes that pool nothing, special values, derivatives in the boxes, programs, and pyramid levels."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api.regions import pyramid_level_of_boxes
from jaxpool._plan.tuning import LIMITS
from tests.support.compilation import FAST_COMPILE
from tests.support.later import first_values, later

X = jnp.asarray(np.random.default_rng(1).permutation(60).reshape(6, 5, 2) / 7, jnp.float32)
TWO_BOXES = jnp.array([[0.7, 0.4, 4.9, 4.1], [1.2, -2.3, 7.1, 2.6]])
MANY_BOXES = jnp.concatenate([TWO_BOXES + i / 8 for i in range(4)])


POOLS = {
    "roi_align": jaxpool.roi_align,
    "roi_max_pool": jaxpool.roi_max_pool,
    "multilevel_roi_align": lambda x, *args, **kwargs: jaxpool.multilevel_roi_align(
        [x, x[..., ::2, ::2, :]], *args, spatial_scale=1.0, canonical_size=3.0, **kwargs
    ),
}


# Boxes that pool nothing

INF, NAN, HUGE = np.inf, np.nan, 3e38
NOTHING = [  # a box, and its image of one
    ([9, 9, 12, 12], 0),
    ([0, 0, 3, 3], 1),
    ([0, 0, 3, 3], -1),
    *[(np.where(np.arange(4) == at, NAN, [0, 0, 3, 3]), 0) for at in range(4)],
]
WITHOUT_AREA = [([1, 1, 1, 4], 0), ([4, 1, 2, 3], 0), ([3, 3, 1, 1], 0)]
INFINITE = [
    *[([-INF, -INF, INF, INF], 0), ([-INF, 0, INF, 4], 0), ([0, -INF, 4, INF], 0)],
    *[([-HUGE, -HUGE, HUGE, HUGE], 0), ([-HUGE, 0, HUGE, 4], 0), ([0, -HUGE, 4, HUGE], 0)],
]


@pytest.mark.parametrize(
    ("name", "options", "cases"),
    [
        ("roi_max_pool", {}, NOTHING),
        ("roi_align", {}, NOTHING + WITHOUT_AREA + INFINITE),
        later("roi_align", {"samples": 9}, NOTHING + WITHOUT_AREA + INFINITE),  # matrix products
        later("roi_align", {"kind": "max"}, NOTHING + WITHOUT_AREA + INFINITE),
        later("roi_align", {"spatial_scale": 2.0}, NOTHING + WITHOUT_AREA + INFINITE),
        later("roi_align", {"aligned": False}, NOTHING + INFINITE),
        later("multilevel_roi_align", {}, NOTHING + WITHOUT_AREA + INFINITE),
    ],
)
def test_boxes_that_pool_nothing_give_zeros(name, options, cases):
    """Infinite boxes, as from an overflowing exponential, send no NaN to the image."""
    boxes, images = (np.array(list(each)) for each in zip(*cases, strict=True))

    @jax.jit
    def derivatives(x, boxes, images):
        def pool(x, boxes):
            return POOLS[name](x[None], boxes, 2, batch_indices=images, **options)

        y, back = jax.vjp(pool, x, boxes)
        tangent = jax.jvp(lambda x: pool(x, boxes), (x,), (x,))[1]
        return y, *back(jnp.ones_like(y)), tangent

    y, dx, dboxes, tangent = derivatives(X - 9, boxes.astype(np.float32), images)
    np.testing.assert_array_equal(y, np.zeros((len(cases), 2, 2, 2)))
    np.testing.assert_array_equal(tangent, np.zeros(y.shape))
    np.testing.assert_array_equal(dx, np.zeros(X.shape))
    np.testing.assert_array_equal(dboxes[: len(NOTHING)], 0)
    assert np.isfinite(dboxes).all()


def test_no_boxes_and_no_images():
    none, images = np.zeros((0, 4), np.float32), np.zeros(2, np.int32)
    y = jaxpool.roi_align(X, none, (2, 3), kind="max", samples=3)
    assert y.shape == (0, 2, 3, 2)
    assert all(pool(X, none, 2).shape == (0, 2, 2, 2) for pool in POOLS.values())
    for name in ("roi_align", "roi_max_pool"):
        pool = functools.partial(POOLS[name], jnp.ones((0, 4, 4, 3)), TWO_BOXES, 2)
        y = jax.jit(lambda images, pool=pool: pool(batch_indices=images))(images)
        np.testing.assert_array_equal(y, np.zeros((2, 2, 2, 3)))


# Values


@pytest.mark.parametrize("samples", [1, 5])
def test_nan_and_infinities_affect_only_neighboring_cells(samples):
    """A mean is linear, so its derivative does not depend on x. Matrix products evaluate more than 4 samples."""
    x = np.array(X)
    x[0, 0, 0], x[5, 4, 1], x[0, 4, 1] = NAN, -INF, INF
    boxes = jnp.array([[0.0, 0.0, 6.0, 5.0]])

    def mean(x):
        return jaxpool.roi_align(x, boxes, 3, samples=samples)[0]

    (y, back), (clean, clean_back) = (jax.vjp(mean, each) for each in (jnp.asarray(x), X))
    np.testing.assert_array_equal([y[0, 0, 0], y[2, 2, 1], y[0, 2, 1]], [NAN, -INF, INF])
    finite = np.isfinite(y)
    assert finite.sum() == y.size - 3
    np.testing.assert_array_equal(y[finite], clean[finite])
    np.testing.assert_array_equal(back(jnp.ones_like(y))[0], clean_back(jnp.ones_like(y))[0])
    np.testing.assert_array_equal(jax.jvp(mean, (x,), (X,))[1], clean)
    of_boxes = jax.grad(lambda boxes: jaxpool.roi_align(x, boxes, 3)[0, 1, 1].sum())(boxes)
    assert np.isfinite(of_boxes).all()
    np.testing.assert_array_equal(jaxpool.roi_max_pool(x, boxes, 1)[0, 0, 0], [NAN, INF])


@pytest.mark.parametrize(("dtype", "batch"), [("int8", 200), later("uint8", 300)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("roi_align", {}),
        pytest.param("roi_align", {"samples": 5}, marks=pytest.mark.slow),
        ("roi_max_pool", {}),
    ],
)
def test_batch_indices_with_dtype_narrower_than_batch(name, options, dtype, batch):
    x, images = jnp.arange(1.0, batch + 1), np.array([0, 50, 100], dtype)

    def pool(x):
        x = jnp.broadcast_to(x[:, None, None, None], (batch, 4, 4, 1))
        boxes = jnp.array([[0, 0, 3, 3.0]] * 3)
        return getattr(jaxpool, name)(x, boxes, 1, batch_indices=images, **options).ravel()

    y, back = jax.vjp(pool, x)
    np.testing.assert_allclose(y, [1, 51, 101], rtol=1e-6)
    want = np.zeros(batch)
    want[images] = 1
    np.testing.assert_allclose(back(jnp.ones(3))[0], want, rtol=1e-6)


# Derivatives in the boxes


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_box_gradients_match_finite_differences(kind):
    with jax.enable_x64(True):
        boxes = TWO_BOXES.astype(jnp.float64)

        def loss(boxes):
            y = jaxpool.roi_align(X.astype(jnp.float64), boxes, 2, kind=kind)
            return (jnp.sin(y) * jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)).sum()

        want = [
            (loss(boxes.at[at].add(1e-6)) - loss(boxes.at[at].add(-1e-6))) / 2e-6
            for at in np.ndindex(*boxes.shape)
        ]
        got = jax.jit(jax.grad(loss))(boxes)
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("box", "options", "want"),
    [
        ([0, 0, 1, 1], {}, [0.5, 0, 0.5, 0]),  # the point is the centre of the first pixel
        ([3, 0, 4, 1], {}, [0, 0, 0, 0]),  # the point is the centre of the last pixel
        ([3, 3, 4, 4], {}, [0, 0, 0, 0]),
        ([1, 1, 2, 2], {"aligned": False}, [0.5, 0, 0.5, 0]),  # the smallest box length
    ],
)
def test_box_gradients_at_kinks_are_right_derivatives(box, options, want):
    x = jnp.broadcast_to(jnp.arange(1.0, 5)[:, None, None], (4, 4, 1))
    boxes = jnp.array([box], jnp.float32)
    dboxes = jax.grad(lambda boxes: jaxpool.roi_align(x, boxes, 1, samples=1, **options).sum())
    np.testing.assert_allclose(dboxes(boxes)[0], want, atol=1e-6)


# Programs


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3])
def test_max_kind_in_chunks_of_boxes(at_once, monkeypatch):
    """Equal up to rounding: the group size changes the order of the sums."""
    x, images = jnp.stack([X, -X]), jnp.array([1, 0, 0, 1] * 2)

    def pool(x, boxes):
        return jaxpool.roi_align(x, boxes, 2, batch_indices=images, samples=5, kind="max")

    def all_derivatives(x, boxes):
        y, back = jax.vjp(pool, x, boxes)
        second = jax.grad(lambda boxes: (jax.grad(lambda x: (pool(x, boxes) ** 2).sum())(x)).sum())
        return y, back(jnp.cos(y)), jax.jvp(pool, (x, boxes), (x, boxes))[1], second(boxes)

    want = jax.jit(all_derivatives)(x, MANY_BOXES)
    limits = dataclasses.replace(LIMITS, max_points_in_memory=at_once * 100 * X.shape[-1])
    monkeypatch.setattr("jaxpool._plan.boxes.LIMITS", limits)
    got = jax.jit(lambda *xs: all_derivatives(*xs))(x, MANY_BOXES)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), got, want)


@pytest.mark.parametrize("name", first_values(1, POOLS))
def test_scatters_and_any_box_order(name):
    """The gradient does not depend on how boxes of several images are ordered.

    A scatter on a GPU may add in any order. It adds only infinities and NaN of RoI averages.
    """
    x, images = jnp.stack([X, -X]), jnp.array([1, 0] * 4)
    pool = POOLS[name]

    def pullback(x, boxes, **options):
        y, back = jax.vjp(lambda x: pool(x, boxes, 2, **options), x)
        return back(y)[0]

    together = jax.jit(functools.partial(pullback, boxes=MANY_BOXES, batch_indices=images))
    for platform in ("cpu", "cuda", "tpu"):
        lowered = together.trace(x).lower(lowering_platforms=(platform,))
        has_scatter = platform == "cpu" or (platform == "cuda" and name != "roi_max_pool")
        assert ("scatter" in lowered.as_text()) is has_scatter
    apart = [pullback(x[0], MANY_BOXES[1::2]), pullback(x[1], MANY_BOXES[::2])]
    np.testing.assert_allclose(together(x), apart, rtol=1e-4, atol=1e-4)


def test_max_kind_with_symbolic_number_of_channels():
    """Maxima of many samples are computed in chunks of boxes, but only if the number of channels is known."""

    def pool(x):
        return jaxpool.roi_align(x, TWO_BOXES, 2, kind="max", samples=20)

    (channels,) = jax.export.symbolic_shape("c")
    x = jax.ShapeDtypeStruct((*X.shape[:2], channels), X.dtype)
    exported = jax.export.export(jax.jit(pool))(x)
    np.testing.assert_array_equal(exported.call(X), pool(X))


# Levels of a pyramid

SIZES = (24, 12, 6)
RNG = np.random.default_rng(0)
LEVELS = [RNG.normal(size=(2, size, size, 3)).astype(np.float32) for size in SIZES]
CORNERS = RNG.uniform(0, 60, (9, 2))
SIDES = np.float32(
    [[4, 9], [8, 8], [16, 30], [20, 20], [30, 50], [50, 40], [70, 44], [99, 80], [0, 9]]
)
LEVEL_BOXES = np.concatenate([CORNERS, CORNERS + SIDES], 1).astype(np.float32)
LEVEL_IMAGES = np.arange(9) % 2
LEVEL_SETTINGS = {"canonical_size": 40.0, "canonical_level": 3}


@pytest.mark.parametrize(
    ("options", "concatenates"),
    [({"aligned": False}, True), ({"aligned": False}, False), ({}, True), ({"samples": 6}, True)],
)
def test_gradients_match_roi_align_of_every_level(options, concatenates, monkeypatch):
    """Gradients of the levels and of the boxes; the reference pools every box from every level and then selects.

    Large levels are not concatenated: a loop reads one box after another.
    """

    def choose(platform, sizes, itemsize, num_boxes):
        assert (itemsize, num_boxes) == (4, len(LEVEL_BOXES))
        return concatenates

    monkeypatch.setattr("jaxpool._plan.boxes.concatenates_levels", choose)
    number = pyramid_level_of_boxes(jnp.asarray(LEVEL_BOXES), (2, 4), 40.0, 3)
    assert set(np.asarray(number)) == {0, 1, 2}

    def ours(levels, boxes):
        return jaxpool.multilevel_roi_align(
            levels, boxes, 3, batch_indices=LEVEL_IMAGES, **LEVEL_SETTINGS, **options
        )

    def reference(levels, boxes):
        scales = [0.25, 0.125, 0.0625]
        pooled = [
            jaxpool.roi_align(
                x, boxes, 3, batch_indices=LEVEL_IMAGES, spatial_scale=scale, **options
            )
            for x, scale in zip(levels, scales, strict=True)
        ]
        return jnp.stack(pooled)[number, np.arange(len(LEVEL_BOXES))]

    @functools.partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILE)
    def both(pool, levels, boxes):
        y, back = jax.vjp(pool, levels, boxes)
        return y, back(2 * y)

    got, want = (jax.tree.leaves(both(pool, LEVELS, LEVEL_BOXES)) for pool in (ours, reference))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_level_of_boxes_at_size_limits_or_without_area():
    sides = jnp.array([112.0, 223.9, 224.0, 448.0, 2000.0, 1.0, 0.0, -3.0, jnp.nan])
    boxes = jnp.stack([sides * 0, sides * 0, sides, jnp.abs(sides)], 1)
    assert pyramid_level_of_boxes(boxes, (2, 5), 224.0, 4).tolist() == [1, 1, 2, 3, 3, 0, 0, 0, 0]


def test_boxes_with_explicit_sharding():
    mesh = jax.make_mesh((1,), ("k",), axis_types=(jax.sharding.AxisType.Explicit,))
    pool = functools.partial(jaxpool.multilevel_roi_align, output_shape=2, **LEVEL_SETTINGS)
    with jax.set_mesh(mesh):
        boxes = jax.device_put(LEVEL_BOXES, jax.NamedSharding(mesh, jax.P("k")))
        y = jax.jit(pool)(LEVELS, boxes, batch_indices=jnp.asarray(LEVEL_IMAGES))
    np.testing.assert_array_equal(y, pool(LEVELS, LEVEL_BOXES, batch_indices=LEVEL_IMAGES))
