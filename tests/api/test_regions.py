"""`roi_align` and `roi_max_pool` against loops, at image borders, and their messages."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._plan.tuning import LIMITS
from jaxpool.testing import assert_close, oracle
from tests.support.later import first_values, later

SHAPE, CELLS, BOXES = (2, 6, 5, 2), (2, 3), 7
VARIANTS = [
    ("roi_align", {}),
    ("roi_align", {"aligned": False, "samples": 1, "spatial_scale": 0.5}),
    ("roi_align", {"kind": "max", "samples": 2, "spatial_scale": 1.25}),
    ("roi_max_pool", {"ties": "first"}),
    ("roi_max_pool", {"ties": "last", "spatial_scale": 0.5}),
    ("roi_max_pool", {"ties": "split", "spatial_scale": 1.25}),
]


@functools.lru_cache
def value_and_cotangent_program(name, options):
    def run(x, boxes, images, dy):
        function = getattr(jaxpool, name)
        kwargs = {"batch_indices": images, **dict(options)}
        y, back = jax.vjp(lambda x: function(x, boxes, CELLS, **kwargs), x)
        return y, back(dy)[0]

    return jax.jit(run)


def check_random_case(name, options, seed):
    """Compare one random case with the oracle: boxes inside, across and outside the image, some without area."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(SHAPE).astype(np.float32)
    if seed % 2 and options.get("kind") != "max":
        # Not for kind="max": rounding would decide between interpolated points that tie.
        x = np.round(x)
    boxes = rng.uniform(-3, 9, (BOXES, 4)).astype(np.float32)
    boxes[: BOXES // 2] = np.sort(boxes[: BOXES // 2].reshape(-1, 2, 2), 1).reshape(-1, 4)
    boxes[-1, 2] = boxes[-1, 0]
    if seed % 3 == 0 and name == "roi_max_pool":
        # For `roi_align`, rounding would decide whether a point on the border is inside.
        boxes = np.round(boxes * 2) / 2
    images = rng.integers(0, SHAPE[0], BOXES).astype(np.int32)
    answer = getattr(oracle, name)(x, boxes, CELLS, batch_indices=images, **options)
    dy = rng.standard_normal(answer.y.shape).astype(np.float32)
    y, dx = value_and_cotangent_program(name, tuple(options.items()))(x, boxes, images, dy)
    # `roi_align` rounds coordinates and interpolated values in float32.
    bound = 2e-5 if name == "roi_align" else 0
    assert_close(y, answer.y, bound, f"value, seed {seed}")
    assert_close(dx, answer.cotangent(dy), 5e-5, f"cotangent, seed {seed}")


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_random_cases(name, options):
    for seed in range(8):
        check_random_case(name, options, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_many_random_cases(name, options):
    for seed in range(100, 220):
        check_random_case(name, options, seed)


POOLS = {
    "roi_align": jaxpool.roi_align,
    "roi_max_pool": jaxpool.roi_max_pool,
    "multilevel_roi_align": lambda x, *args, **kwargs: jaxpool.multilevel_roi_align(
        [x, x[..., ::2, ::2, :]], *args, spatial_scale=1.0, canonical_size=3.0, **kwargs
    ),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.slow
@pytest.mark.ci
def test_boxes_per_image_without_batch_indices(name):
    rng = np.random.default_rng(5)
    x = jnp.asarray(rng.standard_normal((3, 6, 5, 2)), np.float32)
    boxes = jnp.asarray(rng.uniform(-1, 7, (3, 4, 4)), np.float32)
    images = jnp.broadcast_to(jnp.arange(3)[:, None], (3, 4))
    pool = POOLS[name]

    def loss(x, boxes, **options):
        return (pool(x, boxes, (2, 3), **options) ** 2).sum()

    y = pool(x, boxes, (2, 3))
    assert y.shape == (3, 4, 2, 3, 2)
    np.testing.assert_array_equal(y, jax.vmap(lambda x, b: pool(x, b, (2, 3)))(x, boxes))
    np.testing.assert_array_equal(y, pool(x, boxes, (2, 3), batch_indices=images))
    np.testing.assert_array_equal(y, jax.jit(lambda x, b: pool(x, b, (2, 3)))(x, boxes))
    for got, want in zip(
        jax.grad(loss, (0, 1))(x, boxes),
        jax.grad(loss, (0, 1))(x, boxes, batch_indices=images),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", POOLS)
def test_batch_indices_override_the_batch_axis_of_boxes(name):
    x = jnp.stack([jnp.full((6, 5, 1), 1.0), jnp.full((6, 5, 1), 2.0)])
    boxes = jnp.broadcast_to(jnp.array([1.0, 1.0, 3.0, 3.0]), (2, 1, 4))
    y = POOLS[name](x, boxes, 1)
    np.testing.assert_array_equal(y.ravel(), [1, 2])
    y = POOLS[name](x, boxes, 1, batch_indices=jnp.array([[1], [0]]))
    np.testing.assert_array_equal(y.ravel(), [2, 1])


REVERSED_BOXES = jnp.array([[3.0, 3.0, 1.0, 1.0], [1.0, 3.0, 3.0, 1.0], [3.0, 1.0, 1.0, 3.0]])


def test_boxes_with_reversed_corners():
    """The output is 0, but `roi_align` with aligned=False and `roi_max_pool` pool a pixel from (y0, x0)."""
    x = jnp.arange(1.0, 31).reshape(6, 5, 1)
    for name in ("roi_align", "multilevel_roi_align"):
        assert not POOLS[name](x, REVERSED_BOXES, 2).any()
    start = jnp.concatenate(
        [REVERSED_BOXES[:, :2], jnp.maximum(REVERSED_BOXES[:, 2:], REVERSED_BOXES[:, :2] + 1)], 1
    )
    np.testing.assert_array_equal(
        jaxpool.roi_align(x, REVERSED_BOXES, 2, aligned=False),
        jaxpool.roi_align(x, start, 2, aligned=False),
    )
    start = jnp.concatenate(
        [REVERSED_BOXES[:, :2], jnp.maximum(REVERSED_BOXES[:, 2:], REVERSED_BOXES[:, :2])], 1
    )
    np.testing.assert_array_equal(
        jaxpool.roi_max_pool(x, REVERSED_BOXES, 2), jaxpool.roi_max_pool(x, start, 2)
    )


def test_spatial_scale_above_one():
    x = jnp.arange(1.0, 17).reshape(4, 4, 1)
    inside, outside = jnp.array([[0.0, 0.0, 2.0, 2.0]]), jnp.array([[4.0, 4.0, 6.0, 6.0]])
    for pool in (jaxpool.roi_align, jaxpool.roi_max_pool):
        np.testing.assert_array_equal(pool(x, inside, 2, spatial_scale=2), pool(x, 2 * inside, 2))
        assert not pool(x, outside, 2, spatial_scale=2).any()


X = jnp.asarray(np.random.default_rng(1).permutation(60).reshape(6, 5, 2) / 7, jnp.float32)
TWO_BOXES = jnp.array([[0.7, 0.4, 4.9, 4.1], [1.2, -2.3, 7.1, 2.6]])


@pytest.mark.slow
@pytest.mark.ci
def test_gradient_at_pixel_index_256():
    """Index 256 does not fit in a byte."""
    x = jnp.zeros((1, 257, 1)).at[0, -1].set(1.0)
    whole = jnp.array([[0.0, 0.0, 0.0, 256.0]])
    dx = jax.grad(lambda x: jaxpool.roi_max_pool(x, whole, (1, 1)).sum())(x)
    np.testing.assert_array_equal(dx, x)


@pytest.mark.parametrize("dtype", first_values(1, ["float16", "float64", "int32"]))
@pytest.mark.parametrize(("name", "options"), [VARIANTS[0], VARIANTS[3]])
def test_strict_promotion(name, options, dtype):
    """Value and gradient run under strict promotion of dtypes and ranks."""

    def loss(x):
        return getattr(jaxpool, name)(x, TWO_BOXES.astype(dtype), CELLS, **options).sum()

    strict = jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise")
    with jax.enable_x64(dtype == "float64"), strict[0], strict[1]:
        assert jax.jit(jax.grad(loss)).lower(X).out_info.shape == X.shape


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


def test_nan_and_infinities_affect_only_neighboring_cells():
    x = np.array(X)
    x[0, 0, 0], x[5, 4, 1], x[0, 4, 1] = np.nan, -np.inf, np.inf
    boxes = jnp.array([[0.0, 0.0, 6.0, 5.0]])
    mean = jax.jit(lambda x: jaxpool.roi_align(x, boxes, 3, samples=1)[0])
    y, clean = np.asarray(mean(x)), np.asarray(mean(X))
    assert np.isnan(y[0, 0, 0])
    assert y[2, 2, 1] == -np.inf
    assert y[0, 2, 1] == np.inf
    finite = np.isfinite(y)
    assert finite.sum() == y.size - 3
    np.testing.assert_array_equal(y[finite], clean[finite])
    dx, dboxes = jax.jit(
        jax.grad(lambda x, boxes: jnp.nansum(jaxpool.roi_align(x, boxes, 3)[..., 2, 0]), (0, 1))
    )(x, boxes)
    assert np.isfinite(dx).all()
    assert np.isfinite(dboxes).all()
    y = jaxpool.roi_max_pool(x, boxes, 1)[0, 0, 0]
    assert np.isnan(y[0])
    assert y[1] == np.inf


def test_cotangents_do_not_depend_on_nonfinite_values():
    """A mean is linear, so its derivative does not depend on x."""
    x = np.array(X)
    x[0, 0, 0], x[5, 4, 1], x[0, 4, 1] = np.nan, -np.inf, np.inf

    @jax.jit
    def derivatives(x):
        y, pullback = jax.vjp(lambda x: jaxpool.roi_align(x, TWO_BOXES, 3), x)
        _, tangent = jax.jvp(lambda x: jaxpool.roi_align(x, TWO_BOXES, 3), (x,), (X,))
        return y, pullback(jnp.ones_like(y))[0], tangent

    (_, dx, tangent), (y, want, _) = derivatives(x), derivatives(X)
    np.testing.assert_array_equal(dx, want)
    np.testing.assert_array_equal(tangent, y)


def test_invalid_boxes_give_zeros():
    """Boxes without area, outside the image, or of a missing image give 0 and no gradient."""
    corners = [[1, 1, 1, 4], [4, 1, 2, 3], [9, 9, 12, 12], [0, 0, 3, 3], [0, 0, 3, 3]]
    boxes, images = np.array(corners, np.float32), np.array([0, 0, 0, 1, -1], np.int32)
    for name in ("roi_align", "roi_max_pool"):
        function = getattr(jaxpool, name)

        @jax.jit
        def pool(x, images, function=function):
            return function(x[None] - 9, boxes, 2, batch_indices=images)

        y, back = jax.vjp(lambda x, pool=pool: pool(x, images), X)
        zero = [2, 3, 4] if name == "roi_max_pool" else [0, 1, 2, 3, 4]
        assert not np.asarray(y)[zero].any()
        dy = np.zeros_like(y)
        dy[zero] = 1
        (dx,) = back(dy)
        assert not np.asarray(dx).any()
    assert jaxpool.roi_align(X, boxes[:0], 2).shape == (0, 2, 2, 2)
    assert jaxpool.roi_max_pool(X[..., :0], boxes, 2).shape == (5, 2, 2, 0)


def test_dtypes_and_shapes():
    boxes = np.broadcast_to(TWO_BOXES, (3, 2, 4))
    for name, cells in (("roi_align", (2, 2)), ("roi_max_pool", (1, 2))):
        pool = functools.partial(getattr(jaxpool, name), output_shape=cells)
        assert jax.eval_shape(pool, X, boxes).shape == (3, 2, *cells, 2)
    low, wide = X.astype(jnp.bfloat16), X.astype(jnp.bfloat16).astype(jnp.float32)
    y = jaxpool.roi_align(low, TWO_BOXES, 2)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, jaxpool.roi_align(wide, TWO_BOXES, 2).astype(jnp.bfloat16))
    whole = jax.ShapeDtypeStruct(X.shape, jnp.int8)
    assert jax.eval_shape(lambda x: jaxpool.roi_align(x, TWO_BOXES, 2), whole).dtype == jnp.float32
    whole = (X * 7).astype(jnp.int16)
    y = jaxpool.roi_max_pool(whole, TWO_BOXES, 2)
    assert y.dtype == jnp.int16
    np.testing.assert_array_equal(y, jaxpool.roi_max_pool(whole.astype(jnp.float32), TWO_BOXES, 2))


def test_max_kind_with_no_boxes():
    x, none = np.ones((6, 5, 2), np.float32), np.zeros((0, 4), np.float32)
    assert jaxpool.roi_align(x, none, (2, 3), kind="max", samples=3).shape == (0, 2, 3, 2)


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


@pytest.mark.parametrize(("rows", "cells"), [(57, 7), later(62, 14)])
def test_cell_bounds_are_rounded_in_float32(rows, cells):
    """In float32, a cell ends a row later or begins a row earlier than in exact arithmetic."""
    x = np.stack([np.arange(rows + 3), -np.arange(rows + 3)], -1)[:, None].astype(np.float32)
    boxes = np.array([[0, 0, rows - 1, 0], [1, 0, rows, 0]], np.float32)
    answer = oracle.roi_max_pool(x, boxes, (cells, 1))
    y, back = jax.vjp(lambda x: jaxpool.roi_max_pool(x, boxes, (cells, 1)), x)
    np.testing.assert_array_equal(y, answer.y)
    np.testing.assert_array_equal(back(y)[0], answer.cotangent(y))


@pytest.mark.parametrize("name", ["roi_align", "roi_max_pool"])
def test_empty_batch(name):
    pool, x = functools.partial(getattr(jaxpool, name), output_shape=2), jnp.ones((0, 4, 4, 3))
    none = pool(x, jnp.ones((0, 4)), batch_indices=np.zeros(0, np.int32))
    assert none.shape == (0, 2, 2, 3)
    y = jax.jit(lambda images: pool(x, TWO_BOXES, batch_indices=images))(np.zeros(2, np.int32))
    np.testing.assert_array_equal(y, np.zeros((2, 2, 2, 3)))


@pytest.mark.parametrize(
    ("name", "options"),
    [("roi_align", {"samples": 2}), later("roi_align", {"samples": 9}), ("roi_max_pool", {})],
)  # few samples, matrix products, whole pixels
def test_nan_box_gives_zeros(name, options):
    boxes = jnp.where(jnp.eye(4) > 0, np.nan, jnp.array([0.0, 0.0, 3.0, 3.0]))
    pool = functools.partial(getattr(jaxpool, name), output_shape=2, **options)

    @jax.jit
    def value_and_cotangents(x, boxes):
        y, back = jax.vjp(pool, x, boxes)
        return y, *back(jnp.ones_like(y))

    y, dx, dboxes = value_and_cotangents(jnp.arange(1.0, 17.0).reshape(4, 4, 1), boxes)
    np.testing.assert_array_equal(y, np.zeros((4, 2, 2, 1)))
    np.testing.assert_array_equal(dx, np.zeros((4, 4, 1)))
    np.testing.assert_array_equal(dboxes, np.zeros((4, 4)))


@pytest.mark.parametrize("name", ["roi_align", "roi_max_pool"])
def test_gradient_without_channels_is_empty(name):
    pool = functools.partial(getattr(jaxpool, name), boxes=TWO_BOXES, output_shape=2)
    assert jax.grad(lambda x: pool(x).sum())(jnp.ones((4, 4, 0))).shape == (4, 4, 0)


@pytest.mark.parametrize("name", ["roi_align", "roi_max_pool"])
@pytest.mark.parametrize(
    ("x", "boxes", "message"),
    [
        ("2, 4, 4, 3", "n, 4", "`boxes` must be of known sizes; got boxes.shape=(n, 4)"),
        ("n, 4, 4, 3", "2, 4", "`x` must be of known sizes but for C; got x.shape=(n, 4, 4, 3)"),
        ("2, 4, n, 3", "2, 4", "`x` must be of known sizes but for C; got x.shape=(2, 4, n, 3)"),
    ],
)
def test_symbolic_sizes_raise(name, x, boxes, message):
    shapes = [jax.export.symbolic_shape(shape) for shape in (x, boxes)]
    x, boxes = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    images = jax.ShapeDtypeStruct(boxes.shape[:1], jnp.int32)

    def pool(x, boxes, images):
        return getattr(jaxpool, name)(x, boxes, 2, batch_indices=images)

    with pytest.raises(ValueError, match="known") as raised:
        jax.eval_shape(pool, x, boxes, images)
    assert str(raised.value).startswith(f"jaxpool.{name}: {message}")


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 3])
def test_max_kind_in_chunks_of_boxes(at_once, monkeypatch):
    """Equal up to rounding: the group size changes the order of the sums."""
    x, images = jnp.stack([X, -X]), jnp.array([1, 0, 0, 1] * 2)
    boxes = jnp.concatenate([TWO_BOXES + i / 8 for i in range(4)])

    def pool(x, boxes):
        return jaxpool.roi_align(x, boxes, 2, batch_indices=images, samples=5, kind="max")

    def all_derivatives(x, boxes):
        y, back = jax.vjp(pool, x, boxes)
        second = jax.grad(lambda boxes: (jax.grad(lambda x: (pool(x, boxes) ** 2).sum())(x)).sum())
        return y, back(jnp.cos(y)), jax.jvp(pool, (x, boxes), (x, boxes))[1], second(boxes)

    want = jax.jit(all_derivatives)(x, boxes)
    limits = dataclasses.replace(LIMITS, max_points_in_memory=at_once * 100 * X.shape[-1])
    monkeypatch.setattr("jaxpool._plan.boxes.LIMITS", limits)
    got = jax.jit(lambda *xs: all_derivatives(*xs))(x, boxes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), got, want)


