"""`max_unpool`: colliding indices, indices out of range, dtypes of indices, and programs."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import oracle
from tests.search.programs import on_platform
from tests.support.chance import column

pytestmark = pytest.mark.usefixtures("strict")

LAYOUTS = [
    ((2, 5, 3), (7,), (1,)),
    ((2, 3, 4, 3), (4, 5), (1, 2)),
    ((2, 3, 4, 3), (4, 5), (2, 1)),
    ((3, 4, 2, 3), (4, 5), (3, 0)),
    ((2, 2, 2, 2, 2), (3, 2, 2), (1, 2, 3)),
    ((2, 0, 3), (4,), (1,)),
]
DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def cases():
    """Yield indices, the sizes of the unpooled axes, and these axes."""
    for shape, sizes, axes in LAYOUTS:
        count = int(np.prod(sizes))
        for least, most in [(0, count), (0, 3), (-2, count + 3)]:  # collisions, and out of range
            indices = np.random.default_rng(3).integers(least, most, shape).astype(np.int32)
            yield indices, sizes, axes
    # Inside and outside of disjoint windows. The last row and column are in no window.
    rng, shape = np.random.default_rng(4), (2, 3, 4, 5)
    rows, columns = np.arange(3)[:, None, None] * 2, np.arange(4)[:, None] * 3
    inside = (rows + rng.integers(0, 2, shape)) * 13 + columns + rng.integers(0, 3, shape)
    for indices in (inside, np.where(rng.random(shape) < 0.1, 90, inside)):
        yield indices, (7, 13), (1, 2)
    # Out of range in every dtype, including indices that would be in range after truncation to 32 bits
    for dtype in DTYPES:
        info = np.iinfo(dtype)
        values = [0, info.min, 5, info.max, 6, 3 if info.bits < 64 else 2**32 + 1]
        wide = np.uint64 if info.min == 0 else np.int64
        yield np.array(values, wide).astype(dtype)[:, None], (6,), (0,)
    # A dtype narrower than the output size
    yield column(0, 255, dtype=np.uint8), (1000,), (0,)


def is_in_range(indices, spatial_shape):
    return ((indices >= 0) & (indices < np.prod(spatial_shape))).all()


@pytest.mark.parametrize("platform", ["cpu", "gpu", "portable"])
@pytest.mark.parametrize(
    ("indices", "spatial_shape", "axes"),
    [
        pytest.param(*case, id="in_range" if is_in_range(*case[:2]) else "out_of_range")
        for case in cases()
    ],
)
def test_colliding_and_other_indices(indices, spatial_shape, axes, platform, x64):
    """Traced indices, by the plans of a platform. Scatters write in order on CPU, but not on every platform."""
    y = np.random.default_rng(3).standard_normal(indices.shape).astype(np.float32)
    answer = oracle.max_unpool(y, indices, spatial_shape, axes=axes)
    dx = np.cos(np.arange(answer.y.size)).reshape(answer.y.shape).astype(y.dtype)

    def value_and_derivatives(y, indices, dx):
        def unpool(y):
            return jaxpool.max_unpool(y, indices, spatial_shape, axes=axes)

        x, pullback = jax.vjp(unpool, y)
        return x, jax.jvp(unpool, (y,), (y,))[1], pullback(dx)[0]

    with on_platform(platform):
        results = jax.jit(value_and_derivatives)(y, indices, dx)
    for got, want in zip(results, (answer.y, answer.y, answer.cotangent(dx)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("platform", "count"), [("cpu", 40_000), ("gpu", 65_535), ("gpu", 65_537)])
def test_last_of_many_colliding_elements_wins(platform, count):
    """Enough elements that XLA could divide a scatter among threads, and the most that have numbers of 16 bits."""
    rng = np.random.default_rng(4)
    y = np.arange(count, dtype=np.float32)[None, :, None]
    indices = rng.integers(0, 50, y.shape).astype(np.int32)
    last = np.zeros(50, np.float32)
    last[indices.ravel()] = y.ravel()
    with on_platform(platform):
        unpool = jax.jit(lambda y, indices: jaxpool.max_unpool(y, indices, (50,)))
        for _ in range(3):
            np.testing.assert_array_equal(unpool(y, indices).ravel(), last)


def test_vmap_over_indices():
    y = np.ones((2, 3, 1), np.float32)
    indices = np.array([[0, 1, 2], [3, 9, 0]], np.int32)[..., None]
    unpool = jax.vmap(lambda y, indices: jaxpool.max_unpool(y, indices, (4,)))
    np.testing.assert_array_equal(unpool(y, indices)[..., 0], [[1, 1, 1, 0], [1, 0, 0, 1]])


def test_constant_indices_are_not_folded_at_compile_time():
    """XLA would fold a scatter of constants at compile time, which takes 25 s at 16x56x56x64."""
    y = jnp.ones((1, 4, 4, 2))
    first = np.arange(4) * 2
    indices = np.broadcast_to((first[:, None] * 8 + first)[None, :, :, None], y.shape)

    def scatters_left(unpooled, *arguments):
        program = jax.jit(unpooled).lower(*arguments).compile().as_text()
        # XLA expands some scatters to loops
        return len(re.findall(r" (?:scatter|while)\(", program))

    traced = scatters_left(lambda y, at: jaxpool.max_unpool(y, at, (8, 8)), y, indices)
    assert traced
    assert scatters_left(lambda y: jaxpool.max_unpool(y, indices, (8, 8)), y) == traced
