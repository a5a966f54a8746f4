"""`compat.torchvision`: against torchvision on random boxes if it is installed, and against our own functions."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpool._ops.box_mean import BoxMean
from jaxpool.compat import torchvision as ours
from tests.support.junk import Wrapper

try:
    from torchvision import ops as theirs
except (ImportError, RuntimeError):  # not installed, or built for another PyTorch
    theirs = None
needs_torchvision = pytest.mark.skipif(theirs is None, reason="needs torchvision")

IMAGES, HEIGHT, WIDTH, BOXES = 2, 9, 7, 9
THIN_BOXES = [  # x0, y0, x1, y1
    [1.2, 2.3, 1.2000002, 6.1],
    [0.5, 1.5, 0.75, 6.5],
    [3.0, 1.0, 3.0, 5.0],
    [-1.3, 2.0, -0.9, 2.2],
    [2.0, -0.6, 5.0, -0.4],
    [6.9, 0.0, 7.4, 7.0],
    [2.5, 2.5, 2.5, 2.5],
    [0.0, 3.1, 7.0, 3.4],
    [1.0, 1.0, 1.9999, 6.00001],
    [4.2, 0.3, 4.9, 6.8],
    [1.5, 2.0, 3.5, 2.0000005],
    [0.1, 0.1, 0.3, 0.2],
]
VARIANTS = [
    ("roi_align", ((2, 3), 0.8, -1, False)),
    ("roi_align", ((2, 3), 1.0, 2, True)),
    ("roi_align", ((3, 1), 2.0, -1, True)),
    ("roi_align", ((1, 2), 1.0, 3, False)),
    ("roi_pool", ((3, 2), 1.0)),
    ("roi_pool", ((2, 4), 0.6)),
    ("ps_roi_align", ((2, 3), 0.8, -1)),
    ("ps_roi_align", ((2, 1), 1.0, 2)),
    ("ps_roi_pool", ((2, 3), 1.0)),
    ("ps_roi_pool", ((3, 2), 0.7)),
]


@functools.lru_cache
def compile_value_and_gradient(name, args):
    def run(x, boxes, dy):
        y, back = jax.vjp(lambda x: getattr(ours, name)(x, boxes, *args), x)
        return y, back(dy)[0]

    return jax.jit(run)


def random_case(name, args, seed):
    """Images, boxes inside, across and outside of them, and a cotangent. Odd seeds have ties."""
    rng = np.random.default_rng(seed)
    channels = 2 * (args[0][0] * args[0][1] if name.startswith("ps") else 1)
    x = rng.standard_normal((IMAGES, channels, HEIGHT, WIDTH)).astype(np.float32)
    x = np.round(x) if seed % 2 else x
    corners = rng.uniform(-4, 14, (BOXES, 4))
    corners = np.round(corners * 2) / 2 if seed % 3 == 0 else corners
    if name == "ps_roi_align" or args[-1] is True:
        # torchvision divides by 0 for boxes of negative size, or crashes.
        corners = np.sort(corners.reshape(-1, 2, 2), 1).reshape(-1, 4)
        corners[:, 2:] += 0.25
    boxes = np.column_stack([rng.integers(0, IMAGES, BOXES), corners]).astype(np.float32)
    dy = rng.standard_normal((BOXES, 2, *args[0])).astype(np.float32)
    return x, boxes, dy


def assert_matches(name, args, x, boxes, dy):
    import torch

    image = torch.tensor(x).requires_grad_()
    want = getattr(theirs, name)(image, torch.tensor(boxes), *args)
    y, dx = compile_value_and_gradient(name, args)(x, boxes, dy)
    np.testing.assert_allclose(y, want.detach(), rtol=1e-5, atol=2e-5)
    if name != "ps_roi_pool":  # torchvision's gradient is not the derivative of its value
        (want,) = torch.autograd.grad(want, image, torch.tensor(dy))
        np.testing.assert_allclose(dx, want, rtol=1e-4, atol=5e-5)


@needs_torchvision
@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(100, 300), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize(("name", "args"), VARIANTS)
def test_random_cases(name, args, seeds):
    for seed in seeds:
        assert_matches(name, args, *random_case(name, args, seed))


@needs_torchvision
@pytest.mark.parametrize("aligned", [True, False])
def test_boxes_thinner_than_a_pixel(aligned):
    x = (np.arange(49) * 7 % 11).astype(np.float32).reshape(1, 1, 7, 7)
    boxes = np.pad(np.float32(THIN_BOXES), ((0, 0), (1, 0)))
    dy = np.ones((len(boxes), 1, 5, 2), np.float32)
    assert_matches("roi_align", ((5, 2), 1.0, -1, aligned), x, boxes, dy)


@needs_torchvision
@pytest.mark.parametrize("name", ours.__all__)
def test_signature(name):
    def shown(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.default) for p in parameters if p.name != "self"]

    assert shown(getattr(ours, name)) == shown(getattr(theirs, name))


@needs_torchvision
def test_ps_roi_pool_gradient_excludes_last_row_and_column():
    """torchvision's value leaves out the last row and column, its gradient does not."""
    import torch

    image = torch.ones(1, 1, 4, 4, requires_grad=True)
    boxes = torch.tensor([[0, 0, 0, 9.0, 9.0]])
    y = theirs.ps_roi_pool(image * torch.arange(4.0), boxes, 1)
    assert y.item() == 1  # the mean of columns 0, 1 and 2
    theirs.ps_roi_pool(image, boxes, 1).sum().backward()
    assert image.grad[0, 0, 3, 3] > 0
    x = jnp.ones((1, 1, 4, 4))
    dx = jax.grad(lambda x: ours.ps_roi_pool(x, jnp.asarray(boxes.numpy()), 1).sum())(x)
    np.testing.assert_allclose(
        dx[0, 0], np.pad(np.full((3, 3), 1 / 9), ((0, 1), (0, 1))), rtol=1e-6
    )