@pytest.mark.parametrize(
    "options",
    first_values(
        1, [{}, {"aligned": False}, {"samples": 5}, {"kind": "max"}, {"spatial_scale": 2.0}]
    ),
)
@pytest.mark.parametrize("end", [np.inf, 3e38])
def test_infinite_box_gives_zeros(end, options):
    """Infinite boxes, as from an overflowing exponential, send no NaN to the image."""
    boxes = jnp.array(
        [[-end, -end, end, end], [-end, 0, end, 4], [0, -end, 4, end], [0, 0, 4, 4.0]]
    )
    x = jnp.ones((6, 6, 1))

    def pool(x, boxes):
        return jaxpool.roi_align(x, boxes, 1, **options).ravel()

    (y, pull) = jax.vjp(pool, x, boxes)
    np.testing.assert_allclose(y, [0, 0, 0, 1], rtol=1e-6)
    dx, d_boxes = pull(y)
    np.testing.assert_allclose(dx.sum(), 1, rtol=1e-6)
    assert jnp.isfinite(d_boxes).all()


@pytest.mark.parametrize("name", first_values(1, ["roi_align", "roi_max_pool"]))
def test_scatter_only_on_cpu_and_any_box_order(name):
    """The gradient does not depend on how boxes of several images are ordered."""
    x, images = jnp.stack([X, -X]), jnp.array([1, 0] * 20)
    boxes = jnp.concatenate([TWO_BOXES + i / 8 for i in range(20)])

    def pullback(x):
        y, back = jax.vjp(lambda x: getattr(jaxpool, name)(x, boxes, 2, batch_indices=images), x)
        return back(y)[0]

    for platform in ("cpu", "cuda", "tpu"):
        lowered = jax.jit(pullback).trace(x).lower(lowering_platforms=(platform,))
        assert ("scatter" in lowered.as_text()) is (platform == "cpu")

    @jax.jit
    def one_image_pullback(image, boxes):
        y, back = jax.vjp(lambda x: getattr(jaxpool, name)(x, boxes, 2), image)
        return back(y)[0]

    want = jnp.stack([one_image_pullback(image, boxes[1 - b :: 2]) for b, image in enumerate(x)])
    np.testing.assert_allclose(jax.jit(pullback)(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("ties", ["first", "split"])
def test_cotangents_of_a_large_image_in_chunks(ties):
    """With ties="split" the backward pass treats the images in chunks."""
    x = jnp.asarray(
        np.random.default_rng(0).permutation(2 * 20 * 40).reshape(2, 20, 40, 1), jnp.float32
    )
    boxes, images = jnp.array([[0, 0, 19, 39]] * 2, jnp.float32), jnp.array([1, 0])
    options = {"batch_indices": images, "ties": ties}
    y, back = jax.vjp(lambda x: jaxpool.roi_max_pool(x, boxes, (4, 5), **options), x)
    (dx,) = back(jnp.arange(1.0, 41).reshape(y.shape))
    want, cells = np.zeros_like(x), np.asarray(x)[[1, 0]].reshape(2, 4, 5, 5, 8).swapaxes(2, 3)
    np.testing.assert_array_equal(y[..., 0], cells.max((3, 4)))
    for number, best in enumerate(np.ravel(y), 1):
        want[np.asarray(x) == best] = number
    np.testing.assert_array_equal(dx, want)


def test_box_outside_the_image_has_zero_tangent():
    boxes = jnp.array([[99, 99, 120, 120], [0, 0, 1, 1]], jnp.float32)
    pool = functools.partial(jaxpool.roi_max_pool, boxes=boxes, output_shape=1)
    tangent = jax.jvp(pool, (X,), (jnp.ones_like(X),))[1]
    np.testing.assert_array_equal(tangent[:, 0, 0], [[0] * X.shape[-1], [1] * X.shape[-1]])