def test_layers_accept_box_list_per_image():
    x = jnp.arange(2 * 1 * 4 * 4.0).reshape(2, 1, 4, 4)
    boxes = jnp.array([[0, 1, 0, 3, 4], [1, 0, 0, 4, 2], [1, 1, 1, 2, 2]], jnp.float32)
    listed = [boxes[:1, 1:], boxes[1:, 1:]]
    want = ours.roi_align(x, boxes, 2, 1.0, 2, True)
    np.testing.assert_array_equal(ours.RoIAlign(2, 1.0, 2, True)(x, listed), want)
    np.testing.assert_array_equal(ours.RoIPool(2, 1.0)(x, listed), ours.roi_pool(x, boxes, 2))
    assert ours.roi_align(x, [boxes[:0, 1:]] * 2, 2).shape == (0, 1, 2, 2)
    x = jnp.tile(x, (1, 4, 1, 1)) * jnp.arange(1.0, 5).reshape(4, 1, 1)
    want = ours.ps_roi_align(x, boxes, 2, 1.0, 2)
    np.testing.assert_array_equal(ours.PSRoIAlign(2, 1.0, 2)(x, listed), want)
    np.testing.assert_array_equal(ours.PSRoIPool(2, 1.0)(x, listed), ours.ps_roi_pool(x, boxes, 2))


@pytest.mark.parametrize("spec", [P("a", None, None, None), P(None, "a", None, None)])
@pytest.mark.parametrize(("name", "args"), [VARIANTS[n] for n in (0, 1, 4, 6, 8)])
def test_trace_with_sharded_images(name, args, spec):
    mesh = AbstractMesh((2,), ("a",), axis_types=(AxisType.Explicit,))
    x, boxes, _ = random_case(name, args, seed=1)
    x = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    with jax.sharding.use_abstract_mesh(mesh):
        pool = jax.value_and_grad(lambda *arrays: getattr(ours, name)(*arrays, *args).sum(), (0, 1))
        _, (dx, dboxes) = jax.eval_shape(pool, x, boxes)
    assert (dx.sharding.spec, dboxes.shape) == (spec, boxes.shape)


def test_roi_align_box_gradient():
    x, boxes = jnp.arange(16.0).reshape(1, 1, 4, 4), jnp.array([[0, 0.5, 0.5, 3, 3.0]])
    dboxes = jax.grad(lambda boxes: ours.roi_align(x, boxes, 1, 1.0, 2, True).sum())(boxes)
    np.testing.assert_allclose(dboxes, [[0, 0.5, 2, 0.5, 2]], rtol=1e-6)


@pytest.mark.parametrize("ratio", [-1, 2])
def test_nan_box_gives_zeros(ratio):
    boxes = jnp.array([[0, np.nan, 0, 3.0, 3.0]])
    pool = functools.partial(ours.roi_align, output_size=1, sampling_ratio=ratio)
    y, back = jax.vjp(pool, jnp.ones((1, 1, 4, 4)), boxes)
    for each in (y, *back(jnp.ones_like(y))):
        np.testing.assert_array_equal(each, np.zeros(each.shape))


@pytest.mark.parametrize(("name", "args"), [VARIANTS[0], VARIANTS[6], VARIANTS[8]])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_nonfinite_cotangents_reach_only_pixels_of_their_cell(name, args, value):
    """A weight of 0 times infinity would be NaN."""
    x, boxes = np.ones((1, 6, HEIGHT, WIDTH), np.float32), np.float32([[0, 0.3, 0.2, 3.9, 3.6]])
    dy = np.zeros_like(getattr(ours, name)(x, boxes, *args))
    dy[0, 0, 1, 0] = 1
    finite, special = (
        np.asarray(compile_value_and_gradient(name, args)(x, boxes, each)[1])
        for each in (dy, np.where(dy > 0, np.float32(value), 0))
    )
    assert 0 < np.count_nonzero(finite) < 20
    np.testing.assert_array_equal(special, np.where(finite > 0, value, 0))


def test_box_corners_round_before_subtraction():
    """The last bit of a box length may add a sampling point to a cell."""
    boxes = np.random.default_rng(0).uniform(0, 500, (64, 4)).astype(np.float32)
    corners = boxes * np.float32(1 / 14)
    want = np.maximum(corners[:, 2:] - corners[:, :2], np.float32(1)).T
    spans = BoxMean((2, 2), 1 / 14, None, 0.0, 1.0)._box_spans
    for run in (spans, jax.jit(spans)):
        np.testing.assert_array_equal([length for _, length in run(boxes)], want)


# For the names of a pyramid, the level of each box: the original has no level for the last of "ac".
LEVELS_OF_BOXES = {"b": "bbbb", "abc": "abcc", "ac": "ac--"}
PYRAMID_SIZES = {"a": 32, "b": 16, "c": 8}


def multi_scale_case():
    """Levels by name, and boxes for two images of at most 128 rows and columns."""
    rng = np.random.default_rng(0)
    levels = {
        name: rng.normal(size=(2, 3, size, size)).astype(np.float32)
        for name, size in PYRAMID_SIZES.items()
    }
    return levels, [np.float32([[0, 0, s, s * 0.9] for s in (9, 40, 70, 120)])] * 2


@pytest.mark.parametrize("names", LEVELS_OF_BOXES)
def test_multi_scale_roi_align(names):
    """Level numbers count from the first name: of a and c, a box for b pools from c, and a box for c gives 0."""
    levels, boxes = multi_scale_case()
    layer = ours.MultiScaleRoIAlign([*names], 2, 2, canonical_scale=60)
    y = layer(levels, boxes, [(128, 120), (100, 128)])
    for k, name in enumerate(2 * LEVELS_OF_BOXES[names]):
        image, at = divmod(k, 4)
        want = 0
        if name != "-":
            box = np.concatenate([[image], boxes[image][at]])[None].astype(np.float32)
            want = ours.roi_align(levels[name], box, 2, PYRAMID_SIZES[name] / 128, 2)[0]
        np.testing.assert_allclose(y[k], want, rtol=1e-5, atol=1e-6)


def test_multi_scale_roi_align_takes_objects_with_jax_array():
    levels, boxes = multi_scale_case()
    layer, held = ours.MultiScaleRoIAlign([*levels], 2, 2), jax.tree.map(Wrapper, levels)
    y, want = (layer(each, boxes, [(128, 128)]) for each in (held, levels))
    np.testing.assert_array_equal(y, want)


@needs_torchvision
@pytest.mark.parametrize("names", LEVELS_OF_BOXES)
def test_multi_scale_roi_align_matches_torchvision(names):
    import torch

    levels, boxes = multi_scale_case()
    y, want = (
        library.MultiScaleRoIAlign([*names], 2, 2, canonical_scale=60)(
            {name: convert(x) for name, x in levels.items()},
            [convert(each) for each in boxes],
            [(128, 128)] * 2,
        )
        for library, convert in ((ours, jnp.asarray), (theirs, torch.tensor))
    )
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
